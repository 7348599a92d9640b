"""How long records were on their way, summed up batch by batch: the numbers behind the latency and
age series of MM2.

A batch counts once, with its newest timestamp: records are not decoded, so that of every single one
is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Times in ms of the batches of one interval; all 0 when there was none."""

    count: int = 0
    total_ms: int = 0
    least_ms: int = 0
    most_ms: int = 0
    last_ms: int = 0
    spread: tuple[tuple[int, int], ...] = ()
    """How many fell into which bucket of `bucket_of`; the sum of the counts is `count`."""


NO_TIMINGS = Timings()

SMALL_MS: Final = 8
"""Below, each millisecond has a bucket."""
OCTAVE: Final = 4
"""Buckets between a power of two and the next: an edge is a quarter off at most."""


def bucket_of(passed_ms: int) -> int:
    """The bucket of a time; one below 0 is in the first."""
    if passed_ms < SMALL_MS:
        return max(0, passed_ms)
    shift = passed_ms.bit_length() - 3
    return shift * OCTAVE + (passed_ms >> shift)


def upper_ms(bucket: int) -> int:
    """The longest time that falls into it."""
    following = bucket + 1
    if following < SMALL_MS:
        return bucket
    shift = following // OCTAVE - 1
    return ((OCTAVE + following % OCTAVE) << shift) - 1


class TimingSum:
    """Adds up one interval."""

    __slots__ = ("_count", "_last", "_least", "_most", "_spread", "_total")

    def __init__(self) -> None:
        self._count = self._total = self._least = self._most = self._last = 0
        self._spread: dict[int, int] = {}

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
        bucket = bucket_of(passed)
        self._spread[bucket] = self._spread.get(bucket, 0) + 1

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
            spread=tuple(self._spread.items()),
        )
        self._count = self._total = 0
        self._spread = {}
        return out
