"""Ctrl-C and SIGTERM: the first signal requests an orderly shutdown, the second one ends the
process immediately. SIGHUP reloads the configuration if the command supports it, else it shuts down
as well.

Handlers take no locks, because a handler may interrupt the code that holds the lock. Requests are
made in a new thread instead.

Ending immediately is always safe for the copy, because all state is on the target. The only cost is
that the next leader waits until the last requests of this process have expired.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from twinlog.cli.terminal.output import is_quiet

Ask = Callable[[str], object]
"""Called with the name of the signal."""

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STDERR: Final = 2


@contextmanager
def on_signals(stop: Ask, reload: Ask | None = None) -> Iterator[None]:
    """Call `stop` at the first signal, and `reload` at SIGHUP; for the main thread only."""
    asked = list[int]()
    had_terminal, quiet = _has_terminal(), is_quiet()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and reload is not None and had_terminal == _has_terminal():
            _thread.start_new_thread(reload, (signal.Signals(number).name,))
            return
        if asked:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        # the default action must work without the interpreter: Python handles a signal that arrives
        # just before a blocking call only after that call
        for fatal in (signal.SIGINT, signal.SIGTERM):
            signal.signal(fatal, signal.SIG_DFL)
        asked.append(number)
        _thread.start_new_thread(stop, (signal.Signals(number).name,))
        # a live display that replaces stderr shows the state itself
        if sys.stderr is sys.__stderr__ and not quiet:
            # print is not reentrant, and a signal may interrupt one
            os.write(STDERR, b"\rshutting down; a second signal stops immediately\n")

    before = {number: signal.signal(number, on_signal) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    """Return False if there is no terminal, or if it was closed, which sends SIGHUP."""
    try:
        os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ is not None else -1)
    except (OSError, ValueError):
        return False
    return True
