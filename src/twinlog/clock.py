"""Clocks: that of deadlines between processes, and those that a driver goes by."""

from __future__ import annotations

import time
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


CLOCK: Final = Clock()
"""That of the machine."""
