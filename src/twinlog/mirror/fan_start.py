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
from typing import Final

from twinlog.errors import CorruptData, Fate, PartitionError
from twinlog.mirror.cold_start import check_ids, ends_of, with_begin
from twinlog.mirror.copy import StartPoint
from twinlog.mirror.fan_out import is_record, next_upstream
from twinlog.mirror.offset_map import Mark, run_at
from twinlog.mirror.partitioner import partition_of
from twinlog.mirror.ports import LogEnds, LogView, ProducerTail
from twinlog.mirror.position import NEIGHBOURHOOD, Look
from twinlog.mirror.shared_topic import OurEnd, headers_between, record_before
from twinlog.mirror.start_request import StartRequest, StartRules
from twinlog.mirror.tail_check import same_record
from twinlog.model import SEQUENCE_MODULUS, sequence_of
from twinlog.wire.record_batch import BatchHeader

BACKWARDS: Final = SEQUENCE_MODULUS // 2
"""A sequence that seems to be so far ahead is behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FanStart:
    """Start points of all branches of one source partition, by target partition."""

    points: tuple[StartPoint, ...]


def find_fan_start(
    requests: Sequence[StartRequest],
    source: LogView,
    target: LogView,
    rules: StartRules,
    *,
    may_lose_batches: bool,
) -> FanStart:
    """Where each branch goes on; all are requests for one source partition.

    `may_lose_batches`: the target topic is compacted. Raises TwinlogError when one branch cannot
    go on: the others then wait for it, for they are read together.
    """
    tp = requests[0].source
    if len({bool(one.runs) for one in requests}) > 1:  # they are written together, first
        raise CorruptData(
            f"{tp}: the offset map has rows for some of its target partitions only",
            code="STATE_CORRUPT",
        )
    source_ids = source.topic_ids({tp.topic})
    target_ids = target.topic_ids({requests[0].target.topic})
    check_ids(requests[0], source_ids, target_ids)
    here = source.ends({tp})
    there = target.ends({one.target for one in requests})
    producers = target.producers({one.target for one in requests}, rules.producer_id)
    is_new = all(not one.runs and one.began_at < 0 for one in requests)
    anew = {tp: requests[0].start} if is_new else {}
    begins = source.begins(anew, read_committed=rules.read_committed) if anew else {}
    points = []
    for request in requests:
        one = with_begin(request, anew, begins, source)
        ends = ends_of(one.target, there, target)
        look = BranchLook(
            one,
            ends_of(tp, here, source),
            # others write all the time: only what is ours must be on enough replicas
            replace(ends, high_watermark=ends.log_end),
            None if producers is None else producers.get(one.target),
            producers is not None,
            source,
            target,
            rules,
        )
        point = look.branch(
            branches=len(requests),
            committed=ends.high_watermark,
            may_lose_batches=may_lose_batches,
        )
        points.append(point)
    return FanStart(points=tuple(points))


class BranchLook(Look):
    """One branch's start, with all answers at hand."""

    def branch(self, *, branches: int, committed: int, may_lose_batches: bool) -> StartPoint:
        """Where it goes on; all of the target's log below `committed` is there to stay.

        K is no more than an estimate here. It is one from below: what lies further and is not ours
        may go away with its leader, and then no record of ours is missing.
        """
        if not self.request.runs:
            first = self._first()
            return replace(first, k=committed - first.ordinal)
        ours = find_branch_end(
            self.request,
            self.there,
            self.producer,
            self.target,
            may_lose_batches=may_lose_batches,
        )
        if ours.downstream > committed:
            raise PartitionError(
                f"{self.request.target}: {ours.downstream - committed} records are not on enough "
                "replicas; waiting until the in-sync replicas have them",
                code="TARGET_UNDER_MIN_ISR",
                fate=Fate.RETRIABLE,
            )
        upstream = self._next_upstream(ours, branches)
        return StartPoint(
            ordinal=ours.ordinal,
            # that it has a row means that it was to be copied from there on
            upstream=self._check_source(upstream, max(1, ours.ordinal)),
            k=committed - ours.ordinal,
            last_fetched_epoch=-1,
            is_protected=self.producer is not None,
            last_timestamp=-1 if self.producer is None else self.producer.last_timestamp,
        )

    def _next_upstream(self, ours: OurEnd, branches: int) -> int:
        before = run_at(self.request.runs, ours.ordinal - 1)
        if before is not None and before.ordinal == ours.ordinal - 1 and is_record(before):
            self._check_last(ours)
        found = next_upstream(self.request.runs, ours.ordinal)
        return self._searched(ours, branches) if found is None else found

    def _searched(self, ours: OurEnd, branches: int) -> int:
        """A batch that our map does not announce is there: its last record, at the source."""
        before = [run for run in self.request.runs if run.ordinal < ours.ordinal]
        offset = ours.downstream - 1
        there = None
        if before and ours.downstream > self.there.log_start:
            raw = self._read(self.target, self.request.target, offset)
            there = record_before(raw, ours.downstream, self.request.our_producers)
        if there is not None:
            low = before[-1].upstream
            equal = [
                at
                for at, (record, _) in self._source_records(low, low + NEIGHBOURHOOD).items()
                if partition_of(record, branches) == self.request.target.partition
                and same_record(record, there[0], compare_timestamp=there[1])
            ]
            if len(equal) == 1:
                return equal[0] + 1
        raise PartitionError(
            f"{self.request.target}: which record of {self.request.source} our last one is, at "
            f"offset {offset}, is not known: the offset map does not say it, nor is there one "
            "record like it; delete the target topic to copy it anew",
            code="DIVERGED",
        )


def find_branch_end(
    request: StartRequest,
    there: LogEnds,
    producer: ProducerTail | None,
    target: LogView,
    *,
    may_lose_batches: bool,
) -> OurEnd:
    """How far the branch came: from its mark on, by what the broker remembers, and by headers."""
    first = request.runs[0]
    mark = request.mark or Mark(first.ordinal, 0)
    if mark.downstream > there.log_end:
        raise PartitionError(
            f"{request.target}: the target's log ends at {there.log_end}, but our records reached "
            f"{mark.downstream}: the target lost them; delete the topic to copy it anew",
            code="TARGET_TRUNCATED",
        )
    listed = None if producer is None else _after(request, mark.ordinal, producer.last_sequence)
    if listed == mark.ordinal:
        return _end(mark.ordinal, mark.downstream)
    ordinal, downstream = mark.ordinal, mark.downstream
    begin = max(mark.downstream, there.log_start)
    for header in headers_between(target, request.target, begin, there.log_end):
        if header.magic < 2 or header.producer_id not in request.our_producers:
            continue
        is_whole = not may_lose_batches and (begin == mark.downstream or ordinal > mark.ordinal)
        ordinal = _behind(request, ordinal, header, is_whole=is_whole)
        downstream = header.next_offset
    if listed is None:
        if begin > mark.downstream and ordinal == mark.ordinal and _may_be_further(request, mark):
            raise PartitionError(
                f"{request.target}: the target deleted what was written behind offset "
                f"{mark.downstream}, and does not remember how much that was; delete the topic to "
                "copy it anew",
                code="TARGET_TRUNCATED",
            )
        return _end(ordinal, downstream)
    if listed < ordinal:
        raise PartitionError(
            f"{request.target}: the broker remembers our records up to ordinal {listed}, the log "
            f"holds {ordinal}",
            code="EXTRA_RECORDS",
        )
    return _end(listed, downstream if listed == ordinal else -1)


def _behind(request: StartRequest, ordinal: int, header: BatchHeader, *, is_whole: bool) -> int:
    """The ordinal behind a batch of ours; `is_whole`: none before it can have been deleted."""
    ahead = (header.base_sequence - sequence_of(ordinal)) % SEQUENCE_MODULUS
    if ahead >= BACKWARDS:
        raise PartitionError(
            f"{request.target}: the batch at offset {header.base_offset} repeats records that "
            "are there before; delete the topic to copy it anew",
            code="EXTRA_RECORDS",
        )
    if ahead and is_whole:
        raise PartitionError(
            f"{request.target}: {ahead} records of ours are missing before offset "
            f"{header.base_offset}; delete the topic to copy it anew",
            code="GAP_WRITTEN",
        )
    return ordinal + ahead + header.last_offset_delta + 1


def _end(ordinal: int, downstream: int) -> OurEnd:
    return OurEnd(ordinal=ordinal, downstream=downstream, foreign=None, jumps=())


def _after(request: StartRequest, ordinal: int, last_sequence: int) -> int:
    """The ordinal behind a sequence that is not before `ordinal`."""
    ahead = (last_sequence + 1 - sequence_of(ordinal)) % SEQUENCE_MODULUS
    if ahead >= BACKWARDS:
        raise PartitionError(
            f"{request.target}: {SEQUENCE_MODULUS - ahead} records that were acknowledged are gone "
            "from the target; delete the topic to copy it anew",
            code="POSITION_REGRESSED",
        )
    return ordinal + ahead


def _may_be_further(request: StartRequest, mark: Mark) -> bool:
    """Whether a batch behind the mark was announced, and so may have been written."""
    last = request.runs[-1]
    return last.ordinal > mark.ordinal or (last.ordinal == mark.ordinal and is_record(last))
