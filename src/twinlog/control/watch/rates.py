"""Computes rates per topic over the last few seconds from the snapshots of a running mirror."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from twinlog.codes import PartitionState
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.quantities import largest, total

WINDOW_S: Final = 5.0
"""Window of a rate, long enough that rates do not flicker, and short enough to show a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRate:
    """One topic of one flow now. Unknown values are None."""

    flow: str
    topic: str
    partitions: int
    failed: int
    records: int
    bytes: int
    lag: int | None
    lag_ms: int | None
    records_per_s: float
    bytes_per_s: float
    is_deleted: bool = False
    """Whether the topic was deleted at the source. Its copy is kept."""
    is_retrying: bool = False
    """Whether a partition is RETRYING, so that its current source log end is unknown."""
    copied: int | None = None
    """Number of records in the copy, whichever process copied them."""
    left_s: float | None = None
    """Seconds to catch up at the current rate; None if the lag does not shrink."""

    @property
    def total(self) -> int:
        """Return the number of records that this process has copied, plus the waiting records."""
        return self.records + (self.lag or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    at: float
    records: int
    bytes: int
    lag: int | None


class Rates:
    """Stores every topic's counts of the last seconds, from which rates are computed."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], deque[_Sample]] = {}

    def update(self, now: float, flows: Iterable[FlowSnapshot]) -> list[TopicRate]:
        """Add the flows' current counts and return the rates; `now` is monotonic."""
        out = []
        seen: set[tuple[str, str]] = set()
        for flow in flows:
            topics: dict[str, list[PartitionSnapshot]] = {}
            for partition in flow.partitions:
                topics.setdefault(partition.topic, []).append(partition)
            out += [self._topic(now, flow.flow, *item) for item in topics.items()]
            seen.update((flow.flow, topic) for topic in topics)
        if len(self._samples) > len(seen):
            self._samples = {key: self._samples[key] for key in seen}
        return out

    def _topic(
        self, now: float, flow: str, topic: str, partitions: list[PartitionSnapshot]
    ) -> TopicRate:
        records = sum(p.records for p in partitions)
        size = sum(p.bytes for p in partitions)
        lag = total(p.lag for p in partitions)
        samples = self._samples.setdefault((flow, topic), deque())
        samples.append(_Sample(at=now, records=records, bytes=size, lag=lag))
        while len(samples) > 2 and samples[1].at <= now - WINDOW_S:
            samples.popleft()
        first = samples[0]
        seconds = now - first.at
        left_s = None
        if seconds > 0 and lag is not None and first.lag is not None and lag < first.lag:
            left_s = lag * seconds / (first.lag - lag)
        return TopicRate(
            flow=flow,
            topic=topic,
            partitions=len(partitions),
            failed=sum(p.state is PartitionState.FAILED for p in partitions),
            is_retrying=any(p.state is PartitionState.RETRYING for p in partitions),
            is_deleted=all(p.state is PartitionState.SOURCE_DELETED for p in partitions),
            records=records,
            bytes=size,
            lag=lag,
            lag_ms=largest(p.lag_ms for p in partitions),
            # a partition that moved to another lane may report less for a moment
            records_per_s=max(0.0, (records - first.records) / seconds) if seconds > 0 else 0.0,
            bytes_per_s=max(0.0, (size - first.bytes) / seconds) if seconds > 0 else 0.0,
            copied=total(p.copied for p in partitions),
            left_s=left_s,
        )
