"""Starts many partitions together, with shared requests.

**Problem.** After a restart, thousands of partitions must find their positions. If each partition
searched by itself, it would send about five requests. And the results of these requests must be
consistent: a lane that was thought dead may still append a batch between two of them. A log end
from before the append and a producer state from after it would look as if records were missing.

    check_ids      both clusters   are the topics the ones in the map?
    one_moment     target          producer states, log ends, producer states; again if they differ
    read_both      source          log ends, after those of the target
    _tails         both clusters   the ends of the logs, of AT_ONCE partitions at the same time
    StartSearch    -               the position of each partition by itself (`position`)

**Invariants**

1. The log end and the producer state of a target partition are of one moment (`one_moment`).
2. The source is read after the target. So records that a lane copies between the two reads are at
   the source.
3. A missing response is not evidence: a leader that did not respond may know this flow's producer
   ID (`Moment.producer_of`).
4. An error of one partition does not stop the others.

**What may fail**

- *The process dies*: nothing was written. The next start reads everything again.
- *A topic was deleted or re-created*: `TOPIC_MISSING`, `SOURCE_RECREATED`, `TARGET_RECREATED`.
- *The producer state changes with each of ATTEMPTS queries*: another lane still writes. The start
  is retried (`OTHER_WRITER`).
- *A batch is appended after the last query*: the first request is rejected, or answered as a
  repeat, and the partition is started again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.mirror.ports import (
    READ_BYTES,
    LogEnds,
    LogView,
    ProducerTail,
    RawRecords,
    answer_of,
)
from twinlog.mirror.start.both_logs import tail_source, tail_start
from twinlog.mirror.start.first_start import check_former, former_targets
from twinlog.mirror.start.our_end import last_before_mark
from twinlog.mirror.start.position import StartSearch
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start_point import StartPoint
from twinlog.model import (
    NO_TOPIC_ID,
    Isolation,
    StartAt,
    StartKind,
    TopicId,
    TopicPartition,
    batched,
)
from twinlog.wire.record_batch import read_headers

ATTEMPTS: Final = 5
"""Maximum number of times that a changing producer state is queried again."""

AT_ONCE: Final = 32
"""Number of partitions whose tails (the ends of both logs) are in memory together, at most about 1
MB per partition and log.
"""


class ReadAhead:
    """A `LogReader` that reads one portion of each partition in advance, in a shared request."""

    def __init__(self, view: LogView, offsets: Mapping[TopicPartition, int]) -> None:
        self._view = view
        self._offsets = offsets
        self._read = dict(view.read(offsets)) if offsets else {}
        self.problems = view.problems

    def begins(
        self, starts: Mapping[TopicPartition, StartAt], *, isolation: Isolation
    ) -> Mapping[TopicPartition, int]:
        return self._view.begins(starts, isolation=isolation)

    def read(
        self, offsets: Mapping[TopicPartition, int], *, size: int = READ_BYTES
    ) -> Mapping[TopicPartition, RawRecords]:
        out: dict[TopicPartition, RawRecords] = {}
        missing: dict[TopicPartition, int] = {}
        for tp, offset in offsets.items():
            known = self._prefetched(tp, offset)
            if known is None:
                missing[tp] = offset
            else:
                out[tp] = known
        if missing:
            out.update(self._view.read(missing, size=size))
        return out

    def _prefetched(self, tp: TopicPartition, offset: int) -> RawRecords | None:
        """Return the prefetched batches, beginning with the one that contains the offset or is the
        next one. Return None if the offset was not prefetched.

        A prefetch without records is not used, because records may have arrived in the meantime.
        """
        records, begin = self._read.get(tp), self._offsets.get(tp, offset + 1)
        if records is None or not records.records:
            return None
        if offset <= begin:
            return records if offset == begin else None
        for header, start in read_headers(records.records):
            if header.next_offset > offset:
                return replace(records, records=records.records[start:])
        return None


def starts_in_groups(
    requests: Sequence[StartRequest], source: LogView, target: LogView, rules: StartRules
) -> Iterator[Mapping[TopicPartition, StartPoint | TwinlogError]]:
    """Yield groups of results as they are found: by *source* topic-partition, its start point or
    its error.

    A partition need not wait until the tails of all partitions are read. The most recently written
    partitions come first.
    """
    out: dict[TopicPartition, StartPoint | TwinlogError] = {}
    source_ids = source.topic_ids({r.source.topic for r in requests})
    target_ids = target.topic_ids({r.target.topic for r in requests})
    there_still: list[StartRequest] = []
    for request in requests:
        try:
            check_ids(request, source_ids, target_ids)
        except TwinlogError as error:
            out[request.source] = error
        else:
            there_still.append(request)
    # topics that do not exist are not queried, because a client would wait seconds for each
    moment = read_both(there_still, source, target, rules.producer_id)
    new = {
        request.source: request.start
        for request in there_still
        if request.needs_begin_offset and request.start.kind is not StartKind.EARLIEST
    }
    begins = source.begins(new, isolation=rules.isolation) if new else {}
    if out:
        yield out
    there_still.sort(key=lambda request: moment.last_written_ms(request.target), reverse=True)
    for group in batched(there_still, AT_ONCE):
        out = {}
        here_view, there_view = _tails(group, source, target, moment, rules)
        for start in group:
            try:
                check_former(start, moment.target_ends, target)
                producer = moment.producer_of(start.target, target)
                search = StartSearch(
                    with_begin(start, new, begins, source),
                    answer_of(moment.source_ends, start.source, source),
                    answer_of(moment.target_ends, start.target, target),
                    producer,
                    moment.producers is not None,
                    here_view,
                    there_view,
                    rules,
                )
                out[start.source] = search.resume()
            except TwinlogError as error:
                out[start.source] = error
        yield out


def _tails(
    group: Sequence[StartRequest],
    source: LogView,
    target: LogView,
    moment: Moment,
    rules: StartRules,
) -> tuple[ReadAhead, ReadAhead]:
    """Return (source view, target view) with the first read of each partition prefetched. It is the
    tail or, in a topic to which other clients write, everything from this flow's last record below
    the map's mark on.
    """
    source_reads: dict[TopicPartition, int] = {}
    target_reads: dict[TopicPartition, int] = {}
    for request in group:
        source_ends = moment.source_ends.get(request.source)
        target_ends = moment.target_ends.get(request.target)
        if source_ends is None or target_ends is None:
            continue
        if rules.is_ours_alone:
            upstream, begin = tail_source(request.runs, target_ends), tail_start(target_ends)
        else:
            upstream, begin = last_before_mark(request)
        if upstream is None:
            continue
        if target_ends.log_start <= begin < target_ends.high_watermark:
            target_reads[request.target] = begin
        if max(upstream, source_ends.log_start) < source_ends.high_watermark:
            source_reads[request.source] = max(upstream, source_ends.log_start)
    return ReadAhead(source, source_reads), ReadAhead(target, target_reads)


class Moment(NamedTuple):
    """The state of some partitions on both clusters. That of each target partition is of one
    moment.
    """

    source_ends: Mapping[TopicPartition, LogEnds]
    target_ends: Mapping[TopicPartition, LogEnds]
    """Log ends of the target partitions, including those to which an earlier source topic of the
    same name was copied.
    """
    producers: Mapping[TopicPartition, ProducerTail] | None
    """By target partition, the leader's state of this flow's producer ID. None if brokers cannot be
    queried for it.
    """
    moving: frozenset[TopicPartition]
    """Target partitions whose producer state changed with each of ATTEMPTS queries."""

    def last_written_ms(self, tp: TopicPartition) -> int:
        """Return the timestamp (ms) of this flow's last batch in a target partition, as the leader
        remembers it, or -1 if it does not.
        """
        producer = (self.producers or {}).get(tp)
        return -1 if producer is None else producer.last_timestamp

    def producer_of(self, tp: TopicPartition, target: LogView) -> ProducerTail | None:
        """Return the leader's state of this flow's producer ID in a target partition, or None if it
        has none. Raises if the leader did not respond, or its state kept changing.
        """
        if tp in self.moving:
            raise PartitionError(
                f"{tp}: a lane of this flow that was considered dead still writes to the "
                "partition; checking again",
                code="OTHER_WRITER",
                fate=Fate.RETRIABLE,
            )
        if self.producers is None:
            return None
        if tp not in self.producers and tp in target.problems:
            # a leader that did not respond has not reported an empty state
            raise target.problems[tp]
        return self.producers.get(tp)


def read_both(
    requests: Sequence[StartRequest], source: LogView, target: LogView, producer_id: int
) -> Moment:
    """Read the state of both clusters. The target is read first, so that records that a lane copies
    between the reads are at the source.
    """
    targets = {request.target for request in requests}
    target_ends, producers, moving = one_moment(target, targets, producer_id)
    source_ends = source.ends({request.source for request in requests})
    if former := former_targets(requests) - targets:
        target_ends = {**target_ends, **target.ends(former)}
    return Moment(source_ends, target_ends, producers, moving)


def one_moment(
    target: LogView, tps: set[TopicPartition], producer_id: int
) -> tuple[
    Mapping[TopicPartition, LogEnds],
    Mapping[TopicPartition, ProducerTail] | None,
    frozenset[TopicPartition],
]:
    """Return (log ends, producer states, moving). The producer states are None if brokers cannot be
    queried for them. `moving`: the partitions whose state changed with each query.

    The producer state is queried before and after the log ends, until both are equal. Then no batch
    of this flow was appended between the two queries, and the log ends belong to that state, even
    if other clients write. An expiry or a new leader between them changes the state, too.
    """
    ends: dict[TopicPartition, LogEnds] = {}
    states: dict[TopicPartition, ProducerTail] = {}
    left = set(tps)
    before = target.producers(left, producer_id)
    for _ in range(ATTEMPTS):
        ends.update(target.ends(left))
        after = target.producers(left, producer_id)
        if before is None or after is None:
            return ends, None, frozenset()
        for tp in left:
            states.pop(tp, None)
        states.update(after)
        left = {tp for tp in left if _sequence(before, tp) != _sequence(after, tp)}
        if not left:
            break
        before = after
    return ends, states, frozenset(left)


def _sequence(states: Mapping[TopicPartition, ProducerTail], tp: TopicPartition) -> int | None:
    state = states.get(tp)
    return None if state is None else state.last_sequence


def check_ids(
    request: StartRequest, sources: Mapping[str, TopicId], targets: Mapping[str, TopicId]
) -> None:
    """Raise PartitionError if the source or target topic does not exist any more, or has another ID
    than the one in the map.
    """
    for tp, expected, known, code, side in (
        (request.source, request.source_topic_id, sources, "SOURCE_RECREATED", "source"),
        (request.target, request.target_topic_id, targets, "TARGET_RECREATED", "target"),
    ):
        topic_id = known.get(tp.topic)
        if topic_id is None:
            raise PartitionError(
                f"{tp}: the topic no longer exists on the {side}, or Twinlog's user may not "
                "DESCRIBE it",
                code="TOPIC_MISSING",
            )
        if NO_TOPIC_ID not in (expected, topic_id) and expected != topic_id:
            raise PartitionError(
                f"{tp}: the {side} topic was deleted and created again since this copy began",
                code=code,
            )


def with_begin(
    request: StartRequest,
    new: Container[TopicPartition],
    begins: Mapping[TopicPartition, int],
    view: LogView,
) -> StartRequest:
    """Return the request with `begin` set to the source offset where the copy begins, if that
    offset was queried for this partition. Else return it unchanged.
    """
    if request.source not in new:
        return request
    begin = answer_of(begins, request.source, view, "its leader does not report the start offset")
    return replace(request, begin=begin)
