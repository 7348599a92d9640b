"""Clocks for deadlines within and between processes, and growing pauses."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final


def boot_clock() -> float:
    """Return seconds since boot, including the time the machine was suspended (CLOCK_BOOTTIME).

    A process that was suspended, alone or with its machine, must find its deadlines expired.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """Three clocks. Tests replace it by one that they move."""

    def monotonic(self) -> float:
        """Return seconds, for waits within this process."""
        return time.monotonic()

    def boot(self) -> float:
        """Return seconds, for deadlines between processes."""
        return boot_clock()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, for people and for comparison with record timestamps."""
        return int(time.time() * 1000)


@dataclass(slots=True, kw_only=True)
class GrowingPause:
    """Pauses between repeated failures: each is twice the previous one, up to `most_s`.

    There is no jitter, because nothing else waits at the same moment (`cluster.net.retry` has it).
    """

    first_s: float
    most_s: float
    failures: int = 0
    """Number of consecutive failures."""
    _next_s: float = 0.0

    def next_s(self, most_s: float | None = None) -> float:
        """Count a failure and return how long to wait. `most_s`: limit of the following pauses."""
        pause_s = self._next_s or self.first_s
        self.failures += 1
        self._next_s = min(pause_s * 2, self.most_s if most_s is None else most_s)
        return pause_s

    def reset(self) -> None:
        """Start over after a success."""
        self.failures, self._next_s = 0, 0.0


CLOCK: Final = Clock()
"""The machine's clock."""
