"""Commands to a running process: to reload its configuration, and to stop.

A command is a value with its author and reason. Any thread can queue a command; the supervisor
executes it in its own thread. The outcome is the list of changes, which is empty if there is
nothing to do. Signals, the watch of the configuration's files, and the demo queue commands here.

An operator's intent for a flow (pause, resume, limit, release, promote) is not a command. It is
stored as a row of the flow's state, which the flow's leader follows, so it outlives every process.
Like a command, it has an author, a reason and a list of changes. A repeated intent is written only
once (`client.steering`).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from twinlog.errors import Disconnected, TwinlogError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCommand:
    who: str
    reason: str = ""


class Reload(ProcessCommand):
    """Read the configuration again; only flows with changes restart."""


class Stop(ProcessCommand):
    """Shut down cleanly: drain lanes, close generations, leave groups."""


@dataclass(frozen=True, slots=True)
class QueuedCommand:
    """A command, and the future of its result."""

    command: ProcessCommand
    outcome: Future[tuple[str, ...]] = field(default_factory=Future)
    """A line for each change; empty if there was nothing to do."""

    def answer(self, *changes: str) -> None:
        self.outcome.set_result(changes)

    def refuse(self, error: TwinlogError) -> None:
        self.outcome.set_exception(error)


class CommandPort:
    """Queue of commands to one process. It exists before the configuration is read, and until the
    process has ended.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        """Set when a `Stop` is queued."""
        self._lock = threading.Lock()
        self._asked: queue.SimpleQueue[QueuedCommand] = queue.SimpleQueue()
        self._is_closed = False

    def put(self, command: ProcessCommand) -> Future[tuple[str, ...]]:
        """Queue a command. Thread-safe, but not for signal handlers, because it acquires a lock.

        Return a future of the changes, or of the TwinlogError because of which nothing was done.
        """
        why = f": {command.reason}" if command.reason else ""
        log.info("%s, requested by %s%s", type(command).__name__.lower(), command.who, why)
        asked = QueuedCommand(command)
        if isinstance(command, Stop):
            self.stopping.set()
        with self._lock:
            self._asked.put(asked)
            if self._is_closed:
                self._answer_all()
        return asked.outcome

    def pop_all(self) -> Iterator[QueuedCommand]:
        """Yield the commands queued since the last call. The supervisor sets their results."""
        while True:
            try:
                yield self._asked.get_nowait()
            except queue.Empty:
                return

    def close(self) -> None:
        """Reject all queued and later commands except Stop, because the flows have ended."""
        with self._lock:
            self._is_closed = True
            self._answer_all()

    def _answer_all(self) -> None:
        for asked in self.pop_all():
            if isinstance(asked.command, Stop):
                asked.answer()
            else:
                asked.refuse(shutdown_error())


def shutdown_error() -> Disconnected:
    """Return the error for commands to a process that is shutting down."""
    return Disconnected("the process is shutting down, and accepts no more commands")
