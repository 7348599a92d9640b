"""Measures the seconds in which the machine ran, for tests that need a time limit."""

from __future__ import annotations

import threading
import time
from typing import Final, Self

__all__ = ["Stopwatch"]

_TICK_S: Final = 0.02
_MOST_S: Final = 2 * _TICK_S


class Stopwatch:
    """Counts seconds until its block ends. A time in which the machine stalls, or this process gets
    no CPU, counts as at most two ticks.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    @property
    def seconds(self) -> float:
        return self._seconds

    def _tick(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(_TICK_S):
            now = time.monotonic()
            self._seconds += min(now - before, _MOST_S)
            before = now

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
