"""The partitions of a lane, without a cluster. The test moves the clock and runs the background
jobs.
"""

from __future__ import annotations

import selectors
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.support.driver import HandClock, work_of
from tests.support.lane_takes import take
from tests.support.one_copy import NOW, answer, batch, fetched
from tests.support.python_transformer import PythonTransformer
from twinlog.cluster.net.framing import FramePool, _is_free
from twinlog.errors import CorruptData, Fate, PartitionError, Unreachable
from twinlog.lane.assignments import Assignments
from twinlog.lane.late_requests import USER_TIMEOUT_MS
from twinlog.lane.messages import (
    Fan,
    HandOver,
    LaneLoad,
    Progress,
    Released,
    ReleasedPartition,
    Take,
    TakePartition,
    Troubled,
)
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.background import JobKind
from twinlog.lane.sides.cluster_side import ClusterSide, Leader
from twinlog.lane.watches.stalls import NO_LEADER_AFTER_S
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.copy.transformed import TransformedCopy
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.start_point import StartPoint
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.wire.records import Record

HERE, THERE = TopicPartition("t", 0), TopicPartition("A.t", 0)
DIGEST = "ab"


def masked(record: Record) -> Record | None:
    """Return the record masked if its offset is odd, else None, which filters it out. Raises
    ValueError at offset 9.
    """
    if record.offset == 9:
        raise ValueError("nine")
    return record._replace(value=b"masked") if record.offset % 2 else None


@dataclass
class Jobs:
    """Background jobs that wait until the test ends them."""

    waiting: list[tuple[JobKind, Any]] = field(default_factory=list)

    def submit(self, kind: JobKind, job: Any, then: Any, otherwise: Any) -> None:
        self.waiting.append((kind, otherwise))

    def fail(self, kind: JobKind, error: Exception) -> None:
        ended = [one for one in self.waiting if one[0] is kind]
        self.waiting = [one for one in self.waiting if one[0] is not kind]
        for _, otherwise in ended:
            otherwise(error)


class Lane:
    """A lane whose ports belong to the test. Its messages are recorded."""

    def __init__(self, **given: Any) -> None:
        self.clock, self.jobs, self.said = HandClock(), Jobs(), list[object]()
        self._selector = selectors.DefaultSelector()
        self.application = PythonTransformer(masked)
        work = work_of(has_transforms=True, **given)
        self.source, self.target = (
            ClusterSide(
                settings=settings,
                background=cast("Any", self.jobs),
                selector=self._selector,
                pool=FramePool(0),
                clock=self.clock,
            )
            for settings in (work.source, work.target)
        )
        ports = LanePorts(
            clock=self.clock,
            source=self.source,
            target=self.target,
            background=cast("Any", self.jobs),
            send=self.said.append,
            transformer=self.application,
        )
        self.assignments = Assignments(work, ports)

    def take(self, one: TakePartition) -> None:
        self.assignments.on_take(Take(partitions=(one,)))

    def after(self, seconds: float) -> list[object]:
        """Run the lane's next turn after some seconds. Return the messages that it sends, without
        progress reports.
        """
        self.clock.now += seconds
        self.said.clear()
        self.assignments.pump(hurry=False)
        self.assignments.settle()
        return [one for one in self.said if isinstance(one, (Released, Troubled))]

    def close(self) -> None:
        self._selector.close()


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane()
    yield made
    made.close()


def handed(*, wait_ms: int = 0, map_epoch: int = -1) -> TakePartition:
    """Return the Take (assignment) of a partition. The previous lane copied its first record,
    drained, and handed the partition over.
    """
    start = StartPoint(
        ordinal=1, upstream=1, k=0, last_fetched_epoch=0, is_protected=False, last_timestamp=-1
    )
    over = HandOver(
        start=start, chunk=0, runs=(Run(0, 0, 0),), durable_ordinal=0, map_epoch=map_epoch
    )
    return take(0, wait_ms=wait_ms, handed=over)


def only(said: list[object]) -> ReleasedPartition:
    (released,) = said
    assert isinstance(released, Released)
    (one,) = released.partitions
    return one


def test_leaderless_partition_is_given_back_after_its_time_limit(lane: Lane) -> None:
    lane.target.leaderless[THERE] = lane.clock.now
    lane.take(take(0))
    assert lane.after(NO_LEADER_AFTER_S - 0.1) == []
    (troubled,) = lane.after(0.2)
    assert isinstance(troubled, Troubled)
    assert (troubled.source, troubled.code) == (HERE, "NO_LEADER")
    assert lane.assignments.is_empty


def test_partition_with_a_new_leader_is_searched(lane: Lane) -> None:
    lane.target.leaderless[THERE] = lane.clock.now
    lane.take(take(0))
    assert lane.after(1.0) == []
    assert JobKind.SEARCH not in {kind for kind, _ in lane.jobs.waiting}
    lane.target.leaderless.clear()
    assert lane.after(1.0) == []
    assert JobKind.SEARCH in {kind for kind, _ in lane.jobs.waiting}
    lane.jobs.fail(JobKind.SEARCH, Unreachable("no broker answers"))
    (troubled,) = [one for one in lane.said if isinstance(one, Troubled)]
    assert troubled.code == "UNREACHABLE"
    assert lane.assignments.is_empty


@pytest.mark.parametrize(("after_s", "holds_back"), [(1.9, True), (2.1, False)])
def test_batch_after_which_the_target_may_forget_the_id_waits_for_late_requests(
    lane: Lane, after_s: float, *, holds_back: bool
) -> None:
    lane.take(handed(wait_ms=2_000))
    assert lane.after(after_s) == []
    (copy,) = lane.assignments._copies()
    earlier = cast("Any", copy)._earlier
    assert earlier.holds_back(is_old=True)
    assert earlier.may_be_checked is not holds_back
    lane.assignments.release([HERE])
    assert only(lane.after(0.0)).handed is None, "its log was not checked since"
    assert lane.assignments.is_empty


@pytest.mark.parametrize("is_seen_first", [True, False])
def test_rows_that_were_handed_over_are_written_again_under_a_newer_leader_of_the_map(
    lane: Lane, *, is_seen_first: bool
) -> None:
    home = TopicPartition(work_of().map_topic, 0)
    if is_seen_first:
        lane.target.leaders[home] = Leader(1, 4)
    lane.take(handed(map_epoch=3))
    assert lane.after(0.0) == []
    (copy,) = lane.assignments._copies()
    assert isinstance(copy, PartitionCopy)
    assert copy.tail.dirty is is_seen_first
    lane.target.leaders[home] = Leader(1, 4)
    assert lane.after(0.0) == []
    assert copy.tail.dirty
    lane.assignments.release([HERE])
    over = only(lane.after(0.0)).handed
    assert over is not None
    assert over.map_epoch == 3, "they are not written yet: that is for the next lane"


def test_load_is_waiting_records_and_traffic_since_the_last_report(lane: Lane) -> None:
    memory = work_of().memory_bytes
    lane.take(handed())
    (copy,) = lane.assignments._copies()
    lane.source.traffic.received, lane.target.traffic.sent = 70, 50
    copy.on_fetched(fetched(batch(1, 3)), (), NOW)
    assert copy.queued_bytes
    free = memory - copy.queued_bytes
    for received, sent in ((70, 50), (0, 0)):
        lane.said.clear()
        lane.assignments.report()
        (report,) = lane.said
        assert isinstance(report, Progress)
        assert report.load == LaneLoad(
            waiting_records=3, free_bytes=free, received_bytes=received, sent_bytes=sent
        )


@pytest.mark.parametrize(
    ("other_bytes", "is_freed"), [(1 << 20, True), (40, False)], ids=["a part", "most of it"]
)
def test_batch_that_waits_for_long_does_not_keep_its_whole_response_in_memory(
    lane: Lane, other_bytes: int, *, is_freed: bool
) -> None:
    """A batch is a slice of a Fetch response, and only the batch counts against the lane's memory.
    So after two reports a batch that is a small part of its response must have bytes of its own.
    """
    raw = batch(1, 3)
    response = bytearray(raw) + bytes(other_bytes)
    lane.take(handed())
    (copy,) = lane.assignments._copies()
    assert isinstance(copy, PartitionCopy)
    copy.on_fetched(memoryview(response)[: len(raw)], (), NOW)
    copy.tail.on_durable(copy.tail.runs[-1])
    for may_be_freed in (False, True):
        lane.assignments.report()
        assert _is_free(response) is (may_be_freed and is_freed)
    sent = copy.next_batch(NOW)
    assert sent is not None and bytes(sent.data) == bytes(response[: len(raw)])


def test_rows_that_were_handed_over_are_not_written_again_under_the_same_leader(
    lane: Lane,
) -> None:
    lane.target.leaders[TopicPartition(work_of().map_topic, 0)] = Leader(1, 3)
    lane.take(handed(map_epoch=3))
    assert lane.after(0.0) == []
    (copy,) = lane.assignments._copies()
    assert isinstance(copy, PartitionCopy)
    assert not copy.tail.dirty
    lane.assignments.release([HERE])
    over = only(lane.after(0.0)).handed
    assert over is not None
    assert over.map_epoch == 3


def test_partition_released_during_its_search_leaves_immediately(lane: Lane) -> None:
    lane.take(take(0))
    lane.assignments.release([HERE])
    assert only(lane.after(0.0)).handed is None
    lane.jobs.fail(JobKind.SEARCH, Unreachable("no broker answers"))
    assert [one for one in lane.said if isinstance(one, Troubled)] == []


def test_partition_taken_again_begins_with_fresh_state(lane: Lane) -> None:
    lane.take(handed(wait_ms=2_000))
    lane.assignments.release([HERE])
    only(lane.after(0.0))
    lane.take(handed(wait_ms=0))
    lane.assignments.release([HERE])
    assert only(lane.after(0.0)).handed is not None


def transformed(**changes: Any) -> TakePartition:
    """Return the Take (assignment) of a transformed partition that the previous lane has handed
    over.
    """
    one = handed()
    assert one.handed is not None
    over = structs.replace(one.handed, transform=DIGEST)
    given: dict[str, Any] = {"handed": over, "transform": DIGEST, "written_by": DIGEST}
    return replace(one, **(given | changes))


def test_transformed_partition_is_read_answered_and_announced(lane: Lane) -> None:
    lane.take(transformed())
    (copy,) = lane.assignments._copies()
    assert isinstance(copy, TransformedCopy)
    copy.on_fetched(fetched(batch(1, 4)), (), NOW)
    assert lane.after(0.0) == [] and copy.intake.ordinal == 1
    lane.application.answer()
    assert lane.after(0.0) == [] and copy.intake.ordinal == 3
    row = copy.tail.next_row()
    assert row is not None
    assert (row[0].transform, row[0].runs[-1]) == (DIGEST, Run(2, 3, 2))


def test_reported_timestamp_is_that_of_the_source(lane: Lane) -> None:
    """A function filters records and changes timestamps. So the last record on the target does not
    show up to which time the source was copied.
    """
    lane.application.function = lambda one: (
        None if one.offset < 5 else one._replace(timestamp=NOW + 3_600_000)
    )

    def reported() -> int:
        lane.said.clear()
        lane.assignments.report()
        (report,) = lane.said
        assert isinstance(report, Progress)
        return report.partitions[0].last_timestamp

    lane.take(transformed())
    (copy,) = lane.assignments._copies()
    assert isinstance(copy, TransformedCopy)
    assert reported() == 0, "unknown"
    read = [batch(1, 2, timestamp=NOW - 4000), batch(3, 2, timestamp=NOW - 3000)]
    copy.on_fetched(fetched(*read), (), NOW)
    assert reported() == NOW - 4000, "of the next batch"
    lane.application.answer()
    assert lane.after(0.0) == [] and copy.acked_upstream == 5
    assert reported() == NOW - 3000
    copy.on_fetched(fetched(batch(5, 1, timestamp=NOW - 2000)), (), NOW)
    lane.application.answer()
    assert lane.after(0.0) == []
    acknowledge_all(copy)
    assert (reported(), copy.last_timestamp) == (NOW - 2000, NOW + 3_600_000)


def acknowledge_all(copy: TransformedCopy) -> None:
    """Write all rows of the copy to the map, and acknowledge all of its batches."""
    while (row := copy.tail.next_row()) is not None:
        copy.tail.on_durable(row[1])
    while (sent := copy.next_batch(NOW)) is not None:
        answer(copy, sent.ordinal)


def test_position_of_filtered_records_is_announced_once_a_second(lane: Lane) -> None:
    lane.take(transformed())
    (copy,) = lane.assignments._copies()
    copy.on_fetched(fetched(batch(2, 1)), (), NOW)
    lane.application.answer()
    assert lane.after(0.0) == []
    lane.assignments.report()
    assert isinstance(copy, TransformedCopy) and copy.tail.runs[-1] == Run(1, 3, 1)


def test_record_at_which_the_function_fails_gives_the_partition_back(lane: Lane) -> None:
    lane.take(transformed())
    (copy,) = lane.assignments._copies()
    copy.on_fetched(fetched(batch(9, 2)), (), NOW)
    lane.application.answer()
    (troubled,) = lane.after(0.0)
    assert isinstance(troubled, Troubled)
    assert (troubled.code, troubled.poison) == ("RECORD_NOT_TRANSFORMED", (9, 10))
    assert not troubled.is_retriable and troubled.message.endswith("ValueError: nine")


def test_partition_whose_ranges_are_not_answered_is_given_back(lane: Lane) -> None:
    lane.take(transformed())
    (copy,) = lane.assignments._copies()
    copy.on_fetched(fetched(batch(1, 4)), (), NOW)
    copy.on_fetched(fetched(batch(5, 2)), (), NOW)
    lane.assignments.report()
    assert lane.after(0.0) == []
    lane.application.late = {1}
    lane.assignments.report()
    (troubled,) = lane.after(0.0)
    assert isinstance(troubled, Troubled)
    assert (troubled.code, troubled.is_retriable) == ("TRANSFORM_UNAVAILABLE", True)
    assert "has returned no result for source offsets [5, 7) for 180 s" in troubled.message
    assert troubled.had_begun
    assert lane.application.waiting == {} and copy.queued_bytes == 0


@pytest.mark.parametrize(("last", "code"), [(8, "CORRUPT_BATCH"), (9, "RECORD_NOT_TRANSFORMED")])
def test_records_before_an_error_of_the_source_are_still_copied(
    lane: Lane, last: int, code: str
) -> None:
    """The source has an error after records that are still being transformed. These records are
    copied before the partition is given back. If there are several errors, the partition fails with
    the error at the lowest offset.
    """
    lane.take(transformed())
    (copy,) = lane.assignments._copies()
    copy.on_fetched(fetched(batch(1, last)), (), NOW)
    lane.assignments.on_troubled(HERE, CorruptData("its log is damaged"))
    assert lane.after(0.0) == []
    lane.application.answer()
    assert lane.after(0.0) == [] and copy.intake.ordinal == 5
    assert isinstance(copy, TransformedCopy)
    acknowledge_all(copy)
    (troubled,) = lane.after(0.0)
    assert isinstance(troubled, Troubled) and troubled.code == code
    assert (copy.acked_ordinal, copy.acked_upstream) == (5, 9)


def test_released_partition_withdraws_its_ranges(lane: Lane) -> None:
    lane.take(transformed())
    (copy,) = lane.assignments._copies()
    copy.on_fetched(fetched(batch(1, 4)), (), NOW)
    (number,) = lane.application.waiting
    lane.assignments.release([HERE])
    over = only(lane.after(0.0)).handed
    assert over is not None and (over.start.upstream, over.transform) == (1, DIGEST)
    assert lane.application.withdrawn == [number]


@pytest.mark.parametrize(
    ("changes", "code", "wait_ms"),
    [
        ({"transform": "cd"}, "HELD_BACK", 0),
        ({"handed": None, "late_requests_ms": 2_000}, "HELD_BACK", 2_000),
        ({"handed": None, "transform": "", "late_requests_ms": 2_000}, "HELD_BACK", 2_000),
        ({"transform": ""}, "HELD_BACK", 0),
        ({"handed": None, "fan": Fan(producer_id=1, branches=())}, "TRANSFORM_UNAVAILABLE", 0),
    ],
    ids=["other transform", "late requests", "raw after it", "another one", "by key"],
)
def test_partition_that_this_lane_must_not_transform_now_is_given_back(
    lane: Lane, changes: dict[str, Any], code: str, wait_ms: int
) -> None:
    lane.take(transformed(**changes))
    (troubled,) = [one for one in lane.said if isinstance(one, Troubled)]
    assert (troubled.code, troubled.wait_ms, troubled.had_begun) == (code, wait_ms, False)
    assert lane.assignments.is_empty
    assert lane.jobs.waiting == [] or {kind for kind, _ in lane.jobs.waiting} != {JobKind.SEARCH}


def test_raw_partition_after_transformed_records_is_searched(lane: Lane) -> None:
    lane.take(transformed(transform="", handed=None))
    assert lane.after(0.0) == []
    assert not lane.assignments.is_empty


LETTERS = TopicPartition("letters", 0)


@pytest.fixture
def quarantining() -> Iterator[Lane]:
    """A lane whose failed records go to a dead-letter topic."""
    made = Lane(dead_letters=LETTERS.topic)
    made.application.quarantines = True
    made.target.topic_ids[LETTERS.topic] = TopicId("e" * 32)
    yield made
    made.close()


def failing(lane: Lane) -> TransformedCopy:
    """Make the lane send one dead letter, for record 9. Return the copy."""
    lane.take(transformed())
    (copy,) = lane.assignments._copies()
    assert isinstance(copy, TransformedCopy) and copy.dead_letters is not None
    copy.on_fetched(fetched(batch(9, 3)), (), NOW)
    lane.application.answer()
    assert lane.after(0.0) == [] and copy.intake.ordinal == 1
    assert copy.dead_letters.next_batch(NOW) is not None
    return copy


def answer_letter(lane: Lane, copy: TransformedCopy, error: int = 0) -> None:
    letters = copy.dead_letters
    assert letters is not None
    answer(letters, 77, error=error)
    lane.assignments.on_answered(letters)


def test_answer_with_a_failed_record_is_used_after_its_letter(quarantining: Lane) -> None:
    copy = failing(quarantining)
    answer_letter(quarantining, copy)
    assert quarantining.after(0.0) == [] and copy.intake.ordinal == 2


def test_partition_whose_letter_is_refused_is_given_back(quarantining: Lane) -> None:
    copy = failing(quarantining)
    answer_letter(quarantining, copy, error=6)
    (troubled,) = quarantining.after(0.0)
    assert isinstance(troubled, Troubled)
    assert (troubled.is_retriable, troubled.wait_ms, copy.intake.ordinal) == (True, 0, 1)


def test_partition_whose_letter_is_lost_waits_for_it(quarantining: Lane) -> None:
    copy = failing(quarantining)
    assert copy.dead_letters is not None
    error = PartitionError("gone", code="TARGET_DISCONNECTED", fate=Fate.RETRIABLE)
    copy.dead_letters.on_disconnected(error, NOW)
    quarantining.assignments.on_answered(copy.dead_letters)
    (troubled,) = quarantining.after(0.0)
    assert isinstance(troubled, Troubled)
    assert (troubled.code, troubled.wait_ms) == ("TARGET_DISCONNECTED", USER_TIMEOUT_MS)


def test_released_partition_waits_for_its_letter(quarantining: Lane) -> None:
    copy = failing(quarantining)
    quarantining.assignments.release([HERE])
    assert quarantining.after(0.0) == []
    answer_letter(quarantining, copy)
    over = only(quarantining.after(0.0)).handed
    assert over is not None and over.start.upstream == 1
    assert over.start.dead_letters is not None and over.start.dead_letters.offsets == (9,)


@pytest.mark.parametrize(
    ("given", "topic_id"), [({"source_topic_id": NO_TOPIC_ID}, "e" * 32), ({}, "")]
)
def test_records_are_quarantined_only_with_topic_ids(
    quarantining: Lane, given: dict[str, Any], topic_id: str
) -> None:
    quarantining.target.topic_ids[LETTERS.topic] = TopicId(topic_id) if topic_id else NO_TOPIC_ID
    quarantining.take(transformed(**given))
    (troubled,) = [one for one in quarantining.said if isinstance(one, Troubled)]
    assert (troubled.code, troubled.is_retriable) == ("TRANSFORM_UNAVAILABLE", True)
