"""A lane's byte budget: a bucket for each topic, filled by the driver's shares, emptied by fetches.

A fetch may bring more than is in the bucket (a batch comes whole): the debt is waited for, so that
the long run is exact and only single seconds are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twinlog.clock import Clock

BURST_S: Final = 0.25
"""A bucket holds so much time's worth at the most."""

LEAST_FETCH_BYTES: Final = 16 * 1024


class TopicBuckets:
    """What each topic may still fetch; without a budget everything may be fetched."""

    def __init__(self, clock: Clock, *, is_bound: bool) -> None:
        self._clock = clock
        self._is_bound = is_bound
        self._rates: dict[str, float] = {}
        self._left: dict[str, float] = {}
        self._filled_at = self._clock.monotonic()

    @property
    def is_bound(self) -> bool:
        """False where nothing limits."""
        return self._is_bound

    def set_rates(self, rates: Mapping[str, int]) -> None:
        """The driver's shares in bytes per second; topics that are not named may fetch nothing."""
        self.fill()
        self._rates = dict(rates)

    def fill(self) -> None:
        """Let the time since the last call count."""
        now = self._clock.monotonic()
        passed, self._filled_at = now - self._filled_at, now
        for topic, rate in self._rates.items():
            left = self._left.get(topic, 0.0) + rate * passed
            self._left[topic] = min(left, rate * BURST_S)

    def allows(self, topic: str) -> bool:
        return not self._is_bound or self._left.get(topic, 0.0) > 0

    def take(self, topic: str, size: int) -> None:
        """So many bytes were fetched."""
        self._left[topic] = self._left.get(topic, 0.0) - size

    def most(self, topic: str, unbound: int, *, partitions: int) -> int:
        """How much one fetch of one of the topic's partitions should bring at the most."""
        if not self._is_bound:
            return unbound
        share = int(self._rates.get(topic, 0.0) * BURST_S) // partitions
        return max(LEAST_FETCH_BYTES, min(unbound, share))
