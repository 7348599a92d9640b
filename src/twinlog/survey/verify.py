"""Verifies one partition or a section of it: walks both logs from the first record that neither has
deleted to the end of the copy. The rules are those of `mirror.verify`.

**Sections.** Tasks walk sections of a partition in parallel, each by its part of the offset map. If
a record was lost in an earlier section, all later records are at lower target offsets than in the
map. A section then finds its first record missing, and a record of the next section extra. That
result is right for the section but wrong for the partition. So adjacent sections that both differ
are walked again as one section. A section that differs alone keeps its result, because its
neighbours are identical, so both logs match the map at both of its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, list_offsets
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_partition, shorter_log_error
from twinlog.errors import PartitionError, TwinlogError
from twinlog.mirror.copy.intake import RolledBack
from twinlog.mirror.map.offset_map import Mark, PartitionMap
from twinlog.mirror.map.runs import UPSTREAM, Run, following
from twinlog.mirror.map.translation import Reach, reach_at
from twinlog.mirror.plan import PartitionPair
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.verify.difference import Compared, DifferenceKind, GapCause
from twinlog.mirror.verify.matching import OffsetPairs, with_own_batches
from twinlog.mirror.verify.side import Piece, ReadSide
from twinlog.mirror.verify.walk import LogWalk, Rules
from twinlog.model import Isolation, TopicPartition
from twinlog.survey.transformed_source import Functions, TransformedSource
from twinlog.wire.record_batch import read_headers

# Reads a log batch by batch, with markers and aborted batches, which readers do not see.

READ_BYTES: Final = 4 << 20


@dataclass(slots=True, kw_only=True)
class VerifiedLog:
    """One partition's log. `start` increases if retention deletes records before they are read."""

    client: ClusterClient
    tp: TopicPartition
    start: int
    end: int
    """The end, which is queried once. Records after it are not read."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    read_bytes: int = READ_BYTES
    """Maximum bytes per fetch."""
    bytes: int = 0
    """Bytes of the batches that were read."""
    _queried_end: int = field(init=False)
    """The end as queried, which the log certainly had. `end` may be raised later."""

    def __post_init__(self) -> None:
        self._queried_end = self.end

    def pieces(self, begin: int) -> Iterator[Piece]:
        """Yield all batches that begin below the end, from the batch with offset `begin` on.

        Raises TwinlogError if the cluster cannot be queried, and CorruptData if a header is
        invalid. The caller verifies checksums.
        """
        position = begin
        while position < self.end:
            answer = self._fetch(position)
            if answer is None:
                position = max(position, self.start)
                continue
            before = position
            rolled_back = RolledBack(answer.aborted)
            for header, start in read_headers(answer.records):
                batch = answer.records[start : start + header.length]
                is_gone = rolled_back.skip(header, batch)
                if header.next_offset <= before:
                    continue
                if header.base_offset >= self.end:
                    return
                position = max(position, header.next_offset)
                self.bytes += header.length
                if header.is_control:
                    yield Piece(header, batch, GapCause.MARKERS)
                else:
                    yield Piece(header, batch, GapCause.ABORTED if is_gone else None)
            if position == before:
                return  # the log was compacted up to its end

    def _require_whole(self, answer: FetchedRecords, position: int) -> None:
        """Raise an error if the log is shorter than it is known to have been.

        A new leader returns nothing until it knows again how far the log is committed. A leader
        that lost the log's end never returns it. In a compacted topic both cases would look like a
        cleaned log.
        """
        is_committed = self.isolation is Isolation.READ_COMMITTED
        end = answer.last_stable_offset if is_committed else answer.high_watermark
        if not answer.records and end < self._queried_end and position < self._queried_end:
            detail = f"its log ended at {self._queried_end} before, and ends at {end} now"
            raise shorter_log_error(self.client, self.tp, position, detail)

    def _fetch(self, position: int) -> FetchedRecords | None:
        """Return the records at a position. If they were deleted, set `start` and return None."""

        def ask() -> FetchedRecords:
            answer = fetch_partition(
                self.client, self.tp, position, self.read_bytes, isolation=self.isolation
            )
            self._require_whole(answer, position)
            return answer

        try:
            return self.client.retrying(ask)
        except TwinlogError as error:
            if error.code != "OFFSET_OUT_OF_RANGE":
                raise
            start = list_offsets(self.client, [self.tp], EARLIEST)[self.tp]
            if isinstance(start, TwinlogError) or start.offset <= position:
                raise
            self.start = start.offset
            return None


NOT_COPIED = "not copied, and no mirror is running"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBounds:
    """Bounds of a log, queried once."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTask:
    """A partition or a section of it, with everything that is queried before the comparison.

    The source's end was queried first, then the target's end, then the map. So the map covers all
    records below the target's end.
    """

    source: TopicPartition
    target: TopicPartition
    here: PartitionBounds
    there: PartitionBounds
    later_source_end: int
    """A source offset that is above every copied record that was read. Usually it is the source's
    end, queried after the map.
    """
    mapped_copy: MappedCopy
    producers: frozenset[int]
    """All producer IDs of the flow and of the partition's map."""
    rules: Rules
    isolation: Isolation
    is_led: bool
    source_may_lack: bool
    target_may_lack: bool
    since: int = 0
    until: int | None = None
    """Source offset at which the section ends, or None for the end of the partition."""
    transform: str = ""
    """Digest of the transforms of the partition, or empty if its records were copied unchanged."""
    is_first: bool = True
    """True if records before the section are counted in it, as in exactly one section of a
    partition.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedCopy:
    """The copied part of a partition, according to the offset map."""

    runs: Sequence[Run] = ()
    """The map's runs (consecutive offsets on both sides), or empty if the map has no row of the
    copy.
    """
    mark: Mark | None = None
    reach: Reach | None = None
    """The end of the copy, or None if other clients also write to the topic, so that the end must
    be found in the log.
    """

    @classmethod
    def of(
        cls, partition_map: PartitionMap | None, reach: Reach | None, there_later: int
    ) -> MappedCopy:
        """Return the copy up to `reach`, or up to a later end if the map shows that the copy was
        longer.

        `there_later` is the target's end after the map was read. If the map's `Mark` (a target
        offset that the copy has reached) is after this end, the target's log was longer.
        """
        if partition_map is None or not partition_map.runs:
            return cls()
        if (
            reach is not None
            and partition_map.mark is not None
            and partition_map.mark.downstream > there_later
        ):
            reach = max(
                reach,
                reach_at(
                    partition_map.runs, partition_map.mark.ordinal, partition_map.mark.downstream
                ),
            )
        return cls(runs=partition_map.runs, mark=partition_map.mark, reach=reach)


OnStep = Callable[[int], None]
"""Called with the number of target offsets that were compared since the last call."""


def verify_partition(
    task: VerifyTask,
    source: ClusterClient,
    target: ClusterClient,
    on_step: OnStep,
    result: Compared,
    *,
    read_bytes: int = READ_BYTES,
    functions: Functions | None = None,
) -> None:
    """Compare a partition, and add the differences to `result`. `functions` runs the transforms of
    the partition. Raises TwinlogError if the rest of the partition cannot be compared.
    """
    source_log = VerifiedLog(
        client=source,
        tp=task.source,
        start=task.here.start,
        end=task.here.end,
        isolation=task.isolation,
        read_bytes=read_bytes,
    )
    target_log = VerifiedLog(
        client=target,
        tp=task.target,
        start=task.there.start,
        end=task.there.end,
        read_bytes=read_bytes,
    )
    try:
        _Partition(task, source_log, target_log, on_step, result, functions).compare()
    finally:
        result.bytes = target_log.bytes


@dataclass(slots=True)
class _Partition:
    """Compares both logs of one partition."""

    _wanted: VerifyTask
    _source_log: VerifiedLog
    _target_log: VerifiedLog
    _on_step: OnStep
    _found: Compared
    _functions: Functions | None
    _reported: int = 0

    def compare(self) -> None:
        target_log = self._target_log
        if self._wanted.mapped_copy.runs:
            self._copied()
            return
        if target_log.end > target_log.start and not self._wanted.rules.is_shared:
            raise PartitionError(
                f"{target_log.tp}: the log has records, but the offset map has no row for them; "
                "rebuild the map from both logs with twinlog offsets rebuild",
                code="MAP_MISSING",
            )
        self._never_copied()

    def _never_copied(self) -> None:
        begin = max(self._source_log.start, self._first_offset)
        side = self._source_side(begin, begin)
        # a walk needs a run of the map (consecutive offsets on both sides); nothing is copied yet,
        # so use a run that begins at the first offset
        walk = LogWalk(
            pairs=OffsetPairs([Run(0, begin, self._target_log.end)]),
            source=side,
            target=self._target_side(self._target_log.end),
            rules=self._wanted.rules,
            result=self._found,
        )
        self._find_pending(walk)

    def _copied(self) -> None:
        runs, reach = self._runs_and_reach()
        pairs, wanted = OffsetPairs(runs), self._wanted
        limit = reach.upstream if wanted.until is None else min(reach.upstream, wanted.until)
        begin, begin_on_target = self._begin(pairs, limit)
        # records that a mirror has copied since the source's end was queried are also read
        self._source_log.end = max(self._source_log.end, limit)
        # offsets that the source did not have at its last query are not counted as compacted away
        here_end = max(wanted.later_source_end, wanted.here.end)
        side = self._source_side(begin, max(begin, min(limit, here_end)))
        target = self._target_side(begin_on_target)
        if limit < reach.upstream:
            target.limit = max(begin_on_target, pairs.first_counterpart(limit))
        elif wanted.rules.is_shared:
            target.limit = min(target.limit, max(begin_on_target, reach.downstream))
        walk = LogWalk(
            pairs=pairs,
            source=side,
            target=target,
            rules=wanted.rules,
            result=self._found,
            on_step=self._report,
        )
        self._reported = begin_on_target
        walk.walk()
        self._report(target.limit)
        if limit == reach.upstream:
            self._find_pending(walk)

    def _find_pending(self, walk: LogWalk) -> None:
        is_led, end, until = self._wanted.is_led, self._wanted.here.end, self._wanted.until
        end = end if until is None else min(until, end)
        records = walk.find_pending(end, count_all=not is_led)
        pending = self._found.pending
        if pending is not None and not is_led:
            self._found.add_difference(DifferenceKind.MISSING, pending, None, records, NOT_COPIED)

    @property
    def _first_offset(self) -> int:
        return min(self._wanted.since, self._source_log.end)

    def _runs_and_reach(self) -> tuple[Sequence[Run], Reach]:
        """Return (runs of the partition's map, end of the copy on both sides)."""
        written, target_log = self._wanted.mapped_copy, self._target_log
        if written.reach is not None:
            return written.runs, written.reach
        first = written.runs[0]
        mark = written.mark or Mark(first.ordinal, first.downstream)
        headers = (
            piece.header for piece in target_log.pieces(max(mark.downstream, target_log.start))
        )
        runs, mark = with_own_batches(written.runs, mark, headers, self._wanted.producers)
        target_log.bytes = 0
        return runs, reach_at(runs, mark.ordinal, mark.downstream)

    def _begin(self, pairs: OffsetPairs, limit: int) -> tuple[int, int]:
        """Return the (source offset, target offset) at which the comparison begins: the first
        record of this section that is in the map and that neither log has deleted. Count the
        earlier records as gaps, by cause.
        """
        gaps, first = self._found.gaps, pairs.first
        source_log, target_log = self._source_log, self._target_log
        begin = max(source_log.start, first.upstream)
        # a comparison that begins later gets only later runs of the map (`with_needed_runs`)
        if self._wanted.is_first and self._wanted.since <= first.upstream:
            gaps[GapCause.BEFORE_COPY] += max(0, first.upstream - source_log.start)
            gaps[GapCause.BEFORE_MAP] += max(0, first.downstream - target_log.start)
            begins_at = min(pairs.first_counterpart(begin), target_log.end)
            gaps[GapCause.SOURCE_DELETED] += max(
                0, begins_at - max(first.downstream, target_log.start)
            )
        begin = max(begin, self._first_offset)
        begin_there = pairs.first_counterpart(begin)
        if target_log.start > begin_there:
            gaps[GapCause.TARGET_DELETED] += max(
                0, min(target_log.start, pairs.first_counterpart(limit)) - begin_there
            )
            return max(begin, pairs.first_origin(target_log.start)), target_log.start
        return begin, begin_there

    def _source_side(self, begin: int, limit: int) -> ReadSide:
        first = max(begin, self._source_log.start)
        pieces = self._source_log.pieces(first)
        if self._wanted.transform and self._functions is not None:
            pieces = TransformedSource(
                self._wanted.source, self._functions, self._wanted.rules.skips
            ).pieces(pieces, first)
        return ReadSide(
            pieces,
            begin,
            limit,
            start=lambda: self._source_log.start,
            may_lack=self._wanted.source_may_lack,
            result=self._found,
        )

    def _target_side(self, begin: int) -> ReadSide:
        return ReadSide(
            self._target_log.pieces(max(begin, self._target_log.start)),
            begin,
            self._target_log.end,
            start=lambda: self._target_log.start,
            may_lack=self._wanted.target_may_lack,
            result=self._found,
        )

    def _report(self, offset: int) -> None:
        if offset > self._reported:
            self._on_step(offset - self._reported)
            self._reported = offset


def rules_of(
    intents: FlowIntents, pair: PartitionPair, *, is_shared: bool, is_deep: bool = False
) -> Rules:
    """Return the rules of a comparison. By these rules, source records that operators have skipped,
    and target records that they have accepted, are no differences. `is_deep`: every record is
    decoded, even in equal batches.
    """
    skips = (skip for skip in intents.skips if skip.is_of(pair.source, pair.source_topic_id))
    accepted = (
        acceptance
        for acceptance in intents.accepted
        if acceptance.is_of(pair.target, pair.target_topic_id)
    )
    return Rules(
        skips=tuple(skip.skipped for skip in skips),
        accepted=tuple(span for acceptance in accepted for span in acceptance.accepted.ranges),
        is_shared=is_shared,
        is_deep=is_deep,
    )


LEAST_OFFSETS: Final = 100_000
"""Minimum number of offsets per section. A smaller section is not worth a separate task."""
MOST_OFFSETS: Final = 1_000_000
"""Maximum number of offsets per section. A lost task is repeated as a whole, and the part of the
map that a section needs is sent in one message.
"""
TASKS: Final = 64
"""Minimum number of sections of all partitions together, unless sections would be too small."""


def size(tasks: Sequence[VerifyTask]) -> int:
    """Return the number of offsets per section for these partitions."""
    total = sum(max(0, task.there.end - task.there.start) for task in tasks)
    return min(max(total // TASKS, LEAST_OFFSETS), MOST_OFFSETS)


def split(task: VerifyTask, offsets: int) -> list[VerifyTask]:
    """Split a partition into sections of at most `offsets` source offsets, in order.

    There is only one section if other clients also write to the topic. This flow's records are then
    found only by reading from the map's `Mark` on, a target offset that the copy has reached.
    """
    reach = task.mapped_copy.reach
    if reach is None:
        return [task]
    first = max(task.here.start, task.mapped_copy.runs[0].upstream, task.since)
    end = reach.upstream if task.until is None else min(reach.upstream, task.until)
    count = max(1, -(-(end - first) // offsets))
    limits = [first + (end - first) * index // count for index in range(1, count)]
    begins = [task.since, *limits]
    ends = [*limits, task.until]
    return [
        replace(task, since=begin, until=until, is_first=task.is_first and not index)
        for index, (begin, until) in enumerate(zip(begins, ends, strict=True))
    ]


def with_needed_runs(task: VerifyTask) -> VerifyTask:
    """Return the section with only those runs of the map (consecutive offsets on both sides) that
    it needs, because a map may have millions. The first run after the section is kept, because its
    begin is the end of the last needed run.
    """
    runs, reach = task.mapped_copy.runs, task.mapped_copy.reach
    if reach is None:
        return task
    low = max(0, following(runs, task.since, UPSTREAM) - 1)
    high = len(runs) if task.until is None else following(runs, task.until, UPSTREAM) + 1
    return replace(task, mapped_copy=replace(task.mapped_copy, runs=tuple(runs[low:high])))


def ranges_to_repeat(
    sections: Sequence[VerifyTask], results: Sequence[Compared]
) -> list[tuple[int, int]]:
    """Return index ranges [first, next) in `sections`. The sections of a range all differ, so they
    must be compared again as one section.
    """
    out: list[tuple[int, int]] = []
    first = 0
    for index in range(len(sections) + 1):
        if index < len(sections) and not results[index].is_identical:
            continue
        if index - first > 1:
            out.append((first, index))
        first = index + 1
    return out


def joined(sections: Sequence[VerifyTask]) -> VerifyTask:
    """Join adjacent sections of a partition into one section."""
    return replace(sections[0], until=sections[-1].until)


def combined(results: Sequence[Compared]) -> Compared:
    """Combine the results for the sections of a partition, in order."""
    out = Compared()
    for result in results:
        out.add(result)
    return out
