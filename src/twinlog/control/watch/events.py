"""The last events of a mirror, kept in a small file so that a support bundle finds them, also after
a crash.

One file per process, in the folder of the status files; those of ended processes stay until newer
ones of the same configuration push them out.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from twinlog.control.watch.status_file import status_folder, write_status
from twinlog.private_files import FolderNotPrivate, is_running, read_private
from twinlog.shown import ShownFormatter

KEPT: Final = 300
OLD_FILES: Final = 3
"""Of ended processes, per configuration."""

SUFFIX: Final = ".events"
_PLAIN: Final = ShownFormatter("%(message)s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One log line; `time` is UTC."""

    time: str
    level: str
    message: str
    flow: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedEvent:
    """One of this process; numbers grow, and none is given twice."""

    number: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvents:
    """What one process left."""

    pid: int
    config: str
    events: tuple[Event, ...]


class EventLog(logging.Handler):
    """Keeps the newest events of this process, and writes them when they have changed."""

    def __init__(self, config: Path) -> None:
        super().__init__(logging.INFO)
        self._config = str(config.resolve())
        self._path = status_folder() / f"{os.getpid()}{SUFFIX}"
        self._events: deque[NumberedEvent] = deque(maxlen=KEPT)
        self._is_changed = False
        self._number = 0

    def since(self, number: int) -> list[NumberedEvent]:
        """Those behind that number which are still kept, the oldest first."""
        self.acquire()  # other threads log meanwhile
        numbered = list(self._events)
        self.release()
        return [one for one in numbered if one.number > number]

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        # message and traceback, as a log file has them
        text = _PLAIN.format(record)
        event = Event(
            time=at.isoformat(timespec="milliseconds"),
            level=record.levelname,
            message=text,
            flow=str(getattr(record, "flow", "")),
            code=str(getattr(record, "code", "")),
        )
        # by the clock: who continues asking another process of this address misses nothing of it,
        # whichever of them began first
        self._number = max(self._number + 1, int(record.created * 1000))
        self._events.append(NumberedEvent(number=self._number, event=event))
        self._is_changed = True

    def start(self) -> None:
        """Hear what is logged from now on."""
        self._remove_old()
        logging.getLogger().addHandler(self)

    def save(self) -> None:
        """Write the file if something came since."""
        if not self._is_changed:
            return
        self.acquire()  # other threads log meanwhile
        self._is_changed, events = False, [one.event for one in self._events]
        self.release()
        value = {
            "pid": os.getpid(),
            "config": self._config,
            "events": [asdict(event) for event in events],
        }
        try:
            write_status(self._path, json.dumps(value))
        except (OSError, FolderNotPrivate):
            # a full disk is no reason to end a copy; whoever writes the status says it
            self._is_changed = True

    def stop(self) -> None:
        """Write the rest; the file stays."""
        logging.getLogger().removeHandler(self)
        self.save()

    def _remove_old(self) -> None:
        ours = [path for path in _files() if _config_of(path) == self._config]
        for path in ours[OLD_FILES:]:
            if path.stem.isdecimal() and not is_running(int(path.stem)):
                path.unlink(missing_ok=True)


def last_events(config: Path) -> list[ProcessEvents]:
    """What mirrors of this configuration wrote, the newest process first."""
    wanted = str(config.resolve())
    found = [_read(path) for path in _files()]
    return [one for one in found if one is not None and one.config == wanted]


def remove_events(config: Path) -> None:
    """Of a configuration that is there no more."""
    for path in _files():
        if _config_of(path) == str(config.resolve()):
            path.unlink(missing_ok=True)


def _files() -> list[Path]:
    def written(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:
            return 0.0  # another mirror has just removed it

    return sorted(status_folder().glob(f"*{SUFFIX}"), key=written, reverse=True)


def _config_of(path: Path) -> str:
    found = _read(path)
    return "" if found is None else found.config


def _read(path: Path) -> ProcessEvents | None:
    try:
        value = json.loads(read_private(path))
        found = ProcessEvents(
            pid=value["pid"],
            config=value["config"],
            events=tuple(Event(**event) for event in value["events"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # of another release, or nobody's
    texts = [found.config, *(text for one in found.events for text in asdict(one).values())]
    is_whole = type(found.pid) is int and all(isinstance(text, str) for text in texts)
    return found if is_whole else None
