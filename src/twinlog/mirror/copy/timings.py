"""Sums up latencies and ages of records, batch by batch, for metrics that MirrorMaker 2 has, too.

A batch counts once, with its newest timestamp, because its records are not decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Times of the batches of one interval, in ms. All are 0 if there were no batches."""

    count: int = 0
    total_ms: int = 0
    least_ms: int = 0
    most_ms: int = 0
    last_ms: int = 0
    spread: tuple[tuple[int, int], ...] = ()
    """(number of the bucket in `bucket_of`, number of batches in it). The numbers of batches add up
    to `count`.
    """


NO_TIMINGS = Timings()

SMALL_MS: Final = 8
"""Times below this (ms) have one bucket per millisecond."""
OCTAVE: Final = 4
"""Number of buckets per power of two. A bucket's upper bound is at most a quarter too high."""


def bucket_of(passed_ms: int) -> int:
    """Return the number of a time's bucket. Negative times are in the first bucket."""
    if passed_ms < SMALL_MS:
        return max(0, passed_ms)
    shift = passed_ms.bit_length() - 3
    return shift * OCTAVE + (passed_ms >> shift)


def upper_ms(bucket: int) -> int:
    """Return the longest time (ms) that `bucket_of` puts into this bucket."""
    following = bucket + 1
    if following < SMALL_MS:
        return bucket
    shift = following // OCTAVE - 1
    return ((OCTAVE + following % OCTAVE) << shift) - 1


class TimingSum:
    """Adds up the times of one interval."""

    __slots__ = ("_count", "_last", "_least", "_most", "_spread", "_total")

    def __init__(self) -> None:
        self._count = self._total = self._least = self._most = self._last = 0
        self._spread: dict[int, int] = {}

    def add(self, now_ms: int, timestamp_ms: int) -> None:
        """Add the time from `timestamp_ms`, a batch's newest timestamp, to now. A negative
        timestamp is ignored: -1 means none, and no record was produced before 1970.
        """
        if timestamp_ms < 0:
            return
        passed = now_ms - timestamp_ms  # negative if the producer's clock is ahead, as in MM2
        if not self._count or passed < self._least:
            self._least = passed
        if not self._count or passed > self._most:
            self._most = passed
        self._count += 1
        self._total += passed
        self._last = passed
        bucket = bucket_of(passed)
        self._spread[bucket] = self._spread.get(bucket, 0) + 1

    def pop(self) -> Timings:
        """Return the times added since the last call, and start a new interval."""
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
