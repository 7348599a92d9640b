"""Threads that must live as long as the process: the first one that dies ends it with a code.

Without this, a dead thread's work would stop while the process looks healthy from outside. If any
Twinlog thread dies for any reason, the supervisor raises the error, the process ends with exit code
1, and service managers restart it. Until then `/healthz` reports unhealthy.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from twinlog.errors import TwinlogError

OURS: Final = ("twinlog-", "group-")
"""Prefixes of the names of Twinlog's threads; libraries handle their own."""


class ThreadDied(TwinlogError):
    """A thread of this process ended with an uncaught error."""

    code = "THREAD_DIED"


class Vital:
    """Detects threads that die."""

    def __init__(self) -> None:
        self.dead: str | None = None
        """The first thread that died, and its error."""

    @contextmanager
    def guarding(self, fail: Callable[[BaseException], None]) -> Iterator[None]:
        """Call `fail` with the error in a thread that dies during this block."""
        before = threading.excepthook

        def died(arguments: threading.ExceptHookArgs) -> None:
            name = "" if arguments.thread is None else arguments.thread.name
            if name.startswith(OURS):
                of = f"{arguments.exc_type.__name__}: {arguments.exc_value}".rstrip(": ")
                self.dead = self.dead or f"thread {name} died of {of}"
                fail(
                    ThreadDied(
                        f"thread {name} died of {of}; this process ends so that it is restarted: "
                        "report it with the traceback"
                    )
                )
            before(arguments)

        threading.excepthook = died
        try:
            yield
        finally:
            threading.excepthook = before


# Priority of driver threads below lanes, for when all cores are busy.


def lower_priority(nice: int) -> None:
    """Lower the priority of this thread and those that it starts. Only Linux has a priority per
    thread, see sched(7). The main thread is left alone, because everything that it starts would
    inherit the priority.
    """
    if sys.platform == "linux" and threading.current_thread() is not threading.main_thread():
        thread = threading.get_native_id()
        wanted = max(nice, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, wanted)
