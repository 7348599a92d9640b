"""Clocks and pauses.

Three clocks, for three questions:

| clock       | question                                             | suspended machine          |
| ----------- | ---------------------------------------------------- | -------------------------- |
| `monotonic` | has this process waited long enough?                 | stops                      |
| `boot`      | may another process already act as if this were gone? | continues (CLOCK_BOOTTIME) |
| `wall_ms`   | how old is a record, and what do people see?         | may jump in any direction  |

The second question decides about exactly once. A lane stops by itself when its driver has been
silent for some seconds, and a leader stops leading when its session has ended. Another process
relies on that and takes over. A process that was suspended, alone or with its machine, must
therefore find these deadlines expired when it continues. `time.monotonic` stops while a machine is
suspended: no time would seem to have passed, and the process would send one more batch.
`time.time` was rejected as well, because NTP or an operator may set it back.

No deadline compares clocks of two machines. Each side measures silence by its own clock, from a
moment that is early enough: from when a message was *sent*, if its receipt restarts the other
side's waiting time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final


def boot_clock() -> float:
    """Return seconds since boot, including the time for which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """The three clocks. Tests replace it by one that they move."""

    def monotonic(self) -> float:
        """Return seconds for waits within this process."""
        return time.monotonic()

    def boot(self) -> float:
        """Return seconds for deadlines on which other processes rely."""
        return boot_clock()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, for people and for comparisons with record timestamps."""
        return int(time.time() * 1000)


@dataclass(slots=True, kw_only=True)
class GrowingPause:
    """Pauses between consecutive failures: each is twice the previous one, up to `most_s`.

    They have no jitter, because only one caller waits for each. Requests to a cluster use
    `cluster.net.retry`, which has jitter.
    """

    first_s: float
    most_s: float
    failures: int = 0
    """Number of consecutive failures."""
    _next_s: float = 0.0

    def next_s(self, most_s: float | None = None) -> float:
        """Count a failure, and return the pause after it. `most_s` limits the next pauses."""
        pause_s = self._next_s or self.first_s
        self.failures += 1
        self._next_s = min(pause_s * 2, self.most_s if most_s is None else most_s)
        return pause_s

    def reset(self) -> None:
        """Start over after a success."""
        self.failures, self._next_s = 0, 0.0


CLOCK: Final = Clock()
"""The machine's clock."""
