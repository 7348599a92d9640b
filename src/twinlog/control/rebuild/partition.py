"""Finds the lost map of one partition by comparing both logs, without writing anything.

1. The target's batch headers show the producer of each batch. Sequences are ordinals modulo 2^31.
   An ordinal is the number of records that the flow had written to the partition before a record.
   So sequences show K, the target offset minus the ordinal (`writers`).
2. Candidates for the begin of the copy are found. One is the source's first record. Its ordinal is
   unknown, because the target may have deleted its copy. The others are pairs of equal records: any
   source record, and the first record that the target still has. If the source lacks offsets before
   its record, the target record may also be one of the next records.
3. Each candidate is followed to the end of the target, record by record (`rebuilt_map`).

The map is known if all candidates that reach the target's end lead to the same source offset. If
records repeat, two source offsets may fit. Then neither is chosen, because one would skip records,
and the other would copy some again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_partition
from twinlog.errors import PartitionError, TwinlogError
from twinlog.mirror.copy.intake import RolledBack
from twinlog.mirror.map.rebuilt_map import (
    ABSENT,
    FROM_BEGINNING,
    FollowedPath,
    Follower,
    NumberedRecord,
    Pair,
    RunList,
    Slot,
    TargetWindow,
    number_of,
)
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.skips import Skip, skip_at
from twinlog.mirror.start.alignment import identity
from twinlog.mirror.start.tail_check import decode
from twinlog.model import Isolation, TopicPartition, sequences_ahead
from twinlog.wire.record_batch import BatchHeader, read_headers, verify_crc
from twinlog.wire.records import Record

HEAD: Final = 20_000
"""Number of records at the target's start that are searched for in the source."""
SEARCHED_FROM_BEGINNING: Final = 1 << 20
"""The source's first record is searched for while both logs are followed, unless its copy may be
after this many records of the flow. Then it is searched for like any other record
(`_from_first_is_near`).
"""
MAX_BEGINNINGS: Final = 1_000

OnStep = Callable[[str, int, int], None]
"""Called with the name of a log, the number of offsets read so far, and their total number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The rebuilt map of one partition."""

    runs: RunList
    producers: frozenset[int]
    next_upstream: int
    """The source offset at which the copy resumes."""
    next_ordinal: int
    last_producer: int
    """The producer ID of the target's last batch."""


@dataclass(slots=True, kw_only=True)
class _Beginnings:
    """Pairs of equal records, one of the source and one of the target, at which the copy may have
    begun. A source record's number is its index among the records that the source still has. A
    target record's ordinal is the number of the flow's records before it.
    """

    pairs: dict[Pair, int] = field(default_factory=dict)
    """Number of the source record, by pair (source offset, ordinal of the target record)."""
    far: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Source records that are searched for in the whole target, by the hash of their content
    (`number_of`): (offset, number, count of offsets without a record before the source record).
    """

    def add(self, upstream: int, ordinal: int, number: int) -> None:
        if len(self.pairs) >= MAX_BEGINNINGS:
            raise PartitionError(
                f"records repeat, so the copy may have begun at more than {MAX_BEGINNINGS} places",
                code="REBUILD_AMBIGUOUS",
            )
        self.pairs.setdefault((upstream, ordinal), number)

    def search(self, slot: Slot, number: int, room: int) -> None:
        if len(self.far) >= HEAD:
            raise PartitionError(
                f"before offset {slot.offset}, the source has more than {HEAD} large gaps, and the "
                "copy may have begun after any of them",
                code="REBUILD_AMBIGUOUS",
            )
        self.far.setdefault(slot.number, []).append((slot.offset, number, room))


class Rebuild:
    """Rebuilds the map of one partition from the logs `source` and `target`."""

    def __init__(
        self,
        plan: PartitionPlan,
        source: RebuildLog,
        target: RebuildLog,
        producers: frozenset[int],
        on_step: OnStep,
    ) -> None:
        self._plan = plan
        self._on_step = on_step
        self._source = self._with_progress(source, "source")
        self._target = self._with_progress(target, "target")
        self._ours = producers
        self._written = TargetWriters()
        self._with_timestamp = True

    def rebuild(self) -> Rebuilt:
        """Return the map. Raises PartitionError if it cannot be determined from the logs."""
        self._written = writers(self._target, self._ours)
        self._with_timestamp = not self._written.has_log_append_time
        head = list(islice(self._target_records(self._written.first), HEAD))
        if not head:
            raise self._differs_error(
                f"nothing of this flow is left in [{self._target.start}, {self._target.end}), so "
                "there is nothing to compare"
            )
        followed = self._followed(head)
        return Rebuilt(
            runs=followed.runs,
            producers=frozenset(self._written.producers),
            next_upstream=followed.ends[0],
            next_ordinal=self._end_ordinal,
            last_producer=self._written.last_producer,
        )

    # -- beginnings

    def _followed(self, head: list[NumberedRecord]) -> FollowedPath:
        from_first = self._from_first_is_near()
        beginnings = self._beginnings(head, from_first=from_first)
        waiting = set(beginnings.pairs)
        tries: list[FollowedPath] = []
        if from_first:
            tries.append(self._follow(FROM_BEGINNING, -1, waiting))
        for pair in sorted(beginnings.pairs):
            if len(_ends(tries)) > 1:
                break
            if pair in waiting:
                waiting.discard(pair)
                tries.append(self._follow(pair[1], pair[0], waiting))
                self._extend(tries[-1].runs, pair, beginnings.pairs[pair], head[0].ordinal)
        ends = _ends(tries)
        if len(ends) > 1:
            raise PartitionError(
                f"{self._plan.target}: its records fit {self._plan.source} in more than one way, "
                f"so the copy could resume at {' or at '.join(map(str, ends[:2]))}. One of these "
                "offsets would skip records, and the other would copy records twice. Nothing is "
                "written to the map",
                code="REBUILD_AMBIGUOUS",
            )
        if not ends:
            raise self._mismatch_error(tries, head)
        return next(attempt for attempt in tries if attempt.ends and attempt.equal)

    def _from_first_is_near(self) -> bool:
        """Return True if the copy of the source's first record is certainly among the first
        SEARCHED_FROM_BEGINNING records of the flow. Then it is searched for while both logs are
        followed, otherwise like any other record.
        """
        return self._end_ordinal <= SEARCHED_FROM_BEGINNING or (
            self._source.start == 0 and self._first_ordinal <= SEARCHED_FROM_BEGINNING
        )

    def _beginnings(self, head: list[NumberedRecord], *, from_first: bool) -> _Beginnings:
        """Return every pair of equal records at which the copy may have begun. Before the source
        record, at least as many offsets must be without a record as target records precede the
        pair.
        """
        out = _Beginnings()
        first = head[0].ordinal
        ordinals: dict[int, list[int]] = {}
        for record in head:
            ordinals.setdefault(record.number, []).append(record.ordinal)
        reaches_on = len(head) == HEAD
        for number, slot in enumerate(self._source_records(self._source.start)):
            if slot.number == ABSENT or (not number and from_first):
                continue
            # offsets before the first record, deleted by retention, count as without a record
            room = slot.holes + (0 if number else self._source.start)
            for ordinal in ordinals.get(slot.number, ()):
                if ordinal - first <= room:
                    out.add(slot.offset, ordinal, number)
            if reaches_on and room > head[-1].ordinal - first:
                out.search(slot, number, room)
        if out.far:
            self._search(out, first)
        return out

    def _search(self, beginnings: _Beginnings, first: int) -> None:
        for record in self._target_records(self._written.first):
            for upstream, number, room in beginnings.far.get(record.number, ()):
                if record.ordinal - first <= room:
                    beginnings.add(upstream, record.ordinal, number)

    def _follow(self, ordinal: int, upstream: int, waiting: set[Pair]) -> FollowedPath:
        begin = max(0, ordinal)
        window = TargetWindow(self._target_records(self._k + begin), begin, self._end_ordinal)
        slots = self._source_records(self._source.start if ordinal == FROM_BEGINNING else upstream)
        if ordinal == FROM_BEGINNING:
            slots = _with_room(slots, self._source.start)
        return Follower(window, self._k, waiting).follow(slots, ordinal)

    def _extend(self, runs: RunList, pair: Pair, number: int, first: int) -> None:
        """Extend the runs to the record at which the copy began, if the target has deleted that
        record. `first`: ordinal of the flow's first record that the target still has.

        `number` source records precede the pair's source record, and as many copied records as its
        ordinal says precede its target record. The map begins the smaller of both numbers earlier,
        unless the source was compacted in between.
        """
        upstream, ordinal = pair
        back = min(number, ordinal)
        if ordinal != first or not back or not len(runs):
            return
        began = next(islice(self._source_records(self._source.start), number - back, None))
        if began.number == ABSENT or upstream - began.offset < back:
            return  # the source was compacted since the pair was found
        extended = RunList(k=runs.k)
        extended.add(ordinal - back, began.offset)
        for index in range(len(runs)):
            extended.add(runs[index].ordinal, runs[index].upstream)
        runs.ordinals, runs.upstreams = extended.ordinals, extended.upstreams

    # -- both logs

    @property
    def _k(self) -> int:
        assert self._written.k is not None  # noqa: S101 (there is a record of ours)
        return self._written.k

    @property
    def _first_ordinal(self) -> int:
        return self._written.first - self._k

    @property
    def _end_ordinal(self) -> int:
        return self._target.end - self._k

    def _with_progress(self, log: RebuildLog, side: str) -> RebuildLog:
        name, size = f"{side} {log.tp}", log.end - log.start
        return replace(
            log, on_read=lambda offset: self._on_step(name, max(0, offset - log.start), size)
        )

    def _source_records(self, begin: int) -> Iterator[Slot]:
        return source_records(self._source, begin, with_timestamp=self._with_timestamp)

    def _target_records(self, begin: int) -> Iterator[NumberedRecord]:
        if self._written.k is None:
            return iter(())
        begin = max(begin, self._written.first)
        return target_records(self._target, begin, self._k, with_timestamp=self._with_timestamp)

    # -- refusals

    def _mismatch_error(
        self, tries: Iterable[FollowedPath], head: list[NumberedRecord]
    ) -> PartitionError:
        furthest = max(
            (attempt for attempt in tries if attempt.differs is not None and attempt.equal),
            key=lambda followed: followed.differs or (0, 0),
            default=None,
        )
        if furthest is None or furthest.differs is None or not len(furthest.runs):
            return self._differs_error(
                f"its first record, at offset {self._k + head[0].ordinal}, was not found in the "
                f"source's range [{self._source.start}, {self._source.end}) at any offset where "
                "the copy can have begun, and the source's first record is not on the target"
            )
        upstream, ordinal = furthest.differs
        begin, offset = furthest.runs[0], self._k + ordinal
        return self._differs_error(
            f"target offsets [{begin.downstream}, {offset}) are copies of source offsets "
            f"[{begin.upstream}, {upstream}), and the next records differ: target "
            f"[{offset}, {self._target.end}), source [{upstream}, {self._source.end})"
        )

    def _differs_error(self, what: str) -> PartitionError:
        return PartitionError(
            f"{self._plan.target} is not an ordered copy of {self._plan.source}: {what}. Nothing "
            "is written to the map. Before anything is deleted, compare both sides from this "
            "offset on, and save records that only one side has",
            code="REBUILD_MISMATCH",
        )


def _ends(tries: Iterable[FollowedPath]) -> list[int]:
    return sorted({end for attempt in tries if attempt.equal for end in attempt.ends})


def _with_room(slots: Iterator[Slot], deleted: int) -> Iterator[Slot]:
    """Yield the slots. The first one gets `deleted`, the number of offsets that retention deleted
    before it, as additional holes.
    """
    first = next(slots)
    yield first._replace(holes=first.holes + deleted)
    yield from slots


READ_BYTES: Final = 4 << 20

OnRead = Callable[[int], None]
"""Called with the offset up to which a log has been read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildLog:
    """One partition's log, from its start to the end that it had when it was queried."""

    client: ClusterClient
    tp: TopicPartition
    start: int
    end: int
    may_lack_offsets: bool
    """True if the topic may be compacted, so that records at some offsets may be missing."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    skips: tuple[Skip, ...] = ()
    """Records that `topic skip` left out of the copy, so the target never had them."""
    on_read: OnRead = lambda _: None


@dataclass(slots=True, kw_only=True)
class TargetWriters:
    """The result of reading all batch headers of a target partition."""

    k: int | None = None
    """Target offset minus ordinal (number of the flow's earlier records), which is the same for all
    records of the flow. It follows from the producers' sequences. None if the flow has written no
    batch.
    """
    first: int = 0
    """Offset of the flow's first batch that the log still has."""
    producers: set[int] = field(default_factory=set)
    last_producer: int = -1
    has_log_append_time: bool = False


def writers(log: RebuildLog, producers: frozenset[int]) -> TargetWriters:
    """Read all batch headers. Raises PartitionError unless the flow wrote every batch and sequences
    are contiguous.

    A sequence is the ordinal modulo 2^31, for all of the flow's producer IDs. So K is the base
    offset minus the base sequence of any batch, modulo 2^31. Any K that is equal modulo 2^31 yields
    the same sequences, and nothing else is compared. Batches of other producers are accepted only
    before the flow's ordinal 0, because they were there when the flow took over the topic.
    """
    out = TargetWriters()
    foreign = -1
    for header, _ in _batches(log):
        if header.magic < 2 or header.is_control or header.producer_id not in producers:
            if out.k is not None:
                raise _foreign_error(log.tp, header, "was not written by this flow")
            foreign = header.base_offset
            continue
        k = header.base_offset - header.base_sequence
        if out.k is None:
            if k < 0 or (foreign >= 0 and header.base_sequence):
                raise _foreign_error(
                    log.tp,
                    header,
                    f"has sequence {header.base_sequence}, so records of this flow are missing "
                    "before it",
                )
            out.k, out.first = k, max(header.base_offset, log.start)
        elif off := sequences_ahead(out.k, k):
            raise _foreign_error(
                log.tp,
                header,
                f"has sequence {header.base_sequence}, so {abs(off)} records before it are "
                + ("missing" if off > 0 else "too many"),
            )
        out.producers.add(header.producer_id)
        out.last_producer = header.producer_id
        out.has_log_append_time = out.has_log_append_time or header.is_log_append_time
    return out


def _foreign_error(tp: TopicPartition, header: BatchHeader, what: str) -> PartitionError:
    return PartitionError(
        f"{tp}: the batch at offset {header.base_offset} {what}. Nothing is written to the map. "
        "Find out which client wrote to this topic. Before any other step, save records that only "
        "this topic has",
        code="REBUILD_FOREIGN",
    )


def target_records(
    log: RebuildLog, begin: int, k: int, *, with_timestamp: bool
) -> Iterator[NumberedRecord]:
    """Yield the target's records from offset `begin` on, each with its ordinal, which is its offset
    minus `k`.
    """
    for header, batch in _batches(log, begin):
        for record in () if batch is None else decode(header, batch):
            if begin <= record.offset < log.end:
                yield NumberedRecord(
                    record.offset - k, _number(record, with_timestamp=with_timestamp)
                )


def source_records(log: RebuildLog, begin: int, *, with_timestamp: bool) -> Iterator[Slot]:
    """Yield a slot for each record that the copy reads from offset `begin` on, with the number of
    missing records before it. The last slot is the log end, with the number ABSENT.
    """
    expected, holes = begin, 0
    for header, batch in _batches(log, begin):
        if header.magic >= 2 and header.base_offset > expected:
            holes += header.base_offset - expected
            expected = header.base_offset
        for record in () if batch is None else decode(header, batch):
            if not begin <= record.offset < log.end:
                continue
            holes += record.offset - expected
            if skip_at(log.skips, record.offset) is not None:
                expected = record.offset + 1
                continue
            yield Slot(
                holes if log.may_lack_offsets else 0,
                record.offset,
                _number(record, with_timestamp=with_timestamp),
            )
            expected, holes = record.offset + 1, 0
        next_offset = min(header.next_offset, log.end)
        if next_offset > expected:
            holes += 0 if batch is None else next_offset - expected
            expected = next_offset
    holes += max(0, log.end - expected)
    yield Slot(holes if log.may_lack_offsets else 0, log.end, ABSENT)


def _number(record: Record, *, with_timestamp: bool) -> int:
    return number_of(identity(record, with_timestamp=with_timestamp))


def _batches(
    log: RebuildLog, begin: int | None = None
) -> Iterator[tuple[BatchHeader, memoryview | None]]:
    """Yield header and bytes of every batch up to the log's end. The bytes are None if readers do
    not get the batch's records.
    """
    position = log.start if begin is None else begin
    while position < log.end:
        answer = _fetch(log, position)
        before = position
        rolled_back = RolledBack(answer.aborted)
        for header, start in read_headers(answer.records):
            skip = skip_at(log.skips, max(header.base_offset, position))
            if skip is not None and skip.is_batch and header.base_offset < log.end:
                position = skip.next
                yield header._replace(last_offset_delta=skip.next - 1 - header.base_offset), None
                # fetch again after the skipped range, because an aborted transaction may end in it
                break
            verify_crc(answer.records, start, header)
            batch = answer.records[start : start + header.length]
            is_gone = rolled_back.skip(header, batch)
            if header.next_offset <= before or header.base_offset >= log.end:
                continue
            is_hidden = log.isolation is Isolation.READ_COMMITTED and is_gone
            position = max(position, header.next_offset)
            yield header, None if is_hidden or header.is_control else batch
        log.on_read(min(position, log.end))
        if position > before:
            continue
        if not log.may_lack_offsets:
            raise PartitionError(
                f"{log.tp} cannot be read after offset {position}, although its log ends at "
                f"{log.end}. Nothing is written to the map. Check that segment on the partition's "
                "leader with kafka-dump-log.sh",
                code="REBUILD_UNREADABLE",
            )
        return


def _fetch(log: RebuildLog, position: int) -> FetchedRecords:
    def ask() -> FetchedRecords:
        return fetch_partition(log.client, log.tp, position, READ_BYTES, isolation=log.isolation)

    try:
        return log.client.retrying(ask)
    except TwinlogError as error:
        if error.code != "OFFSET_OUT_OF_RANGE":
            raise
        raise moved_error(log.tp, f"offset {position} was deleted while it was read") from error


def moved_error(tp: TopicPartition, what: str) -> PartitionError:
    """Return the error for a log that changed while it was read."""
    return PartitionError(
        f"{tp}: {what}. Nothing is written to the map. Run the command again while no mirror runs",
        code="REBUILD_MOVED",
    )
