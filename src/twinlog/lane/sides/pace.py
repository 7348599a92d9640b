"""A lane's byte budget: one bucket per topic, filled by the driver's shares and emptied by fetches.

A fetch may return more than is in the bucket, because batches are returned whole. The debt delays
the next fetch, so the average rate is exact, although single seconds are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twinlog.clock import Clock

BURST_S: Final = 0.25
"""Capacity of a bucket, as the time in seconds in which it is filled."""

LEAST_FETCH_BYTES: Final = 16 * 1024


class TopicBuckets:
    """The remaining budget per topic. Without a budget, fetches are unlimited."""

    def __init__(self, clock: Clock, *, has_budget: bool) -> None:
        self._clock = clock
        self.has_budget = has_budget
        self._rates: dict[str, float] = {}
        self._left: dict[str, float] = {}
        self._filled_at = self._clock.monotonic()

    def set_rates(self, rates: Mapping[str, int]) -> None:
        """Set this lane's shares of the limit by topic, in bytes per second. Topics without a share
        fetch nothing.
        """
        self.fill()
        self._rates = dict(rates)

    def fill(self) -> None:
        """Fill the buckets for the time since the last call."""
        now = self._clock.monotonic()
        passed, self._filled_at = now - self._filled_at, now
        for topic, rate in self._rates.items():
            left = self._left.get(topic, 0.0) + rate * passed
            self._left[topic] = min(left, rate * BURST_S)

    def allows(self, topic: str) -> bool:
        return not self.has_budget or self._left.get(topic, 0.0) > 0

    def charge(self, topic: str, size: int) -> None:
        """Subtract fetched bytes from a topic's bucket."""
        self._left[topic] = self._left.get(topic, 0.0) - size

    def max_fetch_bytes(self, topic: str, unbound: int, *, partitions: int) -> int:
        """Return the maximum bytes per fetch and partition of this topic, or `unbound` without a
        budget. `partitions`: number of the topic's partitions on this lane.
        """
        if not self.has_budget:
            return unbound
        share = int(self._rates.get(topic, 0.0) * BURST_S) // partitions
        return max(LEAST_FETCH_BYTES, min(unbound, share))
