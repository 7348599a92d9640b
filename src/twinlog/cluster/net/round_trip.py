"""Finds the number of requests in flight that fills a long link, by response times.

A request that waits for no other request is answered after one round trip. If the requests in
flight fill the link, they wait for each other, and responses take longer. So the number in flight
grows by one with each response that took less than two round trips. It shrinks while responses take
more than three, because additional requests would only wait in front of the link and delay requests
of other partitions. The number shrinks slowly, because a change takes effect only some round trips
later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FAR_S: Final = 0.01
"""Shortest round trip that counts as long, in seconds. Shorter ones do not slow down a copy."""

SLOW_ONES: Final = 8
"""Number of slow responses after which the number of requests in flight shrinks by one."""


@dataclass(slots=True)
class RequestsInFlight:
    """The maximum number of requests in flight, `size`, which adapts between `least` and `most`."""

    least: int
    most: int
    size: int = 0
    _slow: int = 0

    def __post_init__(self) -> None:
        self.size = self.least

    def adapt(self, took_s: float, trip_s: float, *, is_full: bool) -> None:
        """Adapt `size` to a response. `took_s` is its response time, `trip_s` a round trip, and
        `is_full` is True if `size` requests were in flight.
        """
        if is_full and took_s < 2 * trip_s:
            self.size = min(self.most, self.size + 1)
        elif took_s > 3 * trip_s:
            self._slow += 1
            if self._slow % SLOW_ONES == 0:
                self.size = max(self.least, self.size - 1)
