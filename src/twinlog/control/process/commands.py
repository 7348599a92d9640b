"""What may be asked of a running process: to reload its configuration, and to stop.

A command is a value that says who asks and why. It may be put from any thread; the supervisor
carries it out in its own, and its outcome is a value as well: what changes, or nothing where it is
so already. Signals, the watch of the configuration's files and the demo put theirs here.

What people want of a flow (pause, resume, limit, release, promote) outlives every process. It is
asked in the same way (`client.steering`: who, why, answered with the changes, the same twice is
written once), but kept as a row of the flow's state, which whoever leads it follows.
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
    """What is asked of the process."""

    who: str
    reason: str = ""


class Reload(ProcessCommand):
    """Read the configuration again; only flows that differ restart."""


class Stop(ProcessCommand):
    """End in order: lanes drain, ends are noted, groups are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a command."""

    changes: tuple[str, ...] = ()
    """A line for each; none: it is so already."""


@dataclass(frozen=True, slots=True)
class QueuedCommand:
    """A command, and where its outcome goes."""

    command: ProcessCommand
    outcome: Future[Outcome] = field(default_factory=Future)

    def answer(self, *changes: str) -> None:
        self.outcome.set_result(Outcome(changes=changes))

    def refuse(self, error: TwinlogError) -> None:
        self.outcome.set_exception(error)


class CommandPort:
    """Of one process, from before its configuration is read until it has ended."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        """Set once a `Stop` was put."""
        self._lock = threading.Lock()
        self._asked: queue.SimpleQueue[QueuedCommand] = queue.SimpleQueue()
        self._is_closed = False

    def put(self, command: ProcessCommand) -> Future[Outcome]:
        """From any thread, but not from a signal's handler: it takes a lock.

        The future has the outcome, or the TwinlogError for which nothing was done.
        """
        why = f": {command.reason}" if command.reason else ""
        log.info("%s, asked by %s%s", type(command).__name__.lower(), command.who, why)
        asked = QueuedCommand(command)
        if isinstance(command, Stop):
            self.stopping.set()
        with self._lock:
            self._asked.put(asked)
            if self._is_closed:
                self._answer_all()
        return asked.outcome

    def take(self) -> Iterator[QueuedCommand]:
        """What was put since; for the supervisor, which answers each."""
        while True:
            try:
                yield self._asked.get_nowait()
            except queue.Empty:
                return

    def close(self) -> None:
        """The flows have ended: what is put from now on is answered at once."""
        with self._lock:
            self._is_closed = True
            self._answer_all()

    def _answer_all(self) -> None:
        for asked in self.take():
            if isinstance(asked.command, Stop):
                asked.answer()
            else:
                asked.refuse(ending())


def ending() -> Disconnected:
    """Why a process does nothing any more that it is asked."""
    return Disconnected("the process is ending, and does nothing more that it is asked")
