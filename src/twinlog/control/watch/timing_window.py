"""Minimum, maximum and average of the last minute, from the lanes' reports of each second.

The window is that of Kafka's metrics (`metrics.sample.window.ms` 30 s, `metrics.num.samples` 2):
two samples of half a minute each, so it covers 30 to 60 s.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from twinlog.mirror.copy.timings import Timings

SAMPLE_S: Final = 30.0
SAMPLES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingView:
    """Times in ms. `last_ms` is kept permanently, the others are None without recent batches."""

    last_ms: int
    least_ms: int | None
    most_ms: int | None
    average_ms: float | None


@dataclass(slots=True)
class _Sample:
    began: float
    count: int
    total_ms: int
    least_ms: int
    most_ms: int


class TimingWindow:
    """The times of one partition."""

    __slots__ = ("_last_ms", "_samples")

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._last_ms: int | None = None

    def add(self, now: float, timings: Timings) -> None:
        """Add an interval of a lane; `now` is monotonic."""
        if not timings.count:
            return
        self._last_ms = timings.last_ms
        self._forget(now)
        if not self._samples or now - self._samples[-1].began >= SAMPLE_S:
            self._samples.append(
                _Sample(now, timings.count, timings.total_ms, timings.least_ms, timings.most_ms)
            )
            return
        sample = self._samples[-1]
        sample.count += timings.count
        sample.total_ms += timings.total_ms
        sample.least_ms = min(sample.least_ms, timings.least_ms)
        sample.most_ms = max(sample.most_ms, timings.most_ms)

    def view(self, now: float) -> TimingView | None:
        """Return the current values, or None before the first batch."""
        if self._last_ms is None:
            return None
        self._forget(now)
        count = sum(sample.count for sample in self._samples)
        if not count:
            return TimingView(last_ms=self._last_ms, least_ms=None, most_ms=None, average_ms=None)
        return TimingView(
            last_ms=self._last_ms,
            least_ms=min(sample.least_ms for sample in self._samples),
            most_ms=max(sample.most_ms for sample in self._samples),
            average_ms=sum(sample.total_ms for sample in self._samples) / count,
        )

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0].began >= SAMPLES * SAMPLE_S:
            self._samples.popleft()
