"""What a lane tells about its partitions: progress while they run, and a hand-over when they
rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twinlog.lane.cluster_side import ClusterSide
from twinlog.lane.gaps import GapWatch
from twinlog.lane.messages import HandOver, PartitionProgress, Receipt
from twinlog.lane.source_side import SourceSide, SourceState
from twinlog.lane.target_side import TargetSide
from twinlog.mirror.copy import CopyState, PartitionCopy, StartPoint
from twinlog.mirror.fan_out import Copy
from twinlog.model import TopicPartition


class Reporter:
    """Progress of the partitions that changed since they were last reported."""

    def __init__(
        self,
        source: SourceSide,
        target: TargetSide,
        target_cluster: ClusterSide,
        gaps: GapWatch,
    ) -> None:
        self._source = source
        self._target = target
        self._cluster = target_cluster
        self._gaps = gaps
        self._last: dict[TopicPartition, PartitionProgress] = {}
        self._receipts: dict[TopicPartition, tuple[str, PartitionProgress]] = {}

    def changed(self, copies: Iterable[Copy], now_ms: int) -> Iterator[PartitionProgress]:
        for copy in copies:
            progress = self._progress(copy, now_ms)
            if self._last.get(copy.source) != progress:
                self._last[copy.source] = progress
                yield progress

    def close(self, copy: Copy, outcome: str, now_ms: int) -> None:
        """The partition leaves this lane: what it did goes into a receipt."""
        self._last.pop(copy.source, None)
        self._receipts[copy.source] = (outcome, self._progress(copy, now_ms))

    def receipts(self, *, lane: int, lease: int) -> Iterator[Receipt]:
        """A row for each partition that left."""
        for tp, (outcome, progress) in self._receipts.items():
            yield Receipt(
                lease=lease,
                lane=lane,
                topic=tp.topic,
                partition=tp.partition,
                outcome=outcome,
                records=progress.records,
                bytes=progress.bytes,
                next_upstream_offset=progress.upstream,
                next_downstream_offset=progress.downstream,
            )

    def _progress(self, copy: Copy, now_ms: int) -> PartitionProgress:
        state = self._source.partitions.get(copy.source)
        leader = self._cluster.leaders.get(copy.target)
        return PartitionProgress(
            source=copy.source,
            state=copy.state.value,
            ordinal=copy.acked_ordinal,
            upstream=copy.acked_upstream,
            downstream=copy.acked_downstream,
            source_end=_source_end(copy, state),
            log_start=-1 if state is None else state.log_start,
            records=copy.acked_records,
            bytes=copy.acked_bytes,
            last_timestamp=copy.last_timestamp,
            is_protected=copy.is_protected(now_ms, now_ms),
            target_epoch=-1 if leader is None else leader.epoch,
            sees_end=self._source.sees_end(copy.source),
            age=copy.ages.take(),
            latency=copy.latencies.take(),
            gap=self._gaps.take(copy.source),
        )


def _source_end(copy: Copy, state: SourceState | None) -> int:
    if copy.state is CopyState.TAKEN_OVER:
        return copy.acked_upstream  # nothing is read any more: there was nothing when it began
    return -1 if state is None else state.source_end


def hand_over(copy: PartitionCopy) -> HandOver:
    """Where the next lane goes on; the copy has no request in flight."""
    tail = copy.tail
    runs = tuple(run for run in tail.runs if run.ordinal < copy.acked_ordinal) or tuple(
        tail.runs[:1]
    )
    return HandOver(
        start=StartPoint(
            ordinal=copy.acked_ordinal,
            upstream=copy.acked_upstream,
            k=copy.acked_downstream - copy.acked_ordinal,
            last_fetched_epoch=copy.acked_epoch,
            is_protected=copy.is_listed,
            last_timestamp=copy.last_timestamp,
            taken_over=copy.state is CopyState.TAKEN_OVER,
        ),
        chunk=tail.chunk,
        runs=runs,
        durable_ordinal=min(tail.durable_ordinal, runs[-1].ordinal) if runs else -1,
    )
