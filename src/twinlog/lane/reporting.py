"""Reports of a lane about its partitions: progress while they are copied, and the hand-over after
they are drained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.lane.lane_partition import LanePartition
from twinlog.lane.messages import HandOver, PartitionProgress, TakePartition, Troubled, Work
from twinlog.lane.sides.source_side import SourceSide, SourceState
from twinlog.lane.watches.offset_gaps import GapWatch
from twinlog.mirror.copy.fan_out import Copy
from twinlog.mirror.copy.partition import CopyState, PartitionCopy
from twinlog.mirror.copy.transformed import TransformedCopy
from twinlog.mirror.map.map_tail import MapTail
from twinlog.mirror.map.offset_map import PartitionKey
from twinlog.mirror.start_point import StartPoint
from twinlog.model import TopicPartition


class Reporter:
    """Reports the progress of partitions that changed since their last report."""

    def __init__(
        self, source: SourceSide, gaps: GapWatch, map_epoch: Callable[[PartitionCopy], int]
    ) -> None:
        """`map_epoch(copy)`: the leader epoch of the map's partition under which the copy's rows
        exist, or -1 if unknown.
        """
        self._source = source
        self._gaps = gaps
        self._map_epoch = map_epoch
        self._cpu_ms: int | None = None

    def changes(
        self, partitions: Iterable[LanePartition], now_ms: int
    ) -> Iterator[PartitionProgress]:
        """Yield the progress of each partition whose progress differs from that in its last
        report.
        """
        for held in partitions:
            if held.copy is None:
                continue
            progress = self._progress(held.copy, held.lost, now_ms)
            held.lost = ()
            if held.reported != progress:
                held.reported = progress
                yield progress

    def used_cpu_ms(self, process_ms: int) -> int:
        """Return the CPU time in ms that was used since the last call; 0 at the first call.

        `process_ms` is the CPU time of this process, which may have run other lanes before.
        """
        before, self._cpu_ms = self._cpu_ms, process_ms
        return 0 if before is None else process_ms - before

    def _progress(
        self, copy: Copy, lost: tuple[tuple[int, int], ...], now_ms: int
    ) -> PartitionProgress:
        state = self._source.partitions.get(copy.source)
        left_out = tuple(copy.intake.applied_skips)
        copy.intake.applied_skips.clear()
        return PartitionProgress(
            source=copy.source,
            state=copy.state.value,
            ordinal=copy.acked_ordinal,
            upstream=copy.acked_upstream,
            downstream=copy.acked_downstream,
            source_end=_source_end(copy, state),
            records=copy.acked_records,
            bytes=copy.acked_bytes,
            last_timestamp=copy.source_timestamp
            if isinstance(copy, TransformedCopy)
            else copy.last_timestamp,
            is_protected=copy.is_protected(now_ms, now_ms),
            target_epoch=copy.leader.checked_epoch if isinstance(copy, PartitionCopy) else -1,
            sees_end=self._source.sees_end(copy.source),
            batches=copy.intake.batches,
            recoded=copy.intake.deep_batches + copy.intake.packed_batches,
            waits_for_map=any(part.waits_for_map for part in copy.parts),
            age=copy.ages.pop(),
            latency=copy.latencies.pop(),
            gap=self._gaps.pop_gap(copy.source),
            map_epoch=min(map(self._map_epoch, copy.parts)),
            lost=lost,
            left_out=left_out,
        )


def troubled_message(
    tp: TopicPartition, error: TwinlogError, copy: Copy | None, wait_ms: int
) -> Troubled:
    """Return the message for a partition that failed. `copy`: None if the start point was not
    found. `wait_ms`: see `Troubled`.
    """
    # each of the two errors may name copied records that the source lost, which the driver must
    # remember
    both = (error, None if copy is None else copy.source_trouble)
    lost = [
        problem.lost for problem in both if isinstance(problem, PartitionError) and problem.lost
    ]
    return Troubled(
        source=tp,
        code=error.code,
        message=error.message,
        is_retriable=error.fate is Fate.RETRIABLE,
        wait_ms=wait_ms,
        had_begun=copy is not None,
        lost=next(iter(lost), None),
        poison=error.poison,
        finding=error.finding if isinstance(error, PartitionError) else None,
    )


def _source_end(copy: Copy, state: SourceState | None) -> int:
    if copy.state is CopyState.TAKEN_OVER:
        # a copy that other clients ended reads nothing. It is started only if the source has no
        # more records to copy, so the position of the copy is the end
        return copy.acked_upstream
    return -1 if state is None else state.source_end


def handed_tail(key: PartitionKey, take: TakePartition, handed: HandOver, work: Work) -> MapTail:
    """Return the newest runs of the map (`MapTail`) with which a lane continues a partition that
    another lane handed over.

    In a topic to which other clients write, the previous lane has written a final mark: nothing of
    this flow follows (`mirror.map.offset_map.Mark`). So a mark that is not final must be durable
    before this lane sends anything.
    """
    start, durable = handed.start, handed.durable_ordinal
    if not (work.is_ours_alone or start.taken_over):
        durable = -1
    return MapTail(
        key=key,
        topic=take.source.topic,
        term=take.term,
        chunk=handed.chunk,
        runs=list(handed.runs),
        producer_id=work.producer_id,
        mark=start.as_mark,
        durable_ordinal=durable,
        dirty=handed.durable_ordinal < 0 and not take.runs,
        transform=take.transform,
    )


def hand_over(copy: PartitionCopy, map_epoch: int = -1) -> HandOver | None:
    """Return the position at which the next lane resumes, or None if that lane must search both
    logs.

    The copy must have no request in flight. `map_epoch`: the leader epoch under which the copy's
    rows are in the map. The position and the source leader epoch of the offset before it are
    updated together (`PartitionCopy.acked_epoch`).
    """
    handed = copy.tail.hand_over(copy.acked_ordinal)
    if handed is None or copy.late_requests or copy.others.unknown is not None:
        return None
    return HandOver(
        start=StartPoint(
            ordinal=copy.acked_ordinal,
            upstream=copy.acked_upstream,
            k=copy.acked_downstream - copy.acked_ordinal,
            last_fetched_epoch=copy.acked_epoch,
            is_protected=copy.is_listed,
            last_timestamp=copy.last_timestamp,
            target_epoch=copy.leader.checked_epoch,
            taken_over=copy.state is CopyState.TAKEN_OVER,
            has_company=copy.others.has_other_flow,
            dead_letters=copy.known_dead_letters if isinstance(copy, TransformedCopy) else None,
        ),
        chunk=handed.chunk,
        runs=handed.runs,
        durable_ordinal=handed.durable_ordinal,
        map_epoch=map_epoch,
        transform=copy.tail.transform,
    )
