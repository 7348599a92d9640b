"""Where the branches of a source partition go on: in topics that all source partitions write to.

As in any topic that is not ours alone the end of each branch is looked for: what the broker
remembers of our producer id says it, else the headers of all batches behind the last mark. Three
things differ from `Look.shared`:

- Others write between our batches all the time, which means nothing.
- The map knows single places (the last record of each batch, and how far the source was read), not
  every record in between. A log ends behind a whole batch, so the end is such a place, unless
  another lane wrote a batch that this map does not announce: then its last record is searched at
  the source.
- A branch without a row has written nothing, and begins where the others did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from twinlog.errors import CorruptData, PartitionError
from twinlog.mirror.copy.fan_out import is_record, next_upstream
from twinlog.mirror.copy.partitioner import partition_of
from twinlog.mirror.findings import (
    diverged,
    extra_records,
    position_regressed,
    target_truncated,
)
from twinlog.mirror.map.offset_map import Mark, run_at
from twinlog.mirror.ports import LogEnds, LogView, ProducerTail, answer_of
from twinlog.mirror.start.both_logs import NEIGHBOURHOOD
from twinlog.mirror.start.cold_start import check_ids, look_at_both, with_begin
from twinlog.mirror.start.divergence import not_disproved
from twinlog.mirror.start.former_life import check_former
from twinlog.mirror.start.position import Look, under_min_isr
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start.shared_topic import (
    OurEnd,
    check_mark,
    headers_between,
    ordinal_behind,
    record_before,
)
from twinlog.mirror.start.tail_check import same_record
from twinlog.mirror.start_point import StartPoint
from twinlog.model import sequence_of, sequences_ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class FanStart:
    """Start points of all branches of one source partition, by target partition."""

    points: tuple[StartPoint, ...]


def find_fan_start(
    requests: Sequence[StartRequest],
    source: LogView,
    target: LogView,
    rules: StartRules,
) -> FanStart:
    """Where each branch goes on; all are requests for one source partition.

    Raises TwinlogError when one branch cannot
    go on: the others then wait for it, for they are read together.
    """
    tp = requests[0].source
    requests = _beginning_together(requests)
    source_ids = source.topic_ids({tp.topic})
    target_ids = target.topic_ids({requests[0].target.topic})
    check_ids(requests[0], source_ids, target_ids)
    moment = look_at_both(requests, source, target, rules.producer_id)
    check_former(requests[0], moment.there, target)
    is_new = all(not one.runs and one.began_at < 0 for one in requests)
    anew = {tp: requests[0].start} if is_new else {}
    begins = source.begins(anew, read_committed=rules.read_committed) if anew else {}
    points = []
    for request in requests:
        producer = moment.producer_of(request.target, target)
        one = with_begin(request, anew, begins, source)
        ends = answer_of(moment.there, one.target, target)
        look = BranchLook(
            one,
            answer_of(moment.here, tp, source),
            # others write all the time: only what is ours must be on enough replicas
            replace(ends, high_watermark=ends.log_end),
            producer,
            moment.producers is not None,
            source,
            target,
            rules,
        )
        point = look.branch(branches=len(requests), committed=ends.high_watermark)
        points.append(point)
    return FanStart(points=tuple(points))


def _beginning_together(requests: Sequence[StartRequest]) -> Sequence[StartRequest]:
    """The first rows of all branches say how far the source was read, and are written in the order
    of the branches, not in one batch. Who died between two left a branch without: it has written
    nothing, and begins where the others did.
    """
    firsts = [one.runs[0] for one in requests if one.runs]
    if not firsts or len(firsts) == len(requests):
        return requests
    begins = [first.upstream for first in firsts if not is_record(first)]
    if not begins:
        raise CorruptData(
            f"{requests[0].source}: the offset map has rows for some of its target partitions "
            "only, and they do not say where the others began",
            code="STATE_CORRUPT",
        )
    return [one if one.runs else replace(one, began_at=min(begins)) for one in requests]


class BranchLook(Look):
    """One branch's start, with all answers at hand."""

    def branch(self, *, branches: int, committed: int) -> StartPoint:
        """Where it goes on; all of the target's log below `committed` is there to stay.

        K is no more than an estimate here. It is one from below: what lies further and is not ours
        may go away with its leader, and then no record of ours is missing.
        """
        if not self.request.runs:
            first = self._first()
            return replace(first, k=committed - first.ordinal)
        ours = find_branch_end(self.request, self.there, self.producer, self.logs.target)
        if ours.downstream > committed:
            raise under_min_isr(self.request.target, ours.downstream - committed)
        upstream = self._check_source(self._next_upstream(ours, branches))
        return StartPoint(
            ordinal=ours.ordinal,
            upstream=upstream,
            k=committed - ours.ordinal,
            last_fetched_epoch=self._epoch(upstream),
            target_epoch=self.there.leader_epoch,
            is_protected=self.producer is not None,
            last_timestamp=-1 if self.producer is None else self.producer.last_timestamp,
        )

    def _next_upstream(self, ours: OurEnd, branches: int) -> int:
        before = run_at(self.request.runs, ours.ordinal - 1)
        equal = None
        if before is not None and before.ordinal == ours.ordinal - 1 and is_record(before):
            equal = self._check_last(ours)
        lost = self.request.lost
        if lost is not None and equal is None and before is not None and before.upstream >= lost[0]:
            raise not_disproved(lost, source=self.request.source)
        found = next_upstream(self.request.runs, ours.ordinal)
        return self._searched(ours, branches) if found is None else found

    def _searched(self, ours: OurEnd, branches: int) -> int:
        """A batch that our map does not announce is there: its last record, at the source."""
        before = [run for run in self.request.runs if run.ordinal < ours.ordinal]
        offset = ours.downstream - 1
        there = None
        if before and ours.downstream > self.there.log_start:
            raw = self.logs.read_target(offset)
            there = record_before(raw, ours.downstream, self.request.our_producers)
        if there is not None:
            low = before[-1].upstream
            equal = [
                at
                for at, (record, _) in self.logs.source_records(low, low + NEIGHBOURHOOD).items()
                if partition_of(record, branches) == self.request.target.partition
                and same_record(record, there[0], compare_timestamp=there[1])
            ]
            if len(equal) == 1:
                return equal[0] + 1
        raise PartitionError(
            diverged(
                f"{self.request.target}: which record of {self.request.source} our last one is, "
                f"at offset {offset}, is not known: the offset map does not say it, nor is there "
                "one record like it",
                self.request.target,
                held=self._sides(),
            ),
            code="DIVERGED",
        )


def find_branch_end(
    request: StartRequest,
    there: LogEnds,
    producer: ProducerTail | None,
    target: LogView,
) -> OurEnd:
    """How far the branch came: from its mark on, by what the broker remembers, and by headers."""
    first = request.runs[0]
    mark = request.mark or Mark(first.ordinal, 0)
    check_mark(request, mark, there)
    listed = None if producer is None else _after(request, mark.ordinal, producer.last_sequence)
    if listed == mark.ordinal:
        return _end(mark.ordinal, mark.downstream)
    ordinal, downstream = mark.ordinal, mark.downstream
    begin = max(mark.downstream, there.log_start)
    for header in headers_between(target, request.target, begin, there.log_end):
        if header.magic < 2 or header.producer_id not in request.our_producers:
            continue
        is_whole = begin == mark.downstream or ordinal > mark.ordinal
        is_whole &= not request.may_lose_batches
        ordinal = ordinal_behind(request, ordinal, header, is_whole=is_whole)
        downstream = header.next_offset
    if listed is None:
        if begin > mark.downstream and ordinal == mark.ordinal and _may_be_further(request, mark):
            raise PartitionError(
                target_truncated(
                    f"{request.target}: the target deleted what was written behind offset "
                    f"{mark.downstream}, and does not remember how much that was; it holds "
                    f"[{there.log_start}, {there.log_end})",
                    request.target,
                ),
                code="TARGET_TRUNCATED",
            )
        return _end(ordinal, downstream)
    if listed < ordinal:
        raise PartitionError(
            extra_records(
                f"{request.target}: the broker remembers our records up to ordinal {listed}, the "
                f"log holds {ordinal}",
                request.target,
            ),
            code="EXTRA_RECORDS",
        )
    return _end(listed, downstream if listed == ordinal else -1)


def _end(ordinal: int, downstream: int) -> OurEnd:
    return OurEnd(ordinal=ordinal, downstream=downstream, foreign=None, jumps=())


def _after(request: StartRequest, ordinal: int, last_sequence: int) -> int:
    """The ordinal behind a sequence that is not before `ordinal`."""
    ahead = sequences_ahead(last_sequence + 1, sequence_of(ordinal))
    if ahead < 0:
        raise PartitionError(
            position_regressed(
                f"{request.target}: {-ahead} records that were acknowledged are "
                "gone from the target",
                request.target,
            ),
            code="POSITION_REGRESSED",
        )
    return ordinal + ahead


def _may_be_further(request: StartRequest, mark: Mark) -> bool:
    """Whether a batch behind the mark was announced, and so may have been written."""
    last = request.runs[-1]
    return last.ordinal > mark.ordinal or (last.ordinal == mark.ordinal and is_record(last))
