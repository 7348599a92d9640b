"""Threads of ours that must live as long as the process: the first that dies ends it with a code.

A thread that dies takes its work along and leaves the process standing, and whoever watches that
process from outside sees nothing wrong. So no thread of ours may die unnoticed, whichever it is and
whatever it died of: the supervisor raises what happened, the process ends with exit code 1, and
service managers start it again. Until it has ended, `/healthz` says no.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from twinlog.errors import TwinlogError

OURS: Final = ("twinlog-", "group-")
"""How the names of our threads begin; libraries look after theirs."""


class ThreadDied(TwinlogError):
    """A thread of this process ended with an error that nobody caught."""

    code = "THREAD_DIED"


class Vital:
    """Knows whether all of them live."""

    def __init__(self) -> None:
        self.dead: str | None = None
        """Which one died first, and of what."""

    @contextmanager
    def guarding(self, fail: Callable[[BaseException], None]) -> Iterator[None]:
        """In this block `fail` gets what a thread died of, from that thread."""
        before = threading.excepthook

        def died(arguments: threading.ExceptHookArgs) -> None:
            name = "" if arguments.thread is None else arguments.thread.name
            if name.startswith(OURS):
                of = f"{arguments.exc_type.__name__}: {arguments.exc_value}".rstrip(": ")
                self.dead = self.dead or f"thread {name} died of {of}"
                fail(
                    ThreadDied(
                        f"thread {name} died of {of}; this process ends, to be started again: "
                        "report it with the traceback"
                    )
                )
            before(arguments)

        threading.excepthook = died
        try:
            yield
        finally:
            threading.excepthook = before
