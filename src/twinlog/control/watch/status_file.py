"""The status files by which `twinlog status` finds running mirrors: one file per process, rewritten
every second. With many partitions it is written less often, to limit its share of CPU time.

The file is informational only: a mirror that loses it writes it again. A killed mirror leaves a
file whose process is gone, which readers ignore and remove. The folder must belong to this user
alone, or it is not used. The content is validated all the same, because another release may have
written it.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from twinlog.control.watch.rates import Rates
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.folders import named_folder, temporary_root, usable
from twinlog.mirror.state.state_row import BEYOND
from twinlog.private_files import (
    FolderNotPrivate,
    make_private,
    read_private,
    remove_unfinished,
    write_private,
)

log = logging.getLogger(__name__)

STATUS_VERSION = 1
NOT_THERE: Final = -1
SHARE_OF_TIME: Final = 0.01
"""Maximum share of one core for writing, regardless of the number of partitions, ..."""
LONGEST_PAUSE_S: Final = 60.0
"""... but writes are at most this far apart."""
AT_ONCE: Final = 1000
"""Number of partitions encoded at a time. During this time Python runs no other thread."""
TODO: Final = "set XDG_RUNTIME_DIR to a writable folder of this user"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMirror:
    """The last status of a running mirror."""

    pid: int
    config: str
    written_ms: int
    every_ms: int
    """Interval at which it is written."""
    flows: list[dict[str, Any]]

    @property
    def late_ms(self) -> int:
        """Return by how much the next write is overdue."""
        return max(0, int(time.time() * 1000) - self.written_ms - self.every_ms)


def status_folder() -> Path:
    """Return the folder of the files: the user's runtime folder, or else a private one in the
    temporary folder. Raises EnvironmentMissing if it cannot be used, and FolderNotPrivate.
    """
    folder = _folder()
    with usable(folder, TODO):
        make_private(folder, TODO)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    return folder


def _folder() -> Path:
    base = named_folder(os.environ, "XDG_RUNTIME_DIR")
    return base / "twinlog" if base else temporary_root() / f"twinlog-{os.getuid()}"


def write_status(path: Path, text: str) -> None:
    """Replace a private file atomically. Raises OSError and FolderNotPrivate."""
    write_private(path, text, TODO)


class StatusFile:
    """This process's status file, written by a separate thread that `writing` runs."""

    def __init__(self, config: Path, *more: Path) -> None:
        self._config = str(config.resolve())
        self._more = [str(one.resolve()) for one in more]
        folder = status_folder()
        remove_unfinished(folder)
        self._path = folder / f"{os.getpid()}.json"
        self._is_failing = False
        self._pause_s = 0.0
        self._rates = Rates()
        self._news: queue.SimpleQueue[Sequence[FlowSnapshot] | None] = queue.SimpleQueue()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write what `update` receives during this block; then remove the file."""
        thread = threading.Thread(target=self._run, name="twinlog-status", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._news.put(None)
            thread.join()
            self.remove()

    def update(self, flows: Sequence[FlowSnapshot]) -> None:
        """Pass the current snapshots of all flows to the writer. Thread-safe, does not block."""
        self._news.put(flows)

    def _run(self) -> None:
        news = self._news.get()
        while news is not None:
            self.write(news)
            news = self._newest(time.monotonic() + self._pause_s)

    def _newest(self, at: float) -> Sequence[FlowSnapshot] | None:
        """Return the last snapshots passed until time `at`, or None at the end."""
        news = self._news.get()
        while news is not None:
            try:
                news = self._news.get(timeout=max(0.0, at - time.monotonic()))
            except queue.Empty:
                return news
        return None

    def write(self, flows: Iterable[FlowSnapshot]) -> None:
        """Write the file now, in the calling thread."""
        at_ms, began = int(time.time() * 1000), time.thread_time()
        texts = [_text(flow) for flow in self._with_rates([*flows])]
        cost_s = time.thread_time() - began
        self._pause_s = min(cost_s / SHARE_OF_TIME, LONGEST_PAUSE_S)
        head = {
            "version": STATUS_VERSION,
            "pid": os.getpid(),
            "start_ticks": _start_ticks(os.getpid()),
            "config": self._config,
            "more_configs": self._more,
            "written_ms": at_ms,
            "every_ms": max(1000, int(self._pause_s * 1000)),
        }
        try:
            write_status(self._path, f'{json.dumps(head)[:-1]}, "flows": [{", ".join(texts)}]}}')
        except (OSError, FolderNotPrivate) as error:
            # A full disk must not stop replication; the next write is a second later. The same
            # applies if another user has taken the folder's name after it was cleaned up.
            if not self._is_failing:
                log.warning("cannot write the status file for `twinlog status`: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False

    def _with_rates(self, flows: Sequence[FlowSnapshot]) -> Iterator[FlowSnapshot]:
        rates: dict[str, dict[str, float]] = {}
        for one in self._rates.update(time.monotonic(), flows):
            rates.setdefault(one.flow, {})[one.topic] = round(one.records_per_s, 1)
        for flow in flows:
            yield replace(flow, rates=rates.get(flow.flow, {}))

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def _text(flow: FlowSnapshot) -> str:
    """Encode a flow as JSON."""
    parts = flow.partitions_as_json()
    some = iter(lambda: [*islice(parts, AT_ONCE)], [])
    rows = ", ".join(json.dumps(each)[1:-1] for each in some)
    return f'{json.dumps(flow.head_as_json())[:-1]}, "partitions": [{rows}]}}'


def running_mirrors(config: Path | None = None) -> Iterator[RunningMirror]:
    """Yield this user's running mirrors, only those of one configuration file if it is given."""
    wanted = None if config is None else str(config.resolve())
    for path in sorted(status_folder().glob("*.json")):
        value = _read(path)
        if value is None:
            continue
        ticks = _start_ticks(value["pid"])
        if ticks == NOT_THERE or ticks != value["start_ticks"]:
            path.unlink(missing_ok=True)  # its process was killed
            continue
        if wanted in (None, value["config"], *value["more_configs"]):
            yield RunningMirror(
                pid=value["pid"],
                config=value["config"],
                written_ms=value["written_ms"],
                every_ms=value["every_ms"],
                flows=value["flows"],
            )


def _read(path: Path) -> dict[str, Any] | None:
    """Return the content of a status file, or None if it is malformed."""
    try:
        value = json.loads(read_private(path))
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        value.setdefault("every_ms", 1000)
    for flow in value["flows"] if _has(value, _MIRROR) else ():
        if isinstance(flow, dict):  # the running mirror may be of an older release
            _fill_in(flow)
    is_whole = (
        _has(value, _MIRROR)
        and value["version"] == STATUS_VERSION
        and all(isinstance(one, str) for one in value["more_configs"])
        and all(_has(flow, _FLOW) for flow in value["flows"])
        and all(_has(part, _PARTITION) for flow in value["flows"] for part in flow["partitions"])
        and all(
            isinstance(why, str)
            for flow in value["flows"]
            for kind in _GROUPS
            for why in flow[kind].values()
        )
        and all(
            isinstance(rate, int | float)
            for flow in value["flows"]
            for rate in flow["rates"].values()
        )
    )
    return value if is_whole else None


_MIRROR: Final = {
    "version": int,
    "pid": int,
    "start_ticks": int,
    "config": str,
    "more_configs": list,
    "written_ms": int,
    "every_ms": int,
    "flows": list,
}
_FLOW: Final = {
    "flow": str,
    "state": str,
    "reason": str,
    "code": str,
    "guarantee": str,
    "lanes": int,
    "since_ms": int,
    "loss_records": int,
    "loss_ms": int,
    "loss_unknown": int,
    "where": str,
    "as_of_ms": int,
    "partitions": list,
    "rates": dict,
    "skipped_groups": dict,
    "groups_without_checkpoint": dict,
}
_GROUPS: Final = ("skipped_groups", "groups_without_checkpoint")
_PARTITION: Final = {
    "topic": str,
    "partition": int,
    "target_topic": str,
    "state": str,
    "lag": int,
    "lag_ms": int,
    "loss_ms": int,
    "records": int,
    "copied": int,
    "code": str,
    "message": str,
    "since_ms": int,
}
"""The fields of a snapshot that `twinlog status` shows."""


def _fill_in(flow: dict[str, Any]) -> None:
    """Set the fields that older releases lack."""
    flow.setdefault("groups_without_checkpoint", {})
    flow.setdefault("where", "")
    flow.setdefault("as_of_ms", 0)
    flow.setdefault("rates", {})
    flow.setdefault("code", "")
    for name, unknown in (("loss_records", -1), ("loss_ms", -1), ("loss_unknown", 0)):
        flow.setdefault(name, unknown)
    parts = flow.get("partitions")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            part.setdefault("loss_ms", -1)
            part.setdefault("copied", -1)


def _has(value: object, fields: dict[str, type]) -> bool:
    return isinstance(value, dict) and all(
        type(value.get(name)) is kind  # bool is not accepted as int
        and not (name.endswith("_ms") and abs(value[name]) >= BEYOND)  # not a valid date
        for name, kind in fields.items()
    )


def _start_ticks(pid: int) -> int:
    """Return the process's start in clock ticks since boot, because a pid may have been reused."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return NOT_THERE
    fields = stat.rpartition(")")[2].split()
    # a zombie is listed until its parent waits for it
    return NOT_THERE if fields[0] == "Z" else int(fields[19])
