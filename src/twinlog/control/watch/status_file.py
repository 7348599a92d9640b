"""The status files by which `twinlog status` finds running mirrors: one file per process, rewritten
every second. With many partitions, the file is written less often, to limit its share of CPU time.

A status file is informational only: a mirror that loses its file writes it again. A killed mirror
leaves a file whose process is gone. Readers ignore and remove such a file. The folder is used only
if it belongs to this user alone. The content is validated nevertheless, because another release may
have written it.
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
from pathlib import Path
from typing import Final

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from twinlog.control.watch.rates import Rates
from twinlog.control.watch.snapshot import FlowSnapshot, FlowStatus, PartitionStatus
from twinlog.folders import (
    FolderNotPrivate,
    make_private,
    read_private,
    remove_unfinished,
    temporary_root,
    usable,
    write_private,
    xdg_folder,
)
from twinlog.mirror.state.state_row import Bounded

log = logging.getLogger(__name__)

STATUS_VERSION = 1
SHARE_OF_TIME: Final = 0.01
"""Maximum share of one core for writing, for any number of partitions. It is exceeded if the pause
would otherwise be longer than LONGEST_PAUSE_S.
"""
LONGEST_PAUSE_S: Final = 60.0
"""Maximum pause between two writes, in seconds."""
AT_ONCE: Final = 1000
"""Number of partitions encoded at a time. During this time Python runs no other thread."""
_PARTS: Final = tuple[PartitionStatus, ...]
TODO: Final = "set XDG_RUNTIME_DIR to a writable folder of this user"


class RunningMirror(Struct, frozen=True, kw_only=True):
    """The last status of a running mirror."""

    pid: int | None
    """The process ID, or None if the state was read from the clusters."""
    config: str
    written_ms: Bounded
    every_ms: int = 1000
    """Interval in ms at which the status is written."""
    flows: tuple[FlowStatus, ...]

    @property
    def late_ms(self) -> int:
        """Return by how many ms the next write is overdue; 0 if it is not."""
        return max(0, int(time.time() * 1000) - self.written_ms - self.every_ms)


class _Content(RunningMirror, frozen=True, kw_only=True):
    version: int
    pid: int
    start_ticks: int
    more_configs: tuple[str, ...]


def status_folder() -> Path:
    """Return the folder of the files: the user's runtime folder, or else a private one in the
    temporary folder. Raises EnvironmentMissing if the folder cannot be used, and FolderNotPrivate
    if other users have access to it.
    """
    base = xdg_folder(os.environ, "XDG_RUNTIME_DIR")
    folder = base / "twinlog" if base else temporary_root() / f"twinlog-{os.getuid()}"
    with usable(folder, TODO):
        make_private(folder, TODO)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    return folder


def write_status(path: Path, text: str) -> None:
    """Replace a private file atomically. Raises OSError and FolderNotPrivate."""
    write_private(path, text, TODO)


class StatusFile:
    """This process's status file, written by a separate thread that `writing` runs."""

    def __init__(self, config: Path, *more: Path) -> None:
        self._config = str(config.resolve())
        self._more = [str(path.resolve()) for path in more]
        folder = status_folder()
        remove_unfinished(folder)
        self._path = folder / f"{os.getpid()}.json"
        self._is_failing = False
        self._pause_s = 0.0
        self._rates = Rates()
        self._news: queue.SimpleQueue[Sequence[FlowSnapshot] | None] = queue.SimpleQueue()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write the snapshots that `update` receives during this block; then remove the file."""
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
        """Wait until monotonic time `at`. Return the newest snapshots, or None if writing ends."""
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
        for rate in self._rates.update(time.monotonic(), flows):
            rates.setdefault(rate.flow, {})[rate.topic] = round(rate.records_per_s, 1)
        for flow in flows:
            yield replace(flow, rates=rates.get(flow.flow, {}))

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def _text(flow: FlowSnapshot) -> str:
    """Encode a flow as JSON."""
    head, parts = to_builtins(replace(flow, partitions=()).status), flow.partitions
    del head["partitions"]
    portions = (parts[first : first + AT_ONCE] for first in range(0, len(parts), AT_ONCE))
    rows = ", ".join(
        json.dumps(to_builtins(convert(parts, _PARTS, from_attributes=True)))[1:-1]
        for parts in portions
    )
    return f'{json.dumps(head)[:-1]}, "partitions": [{rows}]}}'


def running_mirrors(config: Path | None = None) -> Iterator[RunningMirror]:
    """Yield this user's running mirrors, only those of one configuration file if it is given."""
    wanted = None if config is None else str(config.resolve())
    for path in sorted(status_folder().glob("*.json")):
        content = _read(path)
        if content is None:
            continue
        ticks = _start_ticks(content.pid)
        if ticks is None or ticks != content.start_ticks:
            path.unlink(missing_ok=True)  # the process was killed
        elif wanted in (None, content.config, *content.more_configs):
            yield convert(content, RunningMirror, from_attributes=True)


def _read(path: Path) -> _Content | None:
    """Return the content of a status file, or None if it is malformed. Files of earlier releases
    lack some fields, and have -1 instead of unknown numbers.
    """
    try:
        value = json.loads(read_private(path), parse_int=_number)
        content = convert(value, _Content)
    except (OSError, ValueError, RecursionError):
        return None
    return content if content.version == STATUS_VERSION else None


def _number(text: str) -> int | None:
    return None if text == "-1" else int(text)


def _start_ticks(pid: int) -> int | None:
    """Return the process's start in clock ticks since boot, because a pid may have been reused.
    Return None if there is no such process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    # a zombie has ended, but is listed until its parent waits for it
    return None if fields[0] == "Z" else int(fields[19])
