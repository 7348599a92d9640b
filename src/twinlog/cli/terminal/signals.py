"""Ctrl-C and SIGTERM: the first one asks for an orderly end, the second ends the process at once.
SIGHUP asks to read the configuration again, where a command can; else it is an end as well.

Nothing in a handler takes a lock: it may interrupt the very code that holds it. So a thread of its
own asks.

Ending at once is always safe for the copy (the target itself holds all state), only less polite:
whoever continues waits until this process's last requests have surely died.
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

from twinlog.cli.terminal.loudness import is_quiet

Ask = Callable[[str], object]
"""Is given the name of the signal."""

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STDERR: Final = 2


@contextmanager
def on_signals(stop: Ask, reload: Ask | None = None) -> Iterator[None]:
    """The first signal asks to `stop`, SIGHUP to `reload`; for the main thread."""
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
        # the next one must not wait for this interpreter: Python sees a signal that comes just
        # before a blocking call only after it
        for fatal in (signal.SIGINT, signal.SIGTERM):
            signal.signal(fatal, signal.SIG_DFL)
        asked.append(number)
        _thread.start_new_thread(stop, (signal.Signals(number).name,))
        # a live display that has stderr shows the state itself
        if sys.stderr is sys.__stderr__ and not quiet:
            # not print: a signal may come in the middle of one
            os.write(STDERR, b"\rstopping in order; a second signal stops at once\n")

    before = {number: signal.signal(number, on_signal) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    """False as well once the terminal has been closed, which is what SIGHUP was made for."""
    try:
        os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ is not None else -1)
    except (OSError, ValueError):
        return False
    return True
