"""Latency quantiles of all batches of a flow in the last minute: median and 99th percentile.

Histogram buckets of all partitions are summed over the window of `timing_window`. A quantile is the
upper edge of its bucket, so it is never less than the true value, and at most 25 % more.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from twinlog.control.watch.timing_window import SAMPLE_S, SAMPLES
from twinlog.mirror.copy.timings import Timings, upper_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Times in ms."""

    p50_ms: int
    p99_ms: int


class SpreadWindow:
    """The histogram of one flow."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counter[int]]] = deque()

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
