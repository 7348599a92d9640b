"""Where a copy resumes, by the kind of its topic and by what happened to its target. These are the
cells of the table of ADR 32, on in-memory logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Final

import pytest

from tests.support.memory_log import LaggingLog, MemoryLog, MemoryView, find_starts
from twinlog.errors import TwinlogError
from twinlog.mirror.copy.fan_out import partition_of, read_to
from twinlog.mirror.map.offset_map import Mark, Run
from twinlog.mirror.ports import RawRecords
from twinlog.mirror.start.fan_start import find_fan_start
from twinlog.mirror.start.our_end import LongSearch
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start_point import StartPoint
from twinlog.model import Isolation, StartAt, TopicId, TopicPartition
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

OURS, STRANGER, OTHER_FLOW = 9, 77, 12
SOURCE_ID, TARGET_ID = TopicId("a" * 32), TopicId("b" * 32)
HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 0)
NOW: Final = 1_700_000_000_000


class Kind(Enum):
    """Which clients can write to the target topic, and where this flow's records are."""

    OWN = "own"
    SHARED = "shared"
    KEYED = "keyed"


def record(number: int) -> Record:
    return Record(number, NOW + number, b"k", b"v%d" % number)


@dataclass
class Copy:
    """A source with records 0 to `made`, and a target whose records a test writes."""

    kind: Kind
    made: int = 30
    source: MemoryLog = field(default_factory=MemoryLog)
    target: MemoryLog = field(default_factory=MemoryLog)
    mark: Mark | None = None
    runs: tuple[Run, ...] = ()
    rules: StartRules = field(init=False)
    request: StartRequest = field(init=False)
    reads: int = 0

    def __post_init__(self) -> None:
        self.source.write([record(number) for number in range(self.made)])
        self.rules = StartRules(
            producer_id=OURS,
            is_ours_alone=self.kind is Kind.OWN,
            isolation=Isolation.READ_UNCOMMITTED,
            known_producers=frozenset({OURS, OTHER_FLOW}),
        )
        self.request = StartRequest(
            source=HERE,
            target=THERE,
            source_topic_id=SOURCE_ID,
            target_topic_id=TARGET_ID,
            runs=(),
            our_producers=frozenset({OURS}),
            is_branch=self.kind is Kind.KEYED,
        )
        self.begins()

    def begins(self) -> None:
        """Write the first map row of the copy, before any record."""
        end = self.target.end
        self.runs = (read_to(0, 0),) if self.kind is Kind.KEYED else (Run(0, 0, end),)
        if self.kind is not Kind.OWN:
            self.mark = Mark(0, end)

    def ours(self, first: int, count: int) -> None:
        """Append a batch of this flow's records."""
        records = [record(number) for number in range(first, first + count)]
        data = encode_batch(records, codec=Codec.NONE, producer_id=OURS, base_sequence=first)
        answer = self.target.append(bytes(data))
        assert not answer.error
        if self.kind is Kind.KEYED:
            last = first + count - 1
            self.runs = (*self.runs, Run(last, last, answer.base_offset + count - 1))

    def marked(self, *, is_final: bool = False) -> None:
        """Write a mark at the log's end: all records of this flow are before it."""
        if self.kind is not Kind.OWN:
            ours = [one.header for one in self.target.batches if one.header.producer_id == OURS]
            ordinal = ours[-1].base_sequence + ours[-1].count if ours else 0
            self.mark = Mark(ordinal, self.target.end, is_final)

    def theirs(self, count: int, producer_id: int = STRANGER) -> None:
        """Append records of another client."""
        known = self.target.producer(producer_id)
        first = 0 if known is None else known.last_sequence + 1
        records = [record(1000 + number) for number in range(count)]
        data = encode_batch(records, codec=Codec.NONE, producer_id=producer_id, base_sequence=first)
        assert not self.target.append(bytes(data)).error

    def forgotten(self) -> None:
        """Make the broker expire the producer ID."""
        self.target.forget(NOW + 10_000_000)

    def starts(self) -> StartPoint | str:
        """Start the copy. Return its start point, or the code of its error."""
        request = replace(self.request, runs=self.runs, mark=self.mark)
        here = MemoryView({HERE: self.source}, SOURCE_ID)
        there = Counting({THERE: self.target}, TARGET_ID)
        try:
            if self.kind is Kind.KEYED:
                (point,) = find_fan_start([request], here, there, self.rules)
                return point
            (found,) = find_starts([request], here, there, self.rules).values()
        except TwinlogError as error:
            return error.code
        finally:
            self.reads = there.reads
        return found.code if isinstance(found, TwinlogError) else found


class Counting(MemoryView):
    """A view that counts fetches. Each fetch returns one batch."""

    reads = 0

    def _read(self, log: MemoryLog, offset: int) -> RawRecords:
        self.reads += 1
        return RawRecords(records=log.read(offset, 1), high_watermark=log.ends.high_watermark)


def resumes(found: StartPoint | str) -> tuple[int, int] | str:
    """Return the ordinal and the upstream offset of a start point, or the code of an error."""
    return found if isinstance(found, str) else (found.ordinal, found.upstream)


@pytest.fixture(params=list(Kind), ids=lambda kind: kind.value)
def copy(request: pytest.FixtureRequest) -> Copy:
    return Copy(request.param)


@pytest.fixture(params=[Kind.SHARED, Kind.KEYED], ids=lambda kind: kind.value)
def shared(request: pytest.FixtureRequest) -> Copy:
    return Copy(request.param)


def test_one_partition_gets_all_records_of_the_keyed_topic() -> None:
    assert {partition_of(record(number), 1) for number in range(30)} == {0}


# -- no fault


def test_the_copy_resumes_after_its_last_record(copy: Copy) -> None:
    copy.ours(0, 10)
    copy.marked()
    copy.ours(10, 5)
    assert resumes(copy.starts()) == (15, 15)


def test_the_copy_resumes_although_the_broker_has_forgotten_the_id(copy: Copy) -> None:
    copy.ours(0, 10)
    copy.marked()
    copy.ours(10, 5)
    copy.forgotten()
    assert resumes(copy.starts()) == (15, 15)


def test_records_of_another_twinlog_flow_do_not_end_the_copy(shared: Copy) -> None:
    shared.ours(0, 10)
    shared.marked()
    for first in (10, 15):
        shared.theirs(3, OTHER_FLOW)
        shared.ours(first, 5)
    shared.theirs(3, OTHER_FLOW)
    found = shared.starts()
    assert resumes(found) == (20, 20)
    assert isinstance(found, StartPoint)
    assert not found.taken_over
    assert shared.kind is Kind.KEYED or found.has_company


def test_foreign_records_need_not_be_on_enough_replicas(shared: Copy) -> None:
    shared.ours(0, 10)
    shared.marked()
    shared.theirs(3, OTHER_FLOW)
    shared.target = LaggingLog(shared.target, 3)
    found = shared.starts()
    assert resumes(found) == (10, 10)
    assert isinstance(found, StartPoint)
    assert found.k + found.ordinal == shared.target.end - 3, "K is an estimate from below"


def test_own_records_must_be_on_enough_replicas(copy: Copy) -> None:
    copy.ours(0, 10)
    copy.marked()
    copy.ours(10, 5)
    copy.target = LaggingLog(copy.target, 3)
    assert copy.starts() == "TARGET_UNDER_MIN_ISR"


@pytest.mark.parametrize("forgotten", [False, True], ids=["remembered", "forgotten"])
def test_records_above_the_high_watermark_are_neither_present_nor_missing(
    copy: Copy, *, forgotten: bool
) -> None:
    copy.ours(0, 10)
    copy.marked()
    copy.ours(10, 5)
    copy.target = lagging = LaggingLog(copy.target, 5)
    if forgotten:
        copy.forgotten()
    assert copy.starts() == "TARGET_UNDER_MIN_ISR"
    lagging.behind = 0
    assert resumes(copy.starts()) == (15, 15), "the in-sync replicas have them"
    lagging.truncate(10)
    copy.runs = copy.runs[:2]
    assert resumes(copy.starts()) == (10, 10), "their leader is gone, and they with it"


def test_foreign_records_above_the_high_watermark_delay_a_forgotten_copy(
    shared: Copy,
) -> None:
    shared.ours(0, 10)
    shared.marked()
    shared.theirs(3, OTHER_FLOW)
    shared.target = LaggingLog(shared.target, 3)
    shared.forgotten()
    assert shared.starts() == "TARGET_UNDER_MIN_ISR", "they may be ours"


# -- records of this flow are missing or duplicated


def injected_gap(copy: Copy) -> None:
    """Write records 0 to 9 and 15 to 19 of this flow. Records 10 to 14 are missing, because the
    broker expired the producer ID in between.
    """
    copy.ours(0, 10)
    copy.marked()
    copy.forgotten()
    copy.ours(15, 5)


def test_missing_records_are_a_gap(copy: Copy) -> None:
    injected_gap(copy)
    assert copy.starts() == "GAP_WRITTEN"


def test_missing_records_are_a_gap_if_the_broker_has_forgotten_the_id_again(copy: Copy) -> None:
    injected_gap(copy)
    copy.forgotten()
    assert copy.starts() == "GAP_WRITTEN"


def test_a_gap_is_found_although_foreign_records_fill_its_offsets(shared: Copy) -> None:
    shared.ours(0, 10)
    shared.marked()
    shared.theirs(5, OTHER_FLOW)
    shared.forgotten()
    shared.ours(15, 5)
    assert shared.starts() == "GAP_WRITTEN"
    shared.forgotten()
    assert shared.starts() == "GAP_WRITTEN", "it is found again at each start"


def test_a_late_repeat_is_extra(copy: Copy) -> None:
    copy.ours(0, 8)
    copy.marked()
    copy.forgotten()
    copy.ours(2, 3)
    assert copy.starts() == "EXTRA_RECORDS"


def test_the_broker_remembers_less_than_the_log_holds(shared: Copy) -> None:
    shared.ours(0, 10)
    shared.marked()
    shared.ours(10, 5)
    known = shared.target._producers[OURS]
    known.last_sequence = 11
    assert shared.starts() == "EXTRA_RECORDS"


class AppendsMeanwhile(MemoryView):
    """A view of the target to which a lane that was considered dead appends a batch after the ends
    were queried.
    """

    def __init__(self, logs: Mapping[TopicPartition, MemoryLog], late: Callable[[], None]) -> None:
        super().__init__(logs, TARGET_ID)
        self.late = [late]

    def _read(self, log: MemoryLog, offset: int) -> RawRecords:
        while self.late:
            self.late.pop()()
        return super()._read(log, offset)


def test_a_batch_that_arrives_during_the_search_is_not_extra() -> None:
    """The first request of the next lane finds the late batch, and starts the partition again. The
    batch is no reason to search for another producer.
    """
    copy = Copy(Kind.SHARED)
    copy.ours(0, 10)
    copy.marked()
    copy.ours(10, 5)
    request = replace(copy.request, runs=copy.runs, mark=copy.mark)
    here = MemoryView({HERE: copy.source}, SOURCE_ID)
    there = AppendsMeanwhile({THERE: copy.target}, partial(copy.ours, 15, 5))
    (found,) = find_starts([request], here, there, copy.rules).values()
    assert not there.late
    assert isinstance(found, StartPoint), found
    assert resumes(found) == (15, 15)
    assert resumes(copy.starts()) == (20, 20), "the batch counts at the next start"


# -- the target lost records


def test_the_target_lost_its_end(copy: Copy) -> None:
    copy.ours(0, 10)
    copy.ours(10, 5)
    copy.marked()
    copy.target.truncate(10)
    copy.request = replace(copy.request, acked_ordinal=15, acked_epoch=copy.target.epoch)
    assert copy.starts() in {"TARGET_TRUNCATED", "POSITION_REGRESSED"}


@pytest.mark.parametrize("is_final", [False, True], ids=["running", "final mark"])
def test_a_foreign_record_at_the_offset_of_an_own_one(*, is_final: bool) -> None:
    copy = Copy(Kind.SHARED)
    copy.ours(0, 10)
    copy.ours(10, 5)
    copy.marked(is_final=is_final)
    copy.target.truncate(10)
    copy.theirs(8)
    copy.forgotten()
    assert copy.starts() == "TARGET_TRUNCATED"


@pytest.mark.parametrize("cleaned", ["nothing", "the batch there", "the source's record"])
def test_a_foreign_record_at_the_offset_of_an_own_one_in_a_compacted_topic(cleaned: str) -> None:
    """The target lost own records, and foreign records are at their offsets. The topic is
    compacted, so a missing record proves nothing. The start reports TARGET_TRUNCATED only if both
    sides have a record and the two differ.
    """
    copy = Copy(Kind.SHARED)
    copy.ours(0, 10)
    copy.ours(10, 5)
    copy.marked()
    copy.target.truncate(10)
    copy.theirs(8)
    copy.theirs(2, OTHER_FLOW)
    copy.forgotten()
    copy.request = replace(copy.request, may_lose_batches=True)
    if cleaned == "the batch there":
        copy.target.batches = [one for one in copy.target.batches if one.header.base_offset != 10]
    elif cleaned == "the source's record":
        copy.source.delete_before(15)
    found = copy.starts()
    assert (found == "TARGET_TRUNCATED") is (cleaned == "nothing"), found


def test_a_mark_after_the_last_own_record_is_no_loss() -> None:
    copy = Copy(Kind.SHARED)
    copy.ours(0, 10)
    copy.theirs(20, OTHER_FLOW)
    copy.marked()
    copy.target.truncate(10)
    assert resumes(copy.starts()) == (10, 10), "only records of the other flow are gone"


def test_records_after_the_mark_are_deleted_and_the_producer_id_expired(shared: Copy) -> None:
    shared.ours(0, 5)
    shared.marked()
    shared.ours(5, 3)
    shared.target.delete_before(8)
    shared.forgotten()
    assert shared.starts() == "TARGET_TRUNCATED", "5 to 7 must not be copied a second time"


def test_records_after_the_mark_are_deleted_and_the_broker_remembers_them(shared: Copy) -> None:
    shared.ours(0, 5)
    shared.marked()
    shared.ours(5, 3)
    shared.target.delete_before(8)
    assert resumes(shared.starts()) == (8, 8)


class CatchingUp(LaggingLog):
    """A log to which other clients write constantly. At each Fetch, the in-sync replicas have the
    log up to its previous end.
    """

    def read(self, offset: int, most: int | None = None, below: int | None = None) -> memoryview:
        self.behind = 0
        return MemoryLog.read(self, offset, most, below)


def test_another_flow_that_writes_constantly_delays_no_start(shared: Copy) -> None:
    shared.ours(0, 5)
    shared.marked()
    shared.ours(5, 3)
    shared.theirs(5, OTHER_FLOW)
    shared.target.delete_before(8)
    shared.target = CatchingUp(shared.target, 2)
    assert resumes(shared.starts()) == (8, 8), "the log was read to its end"


def test_a_final_mark_counts_if_everything_after_it_is_deleted(shared: Copy) -> None:
    shared.ours(0, 8)
    shared.marked(is_final=True)
    shared.theirs(5, OTHER_FLOW)
    shared.target.delete_before(13)
    shared.forgotten()
    assert resumes(shared.starts()) == (8, 8)


# -- rows of the map are lost


def test_lost_rows_are_never_a_second_copy(copy: Copy) -> None:
    copy.ours(0, 10)
    copy.runs, copy.mark = (), None
    copy.request = replace(copy.request, had_row=True)
    assert copy.starts() == "MAP_MISSING"
    copy.forgotten()
    assert copy.starts() == "MAP_MISSING"
    copy.target.delete_before(10)
    assert copy.starts() == "MAP_MISSING"


@pytest.mark.parametrize("bound", ["group_at", "began_at"])
def test_lost_rows_are_detected_wherever_a_copy_would_begin(copy: Copy, bound: str) -> None:
    """The map has lost its rows. The start must report MAP_MISSING even if the copy would begin at
    a fixed offset or at a source group's offset, as after MirrorMaker 1.
    """
    copy.ours(0, 10)
    copy.runs, copy.mark = (), None
    where = {"group_at": 7} if bound == "group_at" else {"began_at": 7}
    copy.request = replace(copy.request, had_row=True, **where)  # type: ignore[arg-type]
    assert copy.starts() == "MAP_MISSING"
    copy.forgotten()
    assert copy.starts() == "MAP_MISSING"


def test_a_group_offset_does_not_explain_a_listed_producer_id(shared: Copy) -> None:
    shared.ours(0, 10)
    shared.runs, shared.mark = (), None
    shared.request = replace(shared.request, group_at=7)
    assert shared.starts() == "MAP_MISSING"


def test_a_copy_begins_at_the_group_offset_and_not_after_the_end(copy: Copy) -> None:
    copy.runs, copy.mark = (), None
    copy.request = replace(copy.request, group_at=30)
    assert resumes(copy.starts()) == (0, 30)
    copy.request = replace(copy.request, group_at=31)
    assert copy.starts() == "START_BEYOND_END"


@pytest.mark.parametrize(
    ("group_at", "began_at", "lost"),
    [(7, -1, (7, 10)), (7, 7, None), (12, -1, None), (-1, -1, None)],
)
def test_records_deleted_after_the_groups_offset_are_reported_at_the_start(
    copy: Copy, group_at: int, began_at: int, lost: tuple[int, int] | None
) -> None:
    copy.runs, copy.mark = (), None
    copy.source.delete_before(10)
    copy.request = replace(copy.request, group_at=group_at, began_at=began_at)
    found = copy.starts()
    assert isinstance(found, StartPoint)
    assert (found.upstream, found.lost) == (max(10, group_at), lost)


@pytest.mark.parametrize("forgotten", [False, True], ids=["listed", "forgotten"])
def test_lost_rows_of_one_branch_are_not_a_branch_that_never_began(*, forgotten: bool) -> None:
    first, second = Copy(Kind.KEYED), Copy(Kind.KEYED)
    for one in (first, second):
        one.ours(0, 10)
        one.marked()
    if forgotten:
        second.forgotten()
    targets = TopicPartition("orders", 0), TopicPartition("orders", 1)
    requests = [
        replace(first.request, runs=first.runs, mark=first.mark, had_row=True),
        replace(second.request, target=targets[1], had_row=True),
    ]
    here = MemoryView({HERE: first.source}, SOURCE_ID)
    there = MemoryView(dict(zip(targets, (first.target, second.target), strict=True)), TARGET_ID)
    with pytest.raises(TwinlogError) as found:
        find_fan_start(requests, here, there, first.rules)
    assert found.value.code == "MAP_MISSING"


def test_a_branch_that_never_began_begins_with_the_others() -> None:
    first = Copy(Kind.KEYED)
    first.runs = (read_to(0, 4),)
    targets = TopicPartition("orders", 0), TopicPartition("orders", 1)
    requests = [
        replace(first.request, runs=first.runs, mark=Mark(0, 0)),
        replace(first.request, target=targets[1], group_at=9),
    ]
    here = MemoryView({HERE: first.source}, SOURCE_ID)
    there = MemoryView({tp: MemoryLog() for tp in targets}, TARGET_ID)
    points = find_fan_start(requests, here, there, first.rules)
    assert [(one.ordinal, one.upstream) for one in points] == [(0, 4), (0, 4)]


def test_a_listed_producer_id_proves_that_rows_were_lost(copy: Copy) -> None:
    copy.ours(0, 10)
    copy.runs, copy.mark = (), None
    copy.target.delete_before(10)
    assert copy.starts() == "MAP_MISSING"


def test_foreign_records_in_a_new_topic(copy: Copy) -> None:
    copy.theirs(5)
    copy.runs, copy.mark = (), None
    expected = "FOREIGN_DATA" if copy.kind is Kind.OWN else (0, 0)
    assert resumes(copy.starts()) == expected


def test_an_emptied_target_whose_first_row_was_never_written_begins(copy: Copy) -> None:
    copy.runs, copy.mark = (), None
    copy.request = replace(copy.request, had_row=True)
    assert resumes(copy.starts()) == (0, 0), "nothing was ever there"


# -- a foreign writer


def test_foreign_records_after_the_copy_end_it() -> None:
    copy = Copy(Kind.SHARED, made=10)
    copy.ours(0, 10)
    copy.marked()
    copy.theirs(5)
    found = copy.starts()
    assert isinstance(found, StartPoint)
    assert found.taken_over
    assert found.k + found.ordinal == 10, "where it ended: before the stranger's first record"


def test_foreign_records_after_the_copy_and_more_records_at_the_source() -> None:
    copy = Copy(Kind.SHARED)
    copy.ours(0, 10)
    copy.marked()
    copy.theirs(5)
    assert copy.starts() == "TAKEN_OVER"


@pytest.mark.parametrize("between", [STRANGER, OTHER_FLOW], ids=["stranger", "other flow"])
def test_final_mark_is_where_the_walk_found_the_end(between: int) -> None:
    copy = Copy(Kind.SHARED, made=8)
    copy.ours(0, 5)
    copy.marked()
    copy.theirs(1, between)
    copy.ours(5, 3)
    copy.theirs(1)
    copy.forgotten()
    found = copy.starts()
    assert isinstance(found, StartPoint)
    assert (found.ordinal, found.taken_over) == (8, True)
    copy.mark = found.mark(copy.mark, is_alone=False)
    assert copy.mark == Mark(8, 9, is_final=True)
    assert resumes(copy.starts()) == (8, 8)


def test_a_taken_over_copy_does_not_pass_an_open_transaction() -> None:
    copy = Copy(Kind.SHARED, made=10)
    copy.rules = replace(copy.rules, isolation=Isolation.READ_COMMITTED)
    copy.ours(0, 10)
    copy.marked()
    copy.theirs(5)
    copy.source.write([record(number) for number in range(10, 13)], producer_id=5)
    found = copy.starts()
    assert isinstance(found, StartPoint)
    assert (found.taken_over, found.upstream) == (True, 10)
    copy.source.finish(5, NOW, commit=False)
    found = copy.starts()
    assert isinstance(found, StartPoint)
    assert (found.taken_over, found.upstream) == (True, 14), "markers are passed"
    copy.source.write([record(14)], producer_id=5)
    copy.source.finish(5, NOW, commit=True)
    assert copy.starts() == "TAKEN_OVER"


class CommitsMeanwhile(MemoryView):
    """A view of the source in which a transaction ends between two queries of a start."""

    def begins(
        self, starts: Mapping[TopicPartition, StartAt], *, isolation: Isolation
    ) -> Mapping[TopicPartition, int]:
        self._logs[HERE].finish(5, NOW, commit=True)
        return super().begins(starts, isolation=isolation)


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_records_committed_during_the_search_of_a_taken_over_copy_are_not_passed(
    *, is_cleaned: bool
) -> None:
    copy = Copy(Kind.SHARED, made=10)
    copy.rules = replace(copy.rules, isolation=Isolation.READ_COMMITTED)
    copy.ours(0, 10)
    copy.marked()
    copy.theirs(5)
    copy.source.write([record(number) for number in range(10, 13)], producer_id=5)
    if is_cleaned:
        copy.source.delete_before(10)
    request = replace(copy.request, runs=copy.runs, mark=copy.mark)
    here = CommitsMeanwhile({HERE: copy.source}, SOURCE_ID)
    there = MemoryView({THERE: copy.target}, TARGET_ID)
    (found,) = find_starts([request], here, there, copy.rules).values()
    assert isinstance(found, TwinlogError)
    assert found.code == "TAKEN_OVER"
    assert "upstream records [10, 14)" in found.message


def test_foreign_records_do_not_matter_in_a_keyed_topic() -> None:
    copy = Copy(Kind.KEYED)
    copy.ours(0, 10)
    copy.marked()
    copy.theirs(5)
    assert resumes(copy.starts()) == (10, 10)


def test_foreign_records_in_an_own_topic() -> None:
    copy = Copy(Kind.OWN)
    copy.ours(0, 10)
    copy.theirs(5)
    assert copy.starts() == "EXTRA_RECORDS"


# -- number of records that are read


@pytest.mark.parametrize("how", ["remembered", "final"])
@pytest.mark.parametrize("who", [STRANGER, OTHER_FLOW], ids=["stranger", "other flow"])
def test_a_start_does_not_read_all_foreign_records(shared: Copy, how: str, who: int) -> None:
    shared.made = 10
    shared.source = MemoryLog()
    shared.source.write([record(number) for number in range(10)])
    shared.ours(0, 10)
    shared.marked(is_final=how == "final")
    for _ in range(500):
        shared.theirs(4, who)
    if how == "final":
        shared.forgotten()
    found = shared.starts()
    assert resumes(found) == (10, 10)
    assert shared.reads < 20


@pytest.mark.parametrize("who", [STRANGER, OTHER_FLOW], ids=["stranger", "other flow"])
def test_a_search_that_others_wait_for_is_small(shared: Copy, who: int) -> None:
    shared.made = 10
    shared.source = MemoryLog()
    shared.source.write([record(number) for number in range(10)])
    shared.ours(0, 10)
    shared.marked()
    for _ in range(500):
        shared.theirs(4, who)
    shared.request = replace(shared.request, most_reads=2)
    assert resumes(shared.starts()) == (10, 10), "remembered: nothing is searched"
    before = shared.reads
    assert before < 10
    shared.forgotten()
    assert shared.starts() == LongSearch.code
    shared.request = replace(shared.request, most_reads=None)
    assert resumes(shared.starts()) == (10, 10)
