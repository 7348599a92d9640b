"""Detects that the machine stalled, because then no time limit of seconds can be met."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

__all__ = ["Pace", "paced"]

_TICK_S: Final = 0.02


@dataclass(slots=True)
class Pace:
    """The result of `paced`."""

    longest_stall_s: float = 0.0
    """Longest time in seconds during which this process got no CPU."""


@contextmanager
def paced(ask: Callable[[], object] = lambda: None) -> Iterator[Pace]:
    """Measure stalls until the block ends. `ask` is a query of a broker; its duration also counts
    as a stall.
    """
    pace, ended = Pace(), threading.Event()

    def run() -> None:
        before = time.monotonic()
        while not ended.wait(_TICK_S):
            now = time.monotonic()
            pace.longest_stall_s = max(pace.longest_stall_s, now - before - _TICK_S)
            before = now
            ask()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield pace
    finally:
        ended.set()
        thread.join()
