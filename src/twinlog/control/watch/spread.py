"""Latency of all batches of a flow: quantiles of the last minute, and a histogram of the whole run.

Histogram buckets of all partitions are summed over the window of `timing_window`. A quantile is the
upper edge of its bucket, so it is never less than the true value, and at most 25 % more.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.control.watch.timing_window import SAMPLE_S, SAMPLES
from twinlog.mirror.copy.timings import Timings, upper_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Times in ms."""

    p50_ms: int
    p99_ms: int


BOUNDS_MS: Final = tuple((1 << power) - 1 for power in range(3, 18))
"""Bounds of the exported histogram, up to two minutes. Each is the upper edge of a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """The latencies of a run."""

    counts: Mapping[int, int]
    """Number of batches per bucket of `bucket_of`."""
    total_ms: int
    """Sum of all latencies. Negative ones count as 0."""

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield bounds in seconds with the number of batches up to them; the last one is inf."""
        upper = {upper_ms(bucket): count for bucket, count in self.counts.items()}
        for bound in BOUNDS_MS:
            yield bound / 1000, sum(count for edge, count in upper.items() if edge <= bound)
        yield math.inf, sum(upper.values())


class SpreadWindow:
    """The latencies of one run of a flow."""

    __slots__ = ("_all", "_samples", "_total_ms")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counter[int]]] = deque()
        self._all: Counter[int] = Counter()
        self._total_ms = 0

    def add(self, now: float, timings: Timings) -> None:
        """Add an interval of one partition; `now` is monotonic."""
        if not timings.spread:
            return
        self._forget(now)
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_S:
            self._samples.append((now, Counter()))
        counts = self._samples[-1][1]
        for bucket, count in timings.spread:
            counts[bucket] += count
            self._all[bucket] += count
        self._total_ms += max(0, timings.total_ms)

    def histogram(self) -> LatencyHistogram:
        """Return a copy of the histogram of all batches so far."""
        return LatencyHistogram(counts=dict(self._all), total_ms=self._total_ms)

    def view(self, now: float) -> Quantiles | None:
        """Return the current quantiles, or None without recent batches."""
        self._forget(now)
        counts: Counter[int] = Counter()
        for _, sample in self._samples:
            counts.update(sample)
        if not counts:
            return None
        return Quantiles(p50_ms=_quantile(counts, 50), p99_ms=_quantile(counts, 99))

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= SAMPLES * SAMPLE_S:
            self._samples.popleft()


def _quantile(counts: Counter[int], percent: int) -> int:
    left = -(-counts.total() * percent // 100)  # the rank of the quantile, counted from the fastest
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0:
            return upper_ms(bucket)
    raise AssertionError("more than there are")
