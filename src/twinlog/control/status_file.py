"""How `twinlog status` finds a running mirror: one small file per process, written anew every
second.

It holds what is shown and nothing that is needed: a mirror that loses it writes it again, and one
that is killed leaves a file whose process is gone, which readers ignore and remove.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlog.control.snapshot import FlowSnapshot
from twinlog.folders import temporary_root, usable

log = logging.getLogger(__name__)

STATUS_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMirror:
    """What one running mirror last wrote."""

    pid: int
    config: str
    written_ms: int
    flows: list[dict[str, Any]]


def status_folder() -> Path:
    """Where the files are: the user's runtime folder, else a private one in the temporary
    folder; raises EnvironmentMissing where it cannot be used.
    """
    folder = _folder()
    with usable(folder, "set XDG_RUNTIME_DIR to a folder of this user that can be written"):
        _make(folder)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    return folder


def _folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "twinlog" if base else temporary_root() / f"twinlog-{os.getuid()}"


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """Put a file of this user's in its place, whole; raises OSError."""
    _make(path.parent)  # what cleans temporary folders may have removed it
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)


class StatusFile:
    """This process's file."""

    def __init__(self, config: Path, *more: Path) -> None:
        self._config = str(config.resolve())
        self._more = [str(one.resolve()) for one in more]
        self._path = status_folder() / f"{os.getpid()}.json"
        self._is_failing = False

    def write(self, flows: Iterable[FlowSnapshot]) -> None:
        value = {
            "version": STATUS_VERSION,
            "pid": os.getpid(),
            "start_ticks": _start_ticks(os.getpid()),
            "config": self._config,
            "more_configs": self._more,
            "written_ms": int(time.time() * 1000),
            "flows": [flow.as_json() for flow in flows],
        }
        try:
            write_private(self._path, json.dumps(value))
        except OSError as error:
            # a full disk is no reason to end a copy; what is shown is written again in a second
            if not self._is_failing:
                log.warning("what `twinlog status` shows cannot be written: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def running_mirrors(config: Path | None = None) -> Iterator[RunningMirror]:
    """Mirrors of this user that run now, those of one configuration file if it is named."""
    wanted = None if config is None else str(config.resolve())
    for path in sorted(status_folder().glob("*.json")):
        try:
            value = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if _start_ticks(value["pid"]) != value["start_ticks"]:
            path.unlink(missing_ok=True)  # its process was killed
            continue
        if wanted in (None, value["config"], *value.get("more_configs", ())):
            yield RunningMirror(
                pid=value["pid"],
                config=value["config"],
                written_ms=value["written_ms"],
                flows=value["flows"],
            )


def _start_ticks(pid: int) -> int:
    """When the process started, in clock ticks since boot: a pid alone may have been used again."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    return int(stat.rpartition(")")[2].split()[19])
