"""Clocks: that of deadlines between processes, and those that a driver goes by; and pauses."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final


def boot_clock() -> float:
    """Seconds since boot that also count while the machine sleeps (CLOCK_BOOTTIME).

    A process that was suspended, with its machine or alone, must find its deadlines expired.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """What time it is, asked three ways; one that a test moves takes its place."""

    def monotonic(self) -> float:
        """Seconds; for what this process waits for."""
        return time.monotonic()

    def boot(self) -> float:
        """Seconds; for what lies between this process and another."""
        return boot_clock()

    def wall_ms(self) -> int:
        """Milliseconds since 1970; for people, and beside timestamps of records."""
        return int(time.time() * 1000)


@dataclass(slots=True, kw_only=True)
class GrowingPause:
    """Pauses of one thing that fails again and again: each is twice the one before, up to `most_s`.

    Without jitter: for what nobody else waits for at the same moment (`cluster.net.retry` has it).
    """

    first_s: float
    most_s: float
    failures: int = 0
    """In a row."""
    _next_s: float = 0.0

    def next_s(self, most_s: float | None = None) -> float:
        """It failed once more: how long to wait. `most_s`: the bound of the pauses that follow."""
        pause_s = self._next_s or self.first_s
        self.failures += 1
        self._next_s = min(pause_s * 2, self.most_s if most_s is None else most_s)
        return pause_s

    def reset(self) -> None:
        """It works."""
        self.failures, self._next_s = 0, 0.0


CLOCK: Final = Clock()
"""That of the machine."""
