"""How long records were on their way, summed up batch by batch: the numbers behind the latency and
age series of MM2.

A batch counts once, with its newest timestamp: records are not decoded, so that of every single one
is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Times in ms of the batches of one interval; all 0 when there was none."""

    count: int = 0
    total_ms: int = 0
    least_ms: int = 0
    most_ms: int = 0
    last_ms: int = 0


NO_TIMINGS = Timings()


class TimingSum:
    """Adds up one interval."""

    __slots__ = ("_count", "_last", "_least", "_most", "_total")

    def __init__(self) -> None:
        self._count = self._total = self._least = self._most = self._last = 0

    def add(self, now_ms: int, timestamp_ms: int) -> None:
        """A batch that carries this timestamp got so far now."""
        if timestamp_ms == NO_TIMESTAMP:
            return
        passed = now_ms - timestamp_ms  # below 0 when the producer's clock is ahead: as in MM2
        if not self._count or passed < self._least:
            self._least = passed
        if not self._count or passed > self._most:
            self._most = passed
        self._count += 1
        self._total += passed
        self._last = passed

    def take(self) -> Timings:
        """What was added since the last call."""
        if not self._count:
            return NO_TIMINGS
        out = Timings(
            count=self._count,
            total_ms=self._total,
            least_ms=self._least,
            most_ms=self._most,
            last_ms=self._last,
        )
        self._count = self._total = 0
        return out
