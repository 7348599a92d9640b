"""Handles Ctrl-C and SIGTERM: the first signal requests a clean shutdown, the second one ends the
process immediately. SIGHUP reloads the configuration if the command can reload it. Otherwise SIGHUP
also requests a clean shutdown. It remains ignored if it was ignored at the start, as under nohup.

Handlers must not acquire locks, because they may interrupt the code that holds the lock. So a
handler starts a thread that makes the request.

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
"""Called with the name of the received signal, such as `SIGTERM`."""

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STDERR: Final = 2


@contextmanager
def on_signals(stop: Ask, reload: Ask | None = None) -> Iterator[None]:
    """Within the block, call `stop` in a new thread at the first signal. If `reload` is given, call
    it at SIGHUP instead. Must be entered in the main thread.
    """
    asked = list[int]()
    had_terminal, quiet = _has_terminal(), is_quiet()
    # nohup ignores SIGHUP, so that the command continues when its terminal is closed
    has_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    def on_signal(number: int, _frame: FrameType | None) -> None:
        is_reload = number == signal.SIGHUP and (has_nohup or had_terminal == _has_terminal())
        if is_reload and reload is not None:
            _thread.start_new_thread(reload, (signal.Signals(number).name,))
            return
        if asked:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        # the second signal must not need the interpreter: if a signal arrives just before a
        # blocking call, Python runs the handler only after that call
        for fatal in (signal.SIGINT, signal.SIGTERM):
            signal.signal(fatal, signal.SIG_DFL)
        asked.append(number)
        _thread.start_new_thread(stop, (signal.Signals(number).name,))
        # no line if a live display has replaced stderr, because the display shows the state
        if sys.stderr is sys.__stderr__ and not quiet:
            # not `print`, which is not reentrant and may be what the signal has interrupted
            os.write(STDERR, b"\rshutting down; a second signal stops immediately\n")

    numbers = ENDING[:-1] if has_nohup and reload is None else ENDING
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    """Return True if stdin is an open terminal. SIGHUP is also sent when a terminal is closed."""
    try:
        os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ is not None else -1)
    except (OSError, ValueError):
        return False
    return True
