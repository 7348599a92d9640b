"""The clock of deadlines between processes."""

from __future__ import annotations

import time


def boot_clock() -> float:
    """Seconds since boot that also count while the machine sleeps (CLOCK_BOOTTIME).

    A process that was suspended, with its machine or alone, must find its deadlines expired.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
