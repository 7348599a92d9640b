"""Finds the offset at which the logs of both sides diverge. Both sides have each record before that
offset. Only one side has each record after it.

    A   ... 21 22 | 23 24 25        the divergent tail: never copied to B
    B   ... 21 22 | 23 24 25        written by other clients since

Usually the logs diverge at the end of the copy (`copy_end`). But A may have lost the end of its log
with its brokers, and may have other records at the same offsets now. So the last records that both
sides should have are compared. If they differ, the first difference is found by bisection.

Records that A lost are still on B, so they need not be saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from twinlog.cluster.logs.raw_log import FIRST_BYTES
from twinlog.cluster.net.metadata import Operation, TopicMetadata
from twinlog.config.values.times import in_iso
from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.failback.copy_end import (
    CopyEnd,
    CopyEnds,
    LogReads,
    SearchReads,
    search_in_parallel,
)
from twinlog.control.failback.saved import TailCounts
from twinlog.errors import BrokerRefused, FlowError, TwinlogError, or_raise
from twinlog.mirror.findings import Span
from twinlog.mirror.map.offset_map import run_at
from twinlog.mirror.map.runs import UPSTREAM, following
from twinlog.mirror.start.tail_check import decode, same_record
from twinlog.model import NO_TOPIC_ID, Isolation, TopicId, TopicPartition
from twinlog.quantities import count, plural
from twinlog.survey.cluster_state import cluster_state
from twinlog.survey.discovery import hidden_topics
from twinlog.survey.ends import Want, read_ends
from twinlog.survey.rights import denied_error
from twinlog.wire.record_batch import BatchHeader, read_headers
from twinlog.wire.records import Record

DESCRIBE: Final = Operation.DESCRIBE.name
COMPARED: Final = 20
"""Maximum number of records that are tried to find one that both logs still have."""
MARKER: Final = (Record(-1, -1, None, None, ()), True)
"""Result of `record_at` for a transaction marker, which is not a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDivergence:
    """Where A's and B's logs of one partition diverge."""

    FIELDS = (
        "topic=source.topic partition=source.partition target_topic=target.topic tail deleted "
        "lost_by_source=lost lost_records is_compared is_home=is_copied_back was_copied "
        "open_from problem"
    )

    source: TopicPartition
    target: TopicPartition
    topic_id: TopicId = NO_TOPIC_ID
    """ID of A's topic."""
    target_id: TopicId = NO_TOPIC_ID
    target_log: tuple[int, int] | None = None
    """The start and end of B's log, or None if B has no such partition."""
    at: int = 0
    """A's offset at which the logs diverge: the first one that B does not have."""
    log: tuple[int, int] = (0, 0)
    """Start and end of A's log."""
    stable: int = 0
    """A's last stable offset. If it is below the log end, an open transaction begins there."""
    copy: CopyEnd | None = None
    """The end of the copy, or None if nothing was copied. Then A's whole log is the tail."""
    lost: Span | None = None
    """Copied offsets at which A now has no record, or another record."""
    lost_records: int = 0
    """Number of records that B has at the lost offsets."""
    is_compared: bool = False
    """True if records were compared on both sides. Otherwise only the map shows the divergence."""
    is_copied_back: bool = False
    """True if the flow back already writes after the tail, under the same topic name."""
    counts: TailCounts = field(default_factory=TailCounts)
    """Number and times of the tail's records; only a plan counts them."""
    problem: TwinlogError | None = None

    @property
    def tail(self) -> Span:
        """Return all offsets of A that were never copied to B, including those that retention
        deleted.
        """
        return Span(min(self.at, self.log[1]), self.log[1])

    @property
    def kept(self) -> Span:
        """Return the part of the tail that A still has. It may be empty."""
        return self.tail._replace(first=max(self.tail.first, self.log[0]))

    @property
    def deleted(self) -> Span | None:
        """Return the part of the tail that A's retention has deleted, or None."""
        until = min(self.log[0], self.log[1])
        return Span(self.at, until) if self.at < until else None

    @property
    def is_open(self) -> bool:
        """Return True if a transaction is open in the tail, so that its outcome is undecided."""
        return self.stable < self.log[1]

    @property
    def was_copied(self) -> bool:
        return self.copy is not None

    @property
    def open_from(self) -> int | None:
        return self.stable if self.is_open else None

    @property
    def is_empty(self) -> bool:
        """Return True if A has no offset that B lacks, not even one of a marker."""
        return self.tail.is_empty and self.deleted is None

    def lines(self) -> Iterator[str]:
        """Yield the plan's lines on this partition."""
        counts = self.counts
        if self.problem is not None:
            yield f"  {self.source}: {self.problem}"
            return
        if not self.is_empty:
            what = f"{plural(counts.valid, 'record')} that never arrived"
            if counts.aborted:
                what += f", and {count(counts.aborted)} of aborted transactions"
            if counts.oldest_ms is not None and counts.newest_ms is not None:
                when = f"{in_iso(counts.oldest_ms)} to {in_iso(counts.newest_ms)}"
                what += f", of {when}"
            never = "" if self.copy is not None else "; nothing of it was ever copied"
            yield f"  {self.source}: {self.tail}: {what}{never}"
        if self.deleted is not None:
            yield (
                f"  {self.source}: {self.deleted} never arrived, and the source's retention has "
                "deleted it since"
            )
        if self.is_open:
            yield f"  {self.source}: a transaction is open from offset {self.stable} on"
        if self.lost is not None:
            yield (
                f"  {self.source}: the source lost {self.lost}; the target has "
                f"{plural(self.lost_records, 'record')} of this range"
            )
        if self.copy is not None and not self.is_compared and not self.is_empty:
            yield (
                f"  {self.source}: none of the last common records is left on both sides, so only "
                "the offset map shows that the logs diverge here"
            )


def divergences(scope: CutoverScope) -> list[LogDivergence]:
    """Return where the logs diverge in every partition of the scope's topics that A has, sorted. If
    this user may not see a copied topic on A, its partition 0 is returned with a problem. Raises
    BrokerRefused (BROKERS_DIFFER) if brokers of one cluster list different topics.
    """
    source_metadata = scope.source.metadata(None)
    ids = {
        tp: topic.topic_id
        for name, topic in source_metadata.topics.items()
        if not topic.is_internal and scope.covers(name)
        if not scope.policy.is_internal_topic(name) and not _came_from_target(scope, name)
        for tp in topic.tps
    }
    came = _copied_from_target(scope, source_metadata.topics) if ids else {}
    if not scope.setup.is_identity:
        ids = {tp: topic_id for tp, topic_id in ids.items() if tp.topic not in came}
    targets = {tp: TopicPartition(scope.remote(tp.topic), tp.partition) for tp in sorted(ids)}
    ends = CopyEnds(scope, targets.values())
    rows = [
        row for row in ends.copies if row.begun and row.topic and scope.covers(row.source_topic)
    ]
    hidden = hidden_topics(scope.source, source_metadata, {row.source_topic for row in rows})
    hidden_remotes = hidden_topics(scope.target, ends.metadata, {row.topic for row in rows})
    tps = sorted(ids)
    logs = read_ends(scope.source, tps, Want.STARTS)
    # read after the log ends: a last stable offset below its log end then means an open
    # transaction. In the other order, a record could have been appended between the two requests.
    stable = read_ends(scope.source, tps, isolation=Isolation.READ_COMMITTED)

    def search(tp: TopicPartition, sides: SearchReads) -> LogDivergence:
        if scope.setup.is_identity and targets[tp].topic != tp.topic:
            # rejected, because the flow back would write to a topic of A that has the remote
            # topic's name, not to this topic
            raise scope.error(
                f"topic {tp.topic} is called {targets[tp].topic} on {scope.config.flow.target} "
                f"(docs/rename.md), so the flow back would write to a topic {targets[tp].topic} of "
                f"{scope.config.flow.source}. Exclude the topic with --topics, and copy its "
                "records back with a flow of its own",
                code="REVERSE_UNKNOWN",
            )
        if targets[tp].topic in hidden_remotes:
            raise denied_error(scope.target.alias, DESCRIBE, targets[tp].topic)
        log = logs[tp]
        if (problem := log.problem or stable[tp].problem) is not None:
            raise problem
        blank = LogDivergence(
            source=tp,
            target=targets[tp],
            topic_id=ids[tp],
            log=(log.start or 0, log.end or 0),
            stable=stable[tp].end or 0,
        )
        divergence = _divergence(scope, blank, ends, sides)
        if divergence.copy is None and tp.topic in came:
            raise scope.error(
                f"topic {tp.topic} of {scope.config.flow.source} holds records that were on "
                f"{scope.config.flow.target} before (copied by {came[tp.topic]}), and nothing was "
                f"copied back since, so a replay would duplicate these records. Exclude {tp.topic} "
                "with --topics, and save its records with twinlog export",
                code="COPIED_BACK",
            )
        return divergence

    searches = {tp: partial(search, tp) for tp in tps}
    by_partition = search_in_parallel(searches, scope.source, scope.target)
    for topic in hidden:  # its tail is unknown, and must not be left out silently
        tp = TopicPartition(topic, 0)
        targets[tp], ids[tp] = TopicPartition(scope.remote(topic), 0), NO_TOPIC_ID
        by_partition[tp] = denied_error(scope.source.alias, DESCRIBE, topic)
    return [
        LogDivergence(source=tp, target=targets[tp], topic_id=ids[tp], problem=divergence)
        if isinstance(divergence := by_partition[tp], TwinlogError)
        else divergence
        for tp in sorted(by_partition)
    ]


def _came_from_target(scope: CutoverScope, topic: str) -> bool:
    """Return True for a topic of A that is a copy of B's topic, such as `B.orders`. Such topics are
    not copied back.
    """
    if scope.setup.is_identity:
        return False
    return scope.policy.topic_source(topic) == scope.config.target_alias


def _copied_from_target(scope: CutoverScope, topics: Mapping[str, TopicMetadata]) -> dict[str, str]:
    """Return the topics of A whose records were on B before, and the flow that copied them. Topic
    IDs show this even if topic names do not. The map of the flow back distinguishes its own copies
    from A's records (`failback.Reverse`).
    """
    reverse_flow = f"{scope.config.flow.target}->{scope.config.flow.source}"
    home = scope.target.metadata([]).cluster_id or ""
    state = cluster_state(scope.source)
    return {
        name: row.flow
        for name, topic in topics.items()
        for row in state.copies_of(name, topic.topic_id)
        if home and home in row.origins and row.begun
        if row.flow != reverse_flow or not scope.setup.is_identity
    }


def _divergence(
    scope: CutoverScope, blank: LogDivergence, ends: CopyEnds, sides: SearchReads
) -> LogDivergence:
    tp, target, topic_id = blank.source, blank.target, blank.topic_id
    copy = ends.find(tp, target, sides)
    target_id = ends.topic_id(target)
    target_bounds = None if target_id is None else ends.bounds(target)
    divergence = replace(blank, target_id=target_id or NO_TOPIC_ID, target_log=target_bounds)
    if copy is None:
        return divergence
    if NO_TOPIC_ID not in (topic_id, copy.key.source_topic_id) and (
        copy.key.source_topic_id != topic_id
    ):
        raise scope.error(
            f"topic {tp.topic} of {scope.config.flow.source} was re-created after it was copied, "
            "so its offsets do not correspond to the copy. Exclude the topic with --topics, and "
            "save its records with twinlog export",
            code="TAIL_UNKNOWN",
        )
    common, is_compared = copy.ordinal, False
    if not copy.partition_map.transformed:  # transformed records always differ
        common, is_compared = Comparing(scope.name, sides, divergence, copy).common()
    at, lost = copy.reach.upstream, None
    if common < copy.ordinal:
        before = run_at(copy.partition_map.runs, common - 1)
        # the offset right after the last common record, not that of the next copied record, because
        # A may have replaced a marker in between by a record
        at = (
            copy.partition_map.runs[0].upstream
            if before is None
            else before.upstream_of(common - 1) + 1
        )
        lost = Span(at, copy.reach.upstream)
    return replace(
        divergence,
        at=at,
        copy=copy,
        lost=lost,
        lost_records=copy.ordinal - common,
        is_compared=is_compared,
    )


class Comparing:
    """Compares, in one partition, the records that both sides should have."""

    def __init__(
        self, flow: str, sides: SearchReads, divergence: LogDivergence, copy: CopyEnd
    ) -> None:
        self._flow, self._sides, self._copy = flow, sides, copy
        self._source, self._target, self._log = divergence.source, divergence.target, divergence.log

    def common(self) -> tuple[int, bool]:
        """Return (count, compared). `count`: how many of the copy's records both sides have.
        `compared`: True if any records were compared, False if only the map shows the count.
        """
        first = self._copy.partition_map.runs[0].ordinal
        high = min(self._copy.ordinal, self._ordinal_at(self._log[1]))
        lowest = max(first, high - COMPARED)
        newest = self._first_comparable(range(high - 1, lowest - 1, -1))
        if newest is None:
            return high, False
        ordinal, is_same = newest
        if is_same:
            return high, True
        return self._first_difference(first, ordinal), True

    def _first_difference(self, first: int, other: int) -> int:
        """Return the ordinal (index among the copied records) of the first record that differs
        between the two sides, by bisection from `first` on. The records at ordinal `other` are
        known to differ.
        """
        # records below `low` are equal; records in [high, other) cannot be compared
        low, high = first, other
        while low < high:
            middle = (low + high) // 2
            seen = self._first_comparable(range(middle, min(high, middle + COMPARED)))
            if seen is None:
                high = middle
                continue
            ordinal, is_same = seen
            if is_same:
                low = ordinal + 1
            else:
                other, high = ordinal, middle
        if low < other and self._source_has_records(low, other):
            raise FlowError(
                f"{self._source} differs from its copy from offset {self._upstream(other)} on. "
                f"Whether [{self._upstream(low)}, {self._upstream(other)}) differs is unknown, "
                "because not all of these records are still on both sides. Exclude the topic with "
                "--topics, save both sides with twinlog export, and compare them",
                flow=self._flow,
                code="TAIL_UNKNOWN",
            )
        return other

    def _source_has_records(self, low: int, high: int) -> bool:
        """Return True if A still has records at the offsets of the copied records with ordinals in
        [low, high). If not, no record is at risk.
        """
        begin, end = max(self._upstream(low), self._log[0]), self._upstream(high)
        if begin >= end:
            return False
        for header, batch in _batches(self._sides.source, self._source, begin, end):
            if header.is_control:
                continue
            if any(begin <= record.offset < end for record in decode(header, batch)):
                return True
        return False

    def _upstream(self, ordinal: int) -> int:
        run = run_at(self._copy.partition_map.runs, ordinal)
        return (
            self._copy.partition_map.runs[0].upstream if run is None else run.upstream_of(ordinal)
        )

    def _ordinal_at(self, upstream: int) -> int:
        """Return how many records of the copy are before an offset of A."""
        runs = self._copy.partition_map.runs
        at = following(runs, upstream - 1, UPSTREAM)
        if not at:
            return runs[0].ordinal
        run = runs[at - 1]
        ordinal = run.ordinal + upstream - run.upstream
        return min(ordinal, runs[at].ordinal) if at < len(runs) else ordinal

    def _first_comparable(self, ordinals: Iterable[int]) -> tuple[int, bool] | None:
        for ordinal in ordinals:
            is_same = self._is_same(ordinal)
            if is_same is not None:
                return ordinal, is_same
        return None

    def _is_same(self, ordinal: int) -> bool | None:
        """Return True if the copied record with this ordinal is equal on both sides, False if it
        differs, and None if one side no longer has it.
        """
        run = run_at(self._copy.partition_map.runs, ordinal)
        if run is None:
            return None
        source_record = record_at(self._sides.source, self._source, run.upstream_of(ordinal))
        target_record = record_at(self._sides.target, self._target, run.downstream_of(ordinal))
        if MARKER in (source_record, target_record):
            return False  # a marker is at the offset of a copied record, so the logs differ
        if source_record is None or target_record is None:
            return None
        own_time = source_record[1] == target_record[1]
        return same_record(
            source_record[0], target_record[0], compare_timestamp=own_time and not source_record[1]
        )


def _batches(
    logs: LogReads, tp: TopicPartition, position: int, end: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches that have offsets in [position, end)."""
    while position < end:
        answer = or_raise(logs.read(tp, position, FIRST_BYTES))
        before = position
        for header, start in read_headers(answer.records):
            if header.base_offset < end and header.next_offset > position:
                yield header, answer.records[start : start + header.length]
            position = max(position, header.next_offset)
        if position == before:
            return


def record_at(logs: LogReads, tp: TopicPartition, offset: int) -> tuple[Record, bool] | None:
    """Return the record at an offset, with True if the broker set its timestamp. Return MARKER for
    a marker, or None if the offset has no record.
    """
    answer = logs.read(tp, offset, FIRST_BYTES)
    if isinstance(answer, BrokerRefused) and answer.code == "OFFSET_OUT_OF_RANGE":
        return None
    answer = or_raise(answer)
    for header, start in read_headers(answer.records):
        if header.base_offset > offset:
            return None
        if header.is_control:
            return MARKER
        for record in decode(header, answer.records[start : start + header.length]):
            if record.offset == offset:
                return record, header.magic >= 2 and header.is_log_append_time
    return None
