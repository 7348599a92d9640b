"""Finds the number of requests in flight that fills a long link, by response times.

A request that waits for nothing is answered after one round trip. If requests in flight fill the
link, they wait for each other, and responses take longer. So the number in flight grows by one with
each response that took less than two round trips, and shrinks while they take more than three: more
in flight would only wait in front of the link, and would delay what other partitions send there. It
shrinks slowly, because its effect is seen only some round trips later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FAR_S: Final = 0.01
"""Shortest round trip that counts as long. Shorter ones do not slow down a copy."""

SLOW_ONES: Final = 8
"""Number of slow responses after which one request less is in flight."""


@dataclass(slots=True)
class RequestsInFlight:
    """A number of requests in flight, between `least` and `most`."""

    least: int
    most: int
    size: int = 0
    _slow: int = 0

    def __post_init__(self) -> None:
        self.size = self.least

    def adapt(self, took_s: float, trip_s: float, *, is_full: bool) -> None:
        """Adapt the number to a response that took this long. `is_full`: the maximum
        was in flight.
        """
        if is_full and took_s < 2 * trip_s:
            self.size = min(self.most, self.size + 1)
        elif took_s > 3 * trip_s:
            self._slow += 1
            if self._slow % SLOW_ONES == 0:
                self.size = max(self.least, self.size - 1)
