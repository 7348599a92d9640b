"""Clocks and pauses.

Three clocks, for three questions:

| clock       | question                                             | suspended machine          |
| ----------- | ---------------------------------------------------- | -------------------------- |
| `monotonic` | has this process waited long enough?                 | stops                      |
| `boot`      | may another process already act as if this were gone? | continues (CLOCK_BOOTTIME) |
| `wall_ms`   | how old is a record, and what do people see?         | may jump in any direction  |

The answer to the second question must never be wrong, or records are duplicated. A lane stops by
itself when its driver has been silent for some seconds, and a leader stops leading when its session
has timed out. Another process relies on this and takes over. So if a process was suspended, alone
or with its machine, these deadlines must have expired when it continues. `time.monotonic` stops
while a machine is suspended, so the deadline would not have expired, and the process would send one
more batch. `time.time` is not used either, because NTP or an operator may set it back.

No deadline compares clocks of two machines. Each side measures silence by its own clock. If the
receipt of a message restarts the other side's timeout, the sender starts its own timeout when the
message is *sent*, which is earlier.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final


def boot_clock() -> float:
    """Return seconds since boot, including the time for which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """The three clocks. Tests replace it by a clock that they advance."""

    def monotonic(self) -> float:
        """Return monotonic seconds, for waits within this process."""
        return time.monotonic()

    def boot(self) -> float:
        """Return seconds since boot, for deadlines on which other processes rely."""
        return boot_clock()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, for people and for comparisons with record timestamps."""
        return int(time.time() * 1000)


@dataclass(slots=True, kw_only=True)
class GrowingPause:
    """Pauses between consecutive failures: each is twice the previous one, up to `most_s`.

    The pauses have no jitter, because only one caller uses them. Requests to a cluster use
    `cluster.net.retry`, which has jitter.
    """

    first_s: float
    most_s: float
    failures: int = 0
    """Number of consecutive failures."""
    _next_s: float = 0.0

    def next_s(self, most_s: float | None = None) -> float:
        """Count a failure, and return the pause after it in s. `most_s` limits the next pause."""
        pause_s = self._next_s or self.first_s
        self.failures += 1
        self._next_s = min(pause_s * 2, self.most_s if most_s is None else most_s)
        return pause_s

    def reset(self) -> None:
        """Reset after a success: the next pause is `first_s` again."""
        self.failures, self._next_s = 0, 0.0


@dataclass(slots=True, kw_only=True)
class Attempts(GrowingPause):
    """Schedules the next attempt after each failure."""

    clock: Clock
    _due_at: float = 0.0

    @property
    def is_due(self) -> bool:
        return self.clock.monotonic() >= self._due_at

    def on_failure(self) -> float:
        """Count a failure. Return the seconds until the next attempt."""
        pause_s = self.next_s()
        self._due_at = self.clock.monotonic() + pause_s
        return pause_s


CLOCK: Final = Clock()
"""The clocks of this machine."""
