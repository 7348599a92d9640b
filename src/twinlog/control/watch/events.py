"""The last events of a mirror, kept in a small file so that a support bundle contains them even
after a crash.

There is one file per process, in the folder of the status files. Files of ended processes are kept
until newer ones of the same configuration replace them.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from twinlog.control.watch.status_file import status_folder, write_status
from twinlog.errors import EnvironmentMissing
from twinlog.folders import FolderNotPrivate, is_running, read_private
from twinlog.mirror.state.published import (
    LONGEST_MESSAGE,
    MOST_EVENTS,
    PublishedEvent,
    PublishedEvents,
    within_bounds,
)
from twinlog.shown import ShownFormatter, without_secrets

KEPT: Final = 300
KEPT_OF_OTHERS: Final = 2000
"""Maximum number of stored events of other processes. The first read may add a row per flow."""
OLD_FILES: Final = 3
"""Number of files of ended processes that are kept per configuration."""

MOST_PROCESSES: Final = 10_000
"""Maximum number of pairs of a run and a flow whose newest event number is remembered."""

SUFFIX: Final = ".events"
_PLAIN: Final = ShownFormatter("%(message)s")


class Event(Struct, frozen=True, kw_only=True):
    """One log line; `time` is UTC."""

    number: int = 0
    """Number that is unique and rises in this process. Files of earlier releases lack it."""
    time: str
    level: str
    message: str
    flow: str = ""
    code: str = ""
    topic: str = ""
    """Source topic. Files of earlier releases lack this field and the following ones."""
    partition: int | None = None
    who: str = ""
    """Host and process that logged the event."""
    person: str = ""
    """The user whose command caused the event, if any."""
    is_published: bool = False
    """True if other hosts get the event: an unusual event of this process about a flow."""

    @property
    def at_ms(self) -> int:
        return round(datetime.fromisoformat(self.time).timestamp() * 1000)


class ProcessEvents(Struct, frozen=True, kw_only=True):
    """The events that one process wrote."""

    pid: int
    config: str
    events: tuple[Event, ...]


class EventLog(logging.Handler):
    """Stores the newest events, and writes the events of this process to its file."""

    def __init__(self, config: Path) -> None:
        super().__init__(logging.INFO)
        self._config = str(config.resolve())
        self._path = status_folder() / f"{os.getpid()}{SUFFIX}"
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._heard: deque[Event] = deque(maxlen=KEPT_OF_OTHERS)
        """Events of other processes, numbered in order of arrival."""
        self._heard_up_to: dict[tuple[str, str, str], int] = {}
        """Number of the newest event that was added, by process, run and flow."""
        self._is_changed = False
        self._number = 0
        self._host, self._pid = socket.gethostname(), os.getpid()
        # A random ID of this run, because host, pid and start time may be those of another run. A
        # restarted container has the host and pid of its predecessor. Containers on the host's
        # network share the host name. The clock may be wrong.
        self._run = secrets.token_hex(8)

    @property
    def who(self) -> str:
        """Return this host and process as text."""
        return f"{self._host} (process {self._pid})"

    def of_flow(self, flow: str) -> PublishedEvents:
        """Return the newest events of this process about the flow, for other hosts."""
        self.acquire()  # other threads log at the same time
        published = [event for event in self._events if event.flow == flow and event.is_published]
        self.release()
        events = within_bounds(map(_published, published[-MOST_EVENTS:]))
        return PublishedEvents(
            flow=flow, host=self._host, pid=self._pid, events=events, run=self._run
        )

    def add_published(self, published: Iterable[PublishedEvents]) -> None:
        """Add events of other processes, each once.

        New events are recognized by their numbers. Numbers rise only within a run of a process:
        they begin at the clock time, which may have been far ahead in an earlier run. So each run
        is tracked separately, also in these cases:

        - A process dies right after writing its row: the row is added, and hides no event of the
          next run.
        - A process still writes although it was replaced, or another process has the same host and
          pid: the events of both processes are added.
        - Rows of an earlier release do not name a run: they are tracked by host and pid, as that
          release does. Such a row is never regarded as this process's own, and hides no event of a
          named run.
        - There are more runs and flows than MOST_PROCESSES: those without news for longest are
          forgotten. Their events are added again if their rows are still read.
        """
        self.acquire()
        try:
            fresh = [(event, batch) for batch in published for event in self._new_events(batch)]
            # sorted by time, so that the newest events are kept, whichever flow they belong to
            for event, batch in sorted(fresh, key=lambda each: each[0].at_ms):
                self._heard.append(_event_of(batch, event, self._next_number(time.time())))
        finally:
            # release the lock even if rows are malformed, because otherwise every logging thread
            # would hang
            self.release()

    def _new_events(self, published: PublishedEvents) -> Iterator[PublishedEvent]:
        if published.run == self._run:
            return
        key = (published.where, published.run, published.flow)
        newest = self._heard_up_to.pop(key, 0)
        for event in published.events:
            if event.number > newest:
                newest = event.number
                yield event
        self._heard_up_to[key] = newest
        if len(self._heard_up_to) > MOST_PROCESSES:
            del self._heard_up_to[next(iter(self._heard_up_to))]

    def _next_number(self, at: float) -> int:
        # Numbers follow the clock, so that a client that moves to another process of this address
        # misses no event, whichever process started first.
        self._number = max(self._number + 1, int(at * 1000))
        return self._number

    def since(self, number: int) -> list[Event]:
        """Return the events after `number` that are still kept, the oldest first."""
        self.acquire()  # other threads log at the same time
        numbered = [*self._events, *self._heard]
        self.release()
        wanted = (event for event in numbered if event.number > number)
        return sorted(wanted, key=lambda event: event.number)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # message and traceback as in a log file, without secrets
            text = _PLAIN.format(record)
        except Exception:  # noqa: BLE001 (as in logging's own handlers: the caller continues)
            self.handleError(record)
            return
        event = Event(
            number=self._next_number(record.created),
            time=_in_iso(record.created),
            level=record.levelname,
            message=text,
            flow=str(getattr(record, "flow", "")),
            code=str(getattr(record, "code", "")),
            topic=str(getattr(record, "topic", "")),
            partition=getattr(record, "partition", None),
            who=self.who,
            person=without_secrets(str(getattr(record, "person", ""))),
        )
        # events of a flow that are warnings, have a code, or are news are published for other hosts
        is_published = bool(event.flow) and (
            record.levelno >= logging.WARNING or bool(event.code) or hasattr(record, "news")
        )
        self._events.append(replace(event, is_published=is_published))
        self._is_changed = True

    def start(self) -> None:
        """Record everything that is logged from now on."""
        self._remove_old()
        logging.getLogger().addHandler(self)

    def _remove_old(self) -> None:
        own_files = [path for path in _files() if _config_of(path) == self._config]
        for path in own_files[OLD_FILES:]:
            if path.stem.isdecimal() and not is_running(int(path.stem)):
                path.unlink(missing_ok=True)

    def save(self) -> None:
        """Write the file if there are new events."""
        if not self._is_changed:
            return
        self.acquire()  # other threads log at the same time
        self._is_changed, events = False, tuple(self._events)
        self.release()
        value = ProcessEvents(pid=os.getpid(), config=self._config, events=events)
        try:
            write_status(self._path, json.dumps(to_builtins(value)))
        except (OSError, FolderNotPrivate):
            # a full disk must not stop replication; the writer of the status reports it
            self._is_changed = True

    def stop(self) -> None:
        """Write the remaining events. The file is kept."""
        logging.getLogger().removeHandler(self)
        self.save()


def last_events(config: Path) -> list[ProcessEvents]:
    """Return the events of mirrors of this configuration, the newest process first."""
    wanted = str(config.resolve())
    read = [_read(path) for path in _files()]
    return [events for events in read if events is not None and events.config == wanted]


def is_local_mirror(pid: int) -> bool:
    """Return True if a mirror of this user that ran in this container, or outside of containers on
    this host, had this pid. The host name does not show this, because a container may have the
    host's name.
    """
    try:
        return (status_folder() / f"{pid}{SUFFIX}").exists()
    except (OSError, EnvironmentMissing, FolderNotPrivate):
        return False


def remove_events(config: Path) -> None:
    """Remove the events of a configuration that no longer exists."""
    for path in _files():
        if _config_of(path) == str(config.resolve()):
            path.unlink(missing_ok=True)


def _in_iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _published(event: Event) -> PublishedEvent:
    return PublishedEvent(
        number=event.number,
        at_ms=event.at_ms,
        level=event.level,
        message=event.message.partition("\n")[0][:LONGEST_MESSAGE],  # without a traceback
        code=event.code,
        topic=event.topic,
        partition=event.partition,
        person=event.person[:LONGEST_MESSAGE],
    )


def _event_of(published: PublishedEvents, event: PublishedEvent, number: int) -> Event:
    return Event(
        number=number,
        time=_in_iso(event.at_ms / 1000),
        level=event.level,
        message=event.message,
        flow=published.flow,
        code=event.code,
        topic=event.topic,
        partition=event.partition,
        who=published.where,
        person=event.person,
    )


def _files() -> list[Path]:
    def written(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:
            return 0.0  # another mirror has just removed the file

    return sorted(status_folder().glob(f"*{SUFFIX}"), key=written, reverse=True)


def _config_of(path: Path) -> str:
    content = _read(path)
    return "" if content is None else content.config


def _read(path: Path) -> ProcessEvents | None:
    try:
        return convert(json.loads(read_private(path)), ProcessEvents)
    except (OSError, ValueError, RecursionError):
        return None  # written by another release, or malformed
