"""When a failed partition is retried, and what it reports."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from msgspec import structs

from tests.support.driver import HandClock
from twinlog.clock import CLOCK, Clock
from twinlog.codes import Trait, with_trait
from twinlog.control.lanes.partitions import (
    LEFT_OUT_S,
    REPORT_IS_FRESH_S,
    RETRY_FAILED_S,
    Failure,
    LaneKey,
    Partition,
    Placement,
    view_of,
)
from twinlog.control.lanes.wanted import mark_unwanted
from twinlog.lane.messages import HandOver, PartitionProgress, UnreachableCluster
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.start_point import StartPoint
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

PROMISED_S = 30.0
POINT = StartPoint(
    ordinal=0, upstream=0, k=0, last_fetched_epoch=-1, is_protected=False, last_timestamp=-1
)

REPORT = PartitionProgress(
    source=TopicPartition("orders", 0),
    state="COPYING",
    ordinal=40,
    upstream=40,
    downstream=40,
    source_end=50,
    records=40,
    bytes=4000,
    last_timestamp=1,
    is_protected=True,
    target_epoch=0,
)


def a_partition(clock: Clock = CLOCK) -> Partition:
    plan = PartitionPlan(
        source=TopicPartition("orders", 0),
        target=TopicPartition("A.orders", 0),
        source_topic_id=NO_TOPIC_ID,
        target_topic_id=NO_TOPIC_ID,
        limit_bytes=1 << 20,
    )
    return Partition(plan=plan, clock=clock, placement=Placement.ASSIGNED)


@pytest.mark.parametrize("retriable", [True, False])
def test_every_try_comes_within_half_a_minute(*, retriable: bool) -> None:
    """A failed partition is retried within half a minute after its failure. The pause before the
    retry leaves some seconds of this time for the retry itself, which begins with a check of both
    clusters.
    """
    partition = a_partition()
    pauses = []
    for _ in range(20):
        partition.note_failure("CODE", "message", retriable=retriable)
        pauses.append(partition.retry_at - time.monotonic())
        assert not partition.is_due(time.monotonic() - 1)
        assert partition.is_due(time.monotonic() + PROMISED_S - 2)
    if retriable:  # a retriable failure is first retried immediately, and later with growing pauses
        assert pauses[0] < 1
        assert pauses[-1] == pytest.approx(RETRY_FAILED_S, abs=1)


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("UNREACHABLE", "cluster B: refused"),
        ("DISCONNECTED", "cluster B: refused"),
        ("AUTHENTICATION", "cluster B: refused [AUTHENTICATION]"),
    ],
)
def test_an_unreachable_cluster_has_one_code_however_its_lane_noticed(
    code: str, shown: str
) -> None:
    """When a broker dies, a lane's connection is refused or is closed with the request in flight.
    The partition's code is UNREACHABLE in both cases.
    """
    partition = a_partition()
    partition.note_unreachable(UnreachableCluster(code=code, message="cluster B: refused"))
    assert partition.failure is not None
    assert (partition.failure.code, partition.failure.message) == ("UNREACHABLE", shown)
    partition.note_unreachable(None)
    assert partition.failure is None


def test_trouble_keeps_the_time_since_when_it_lasts() -> None:
    clock = HandClock()
    partition = a_partition(clock)
    partition.note_failure("CODE", "first", retriable=False)
    assert partition.failure is not None
    since = partition.failure.since_ms
    clock.now += 1
    partition.note_failure("CODE", "second", retriable=False)
    assert (partition.failure.since_ms, partition.failure.message) == (since, "second")
    partition.note_failure("OTHER", "third", retriable=False)
    assert partition.failure.since_ms > since


@pytest.mark.parametrize(
    ("waits_for_map", "code"), [(True, "MAP_UNWRITABLE"), (False, None)], ids=["waits", "written"]
)
def test_trouble_with_the_map_is_over_when_nothing_waits_for_it(
    *, waits_for_map: bool, code: str | None
) -> None:
    """All records were copied when the map became unavailable, so no arriving record shows that it
    is available again. The failure ends as soon as the partition does not wait for its map.
    """
    partition = a_partition()
    at_end = structs.replace(REPORT, source_end=REPORT.upstream, waits_for_map=waits_for_map)
    partition.on_progress(structs.replace(at_end, waits_for_map=False))
    partition.note_failure("MAP_UNWRITABLE", "message", retriable=True)
    partition.on_progress(at_end)
    assert (partition.failure and partition.failure.code) == code


@pytest.mark.parametrize(
    ("code", "is_broken"),
    [
        *((code, True) for code in sorted(with_trait(Trait.NOT_OURS) - {"TAKEN_OVER"})),
        # records that were copied before the other client wrote are still at their offsets
        ("TAKEN_OVER", False),
        ("TARGET_UNDER_MIN_ISR", False),
    ],
)
def test_offsets_of_a_damaged_log_are_not_used(*, code: str, is_broken: bool) -> None:
    """If a partition fails with a code that means a damaged log, groups, offset syncs and
    MirrorMaker 2's positions must not use its offsets. After any other failure they still use them.
    """
    partition = a_partition()
    partition.on_progress(REPORT)
    before = view_of(partition)
    assert not before.is_broken
    assert before.reach is not None
    assert min(before.reach) > 0
    partition.note_failure(code, "message", retriable=False)
    view = view_of(partition)
    assert (view.is_broken, view.reach) == (is_broken, None if is_broken else before.reach)


def test_a_partition_is_unseen_until_a_lane_has_found_its_place() -> None:
    partition = a_partition()
    assert view_of(partition).is_position_unknown
    partition.note_failure("NO_LEADER", "message", retriable=True)
    assert view_of(partition).is_position_unknown, "nobody has looked at the log"
    partition.on_progress(REPORT)
    assert not view_of(partition).is_position_unknown
    taken_over = a_partition()
    taken_over.note_failure("TAKEN_OVER", "message", retriable=False)
    assert not view_of(taken_over).is_position_unknown, "a lane has found our end"


@pytest.mark.parametrize("at_source", [True, False])
def test_where_a_lane_stopped_is_no_position_in_a_topic_created_since(*, at_source: bool) -> None:
    partition = a_partition()
    plan = partition.last_plan = partition.plan
    partition.handed = HandOver(start=POINT, chunk=0, runs=(), durable_ordinal=-1)
    new_id = TopicId("1" * 32)
    new = replace(plan, target_topic_id=new_id)
    if at_source:
        new = replace(plan, source_topic_id=new_id)
    found = []
    for planned in (plan, new):
        partition.replan(planned)
        found.append((partition.handed is not None, partition.is_replaced))
    assert found == [(True, False), (False, True)], "nor is what a lane still hands over later"


@pytest.mark.parametrize("is_planned", [True, False])
def test_a_recreated_topic_has_no_reported_position(*, is_planned: bool) -> None:
    """The source topic was re-created, so the position that the lane reported belongs to the
    deleted topic. If it were used, group offsets would be translated to positions in the middle of
    the new topic.
    """
    partition = a_partition()
    partition.last_plan = partition.plan
    partition.on_progress(REPORT)
    assert view_of(partition).upstream == 40
    if is_planned:
        new_id = TopicId("1" * 32)
        partition.replan(replace(partition.plan, source_topic_id=new_id))
        partition.on_progress(REPORT)  # reported by the lane that still has the deleted topic
    else:
        partition.note_failure("SOURCE_RECREATED", "another topic", retriable=True)
    assert view_of(partition).reach is None


def test_a_begun_partition_is_the_flows_while_a_lane_has_it() -> None:
    """A partition counts as this flow's (`is_begun`) while a lane has it, after it is done, and for
    a while after some failures. Otherwise it does not, because no lane would detect that clients
    have moved to the target.
    """
    clock = HandClock()
    partition = replace(a_partition(), clock=clock)
    assert not view_of(partition).is_begun, "nobody has looked yet"

    def begin() -> None:
        partition.lane, partition.placement = LaneKey(1, 0, 0), Placement.ASSIGNED
        partition.last_plan = partition.plan
        partition.on_progress(REPORT)
        assert view_of(partition).is_begun

    begin()
    partition.leave_lane(Placement.PENDING)  # the lease changes
    assert not view_of(partition).is_begun

    begin()
    partition.on_lane_lost()
    assert not view_of(partition).is_begun

    begin()
    partition.leave_lane(Placement.DONE)  # `--once` syncs groups after the partition is done
    assert view_of(partition).is_begun

    begin()
    partition.note_failure("RECORD_TOO_LARGE", "a config is its cure", retriable=False)
    assert view_of(partition).is_begun
    clock.now += LEFT_OUT_S
    assert not view_of(partition).is_begun, "no lane could try it again"

    begin()
    partition.note_failure("SOURCE_DIVERGED", "the source lost records", retriable=False)
    assert view_of(partition).foreign_code == "SOURCE_DIVERGED"
    partition.note_failure("MAP_UNREADABLE", "the map cannot be read now", retriable=True)
    assert view_of(partition).foreign_code == ""
    assert not view_of(partition).is_begun, "what was found is not forgotten for it"

    begin()
    mark_unwanted(partition)
    partition.is_wanted = True
    assert not view_of(partition).is_begun, "somebody else had it meanwhile"

    begin()
    partition.replan(replace(partition.plan, target_topic_id=TopicId("1" * 32)))
    assert not view_of(partition).is_begun, "another topic"


def test_trouble_does_not_last_while_late_requests_are_waited_for() -> None:
    """`--once` gives up if a problem lasts. The time in which records are held back for late
    requests does not count, because this is no problem.
    """
    partition = a_partition()
    assert partition.troubled_s() == 0
    partition.failure = Failure(
        code="CODE", message="message", since_ms=1, began=time.monotonic() - 59
    )
    assert partition.troubled_s() == pytest.approx(59, abs=5)
    partition.wait_until = time.monotonic() - 80
    assert partition.troubled_s() == pytest.approx(59, abs=5), "a wait that was over before"
    for until in (time.monotonic() - 7, time.monotonic() + 20):
        partition.wait_until = until
        assert partition.troubled_s() == pytest.approx(59 - LEFT_OUT_S, abs=5)
    partition.wait_until = time.monotonic() - 49
    assert partition.troubled_s() == pytest.approx(49, abs=5)


def test_end_that_the_leader_reports_counts_if_the_lane_reads_a_stale_replica() -> None:
    """The lane reads from a stale replica, which returns valid but empty responses. The lane then
    reports an old end, so the end that the leader reports is used.
    """
    clock = HandClock()
    partition = a_partition(clock)
    partition.on_progress(structs.replace(REPORT, source_end=REPORT.upstream, sees_end=True))
    partition.queried_end = 70
    assert partition.source_end == REPORT.upstream
    clock.now += REPORT_IS_FRESH_S
    assert partition.source_end == 70
