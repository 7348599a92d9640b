"""Latencies of the last minute, and of the whole run.

- `TimingWindow`: minimum, maximum and average, from the lanes' reports of each second. The window
  is that of Kafka's metrics (`metrics.sample.window.ms` 30 s, `metrics.num.samples` 2): two samples
  of half a minute each, so it covers 30 to 60 s.
- `SpreadWindow`: quantiles of all batches of a flow in this window, and a histogram of the whole
  run. Histogram buckets of all partitions are summed. A quantile is the upper edge of its bucket,
  so it is never less than the true value, and at most 25 % more.
- `GroupsReport`: latency of checkpoints, and groups whose offsets are not set. It is written by the
  duty's thread, and read by the supervisor's.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from twinlog.mirror.copy.timings import Timings, TimingSum, upper_ms
from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import Checkpoint

SAMPLE_S: Final = 30.0
SAMPLES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingView:
    """Times in ms. `last_ms` is always known. Without recent batches, all other times are None."""

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
    """Times of one partition's recent batches."""

    __slots__ = ("_last_ms", "_samples")

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._last_ms: int | None = None

    def add(self, now: float, timings: Timings) -> None:
        """Add the timings of one interval of a lane; `now` is monotonic."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Latencies of a flow's recent batches, in ms."""

    p50_ms: int
    p99_ms: int


BOUNDS_MS: Final = tuple((1 << power) - 1 for power in range(3, 18))
"""Bounds of the exported histogram, up to two minutes. Each is the upper edge of a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """Latencies of all batches of a run."""

    counts: Mapping[int, int]
    """Number of batches per bucket of `bucket_of`."""
    total_ms: int
    """Sum of all latencies. Negative latencies count as 0."""

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield upper bounds in seconds, with the number of batches up to each; the last is inf."""
        upper = {upper_ms(bucket): count for bucket, count in self.counts.items()}
        for bound in BOUNDS_MS:
            yield bound / 1000, sum(count for edge, count in upper.items() if edge <= bound)
        yield math.inf, sum(upper.values())


class SpreadWindow:
    """Latencies of all partitions in one run of a flow."""

    __slots__ = ("_all", "_samples", "_total_ms")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counter[int]]] = deque()
        self._all: Counter[int] = Counter()
        self._total_ms = 0

    def add(self, now: float, timings: Timings) -> None:
        """Add the timings of one interval of a partition; `now` is monotonic."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTiming:
    """Latency of checkpoints of one group and partition: from the read of a commit to the write."""

    group: str
    topic: str
    partition: int
    latency: TimingView


@dataclass(slots=True)
class GroupsReport:
    """Latency of a flow's checkpoints, and groups whose offsets are not set, with the reasons."""

    skipped: Mapping[str, str] = field(default_factory=dict)
    """Groups whose offsets on the target are not changed, with the reason."""
    untranslated: Mapping[str, str] = field(default_factory=dict)
    """Groups with offsets that cannot be translated to the target, with the reason."""
    without_checkpoint: Mapping[str, str] = field(default_factory=dict)
    """Selected groups none of whose offsets can be translated, with the reason."""
    _windows: dict[tuple[str, TopicPartition], TimingWindow] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def left_alone(self) -> dict[str, str]:
        """Return the skipped and untranslated groups, whose offsets are not set, with the reason. A
        group that is both, in different topics, has both reasons.
        """
        out = {**self.untranslated}
        for group, reason in self.skipped.items():
            out[group] = f"{reason}; {out[group]}" if group in out else reason
        return out

    def on_written(self, checkpoints: Iterable[Checkpoint], *, read_ms: int) -> None:
        """Record that checkpoints were written; their groups' offsets were read at `read_ms`."""
        now, now_ms = time.monotonic(), int(time.time() * 1000)
        taken = TimingSum()
        taken.add(now_ms, read_ms)
        timings = taken.pop()
        with self._lock:
            for checkpoint in checkpoints:
                key = (checkpoint.group, checkpoint.topic_partition)
                self._windows.setdefault(key, TimingWindow()).add(now, timings)

    def timings(self) -> tuple[CheckpointTiming, ...]:
        """Return the timing of every group and partition that has had a checkpoint."""
        now = time.monotonic()
        with self._lock:
            views = [(key, window.view(now)) for key, window in self._windows.items()]
        return tuple(
            CheckpointTiming(group=group, topic=tp.topic, partition=tp.partition, latency=view)
            for (group, tp), view in views
            if view is not None
        )
