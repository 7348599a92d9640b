"""A flow's run with a manual clock: leases, hand-overs, silent lanes, `--once` and reloads."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise
from typing import Any, NoReturn

import pytest
from msgspec import structs

from tests.support.driver import Driver, LaneStub, plan_of, work_of
from twinlog.control.lanes.lanes import (
    HELLO_WITHIN_S,
    STEP_AFTER_S,
    WARM_UP_TIMEOUT_S,
    LeaseState,
)
from twinlog.control.lanes.partitions import (
    LEFT_OUT_S,
    RELEASED_SHOWN_S,
    RETRY_FAILED_S,
    Partition,
    Placement,
)
from twinlog.control.running.flow_run import ONCE_GIVES_UP_S
from twinlog.control.running.run_leases import MAX_LEASE_RETRY_S, ONCE_LEASE_TRIES
from twinlog.errors import Disconnected, TwinlogError
from twinlog.lane.late_requests import SILENCE_MS, wait_s
from twinlog.lane.messages import LaneLoad, Progress, Take
from twinlog.lane.reporting import troubled_message
from twinlog.mirror.findings import LogFinding
from twinlog.model import LeaseCopy, TopicPartition
from twinlog.survey.replica import Maps

SILENCE_S = SILENCE_MS / 1000
LATE_S = wait_s()
FOUR = [plan_of(number) for number in range(4)]


def here(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def all_taken(*lanes: LaneStub) -> list[TopicPartition]:
    return sorted(tp for lane in lanes for tp in lane.taken)


@pytest.fixture
def driver() -> Driver:
    return Driver(FOUR)


@pytest.fixture
def running(driver: Driver) -> tuple[Driver, list[LaneStub]]:
    driver.run.tick()
    return driver, driver.lanes_of(1)


# -- leases


def test_first_lease_starts_at_once_and_its_lanes_share_the_partitions(driver: Driver) -> None:
    driver.run.tick()
    assert [(lease.number, lease.size) for lease in driver.run.leases] == [(1, 2)]
    first, second = driver.lanes_of(1)
    assert driver.run.current is driver.run.leases[0]
    assert all_taken(first, second) == [here(n) for n in range(4)]
    assert len(first.taken) == len(second.taken) == 2
    assert [one.sent[0] for one in (first, second)] == [driver.run.work] * 2


def test_nothing_is_given_before_a_lane_is_ready(driver: Driver) -> None:
    driver.run.tick()
    lane = driver.connect(1, 0)
    driver.run.tick()
    assert lane.sent == [driver.run.work]
    assert {one.placement for one in driver.run.partitions.values()} == {Placement.PENDING}


def test_lease_begins_with_the_ready_lanes_after_the_warm_up_timeout(
    driver: Driver,
) -> None:
    driver.run.tick()
    lane = driver.connect(1, 0).ready()
    driver.pass_time(WARM_UP_TIMEOUT_S - 1)
    assert driver.run.current is None
    driver.pass_time(2)
    assert all_taken(lane) == [here(n) for n in range(4)]


def test_next_lease_takes_over_by_message(running: tuple[Driver, list[LaneStub]]) -> None:
    driver, old = running
    for lane in old:
        lane.progress(*lane.taken, ordinal=5)
    driver.pass_time(299)
    assert len(driver.run.leases) == 1
    driver.pass_time(2)
    assert [lease.state for lease in driver.run.leases] == [LeaseState.CURRENT, LeaseState.WARMING]
    assert not any(lane.asked_back for lane in old), "it copies until the next one is warm"
    new = driver.lanes_of(2)
    assert sorted(tp for lane in old for tp in lane.asked_back) == [here(n) for n in range(4)]
    assert all_taken(*new) == []
    for lane in old:
        lane.gives_back(*lane.taken, ordinal=9)
    assert all_taken(*new) == [here(n) for n in range(4)]
    takes = [one for lane in new for take in lane.all_sent(Take) for one in take.partitions]
    assert {one.handed.start.ordinal for one in takes if one.handed is not None} == {9}
    assert len(takes) == 4
    driver.run.tick()
    assert all(lane.is_stopped for lane in old)
    assert not any(lane.is_stopped for lane in new)
    assert driver.jobs[0].cancelled == 0, "it ends by itself"


def test_a_returned_partition_is_given_on_without_a_search_of_all_partitions(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    """A lane returns each partition in a message of its own. A search of all partitions for each
    message would take minutes at each change of leases with 10,000 partitions.
    """

    class Unsearched(dict[TopicPartition, Partition]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("all partitions are searched")

        keys = values = items = __iter__

    driver, (old, _) = running
    driver.pass_time(301)
    new = driver.lanes_of(2)
    assert old.lane is not None
    driver.run.partitions = Unsearched(driver.run.partitions)
    old.lane.partitions = Unsearched(old.lane.partitions)
    old.say(Progress(partitions=(), unreachable=None))
    old.gives_back(old.taken[0])
    assert all_taken(*new) == [old.taken[0]]


def test_many_cold_starts_search_the_map_together() -> None:
    class Searched(Maps):
        searches = 0

        def items(self) -> Any:
            self.searches += 1
            return super().items()

    plans = [plan_of(0, f"topic-{number}", begin_at=0) for number in range(50)]
    driver = Driver(plans)
    driver.has_begun(*plans[:25])
    maps = driver.maps = Searched(driver.maps, {}, 1)
    driver.run.tick()
    assert len(all_taken(*driver.lanes_of(1))) == len(plans)
    assert maps.searches < 10


def test_next_lease_takes_over_lane_by_lane_without_slots_for_all(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, old = running
    for lane in old:
        lane.progress(*lane.taken, ordinal=5)
    driver.pass_time(301)
    first = driver.connect(2, 0).ready()
    driver.pass_time(STEP_AFTER_S)
    assert not any(lane.asked_back for lane in old), "its neighbour may still come"
    driver.pass_time(1)
    assert sorted(old[0].asked_back) == old[0].taken
    assert old[1].asked_back == []
    old[0].gives_back(*old[0].taken)
    assert first.taken == old[0].taken
    driver.run.tick()
    assert (old[0].is_stopped, old[1].is_stopped) == (True, False)
    old[0].goes()
    driver.pass_time(WARM_UP_TIMEOUT_S / 2)
    second = driver.connect(2, 1).ready()
    driver.run.tick()
    assert driver.run.current is driver.run.leases[1]
    old[1].gives_back(*old[1].taken)
    assert second.taken == old[1].taken
    driver.run.tick()
    assert old[1].is_stopped
    assert all_taken(first, second) == [here(n) for n in range(4)]
    assert driver.jobs[0].cancelled == 0


def test_partitions_of_a_lost_lane_go_to_lanes_that_stay(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, old = running
    driver.has_begun(*FOUR)
    for lane in old:
        lane.progress(*lane.taken, ordinal=5)
    driver.pass_time(301)
    first = driver.connect(2, 0).ready()
    driver.pass_time(STEP_AFTER_S + 1)
    lost = old[1].taken
    old[1].goes()
    driver.pass_time(1)
    assert set(lost) <= set(first.taken), "the other old lane is being replaced"


def test_a_lane_ends_for_a_lease_that_finds_no_slot(running: tuple[Driver, list[LaneStub]]) -> None:
    driver, old = running
    driver.most_lanes = 1  # the cluster has lost a worker
    driver.pass_time(301)
    assert [lease.size for lease in driver.run.leases] == [2, 1]
    driver.jobs[1].awaits_slot = True
    driver.pass_time(WARM_UP_TIMEOUT_S - 5)
    assert not any(lane.is_stopped for lane in old)
    driver.pass_time(6)
    assert [lane.is_stopped for lane in old] == [False, True]
    driver.jobs[1].awaits_slot = False  # a task begins in the freed slot
    old[1].gives_back(*old[1].taken)
    old[1].goes()
    assert sorted(old[0].taken) == [here(n) for n in range(4)]
    driver.pass_time(WARM_UP_TIMEOUT_S + 5)
    assert not old[0].is_stopped, "the last one stays until the next lease has one"


@pytest.mark.parametrize("awaits_slot", [True, False])
def test_the_only_lane_ends_for_a_lease_that_finds_no_slot(
    driver: Driver, *, awaits_slot: bool
) -> None:
    """With `local[1]`, or as many slots as flows, a flow's only lane has the slot that the next
    lease needs. If the next lease has started a lane that cannot connect, the copy goes on.
    """
    driver.most_lanes = 1
    driver.run.tick()
    old = driver.connect(1, 0).ready()
    old.progress(*old.taken, ordinal=5)
    driver.run.work = replaced = work_of(flow=driver.run.name)
    driver.run.tick()
    assert [lease.size for lease in driver.run.leases] == [1, 1]
    driver.jobs[1].awaits_slot = awaits_slot
    driver.pass_time(WARM_UP_TIMEOUT_S - 1)
    assert [old.is_stopped] == [False]
    driver.pass_time(2)
    assert [old.is_stopped] == [awaits_slot]
    if not awaits_slot:
        return
    old.gives_back(*old.taken, ordinal=9)
    old.goes()
    driver.jobs[0].is_done = True
    driver.pass_time(1)
    new = driver.connect(2, 0).ready()
    assert new.sent[0] == replaced
    assert new.taken == [here(n) for n in range(4)]
    takes = [one for take in new.all_sent(Take) for one in take.partitions]
    assert {one.handed.start.ordinal for one in takes if one.handed is not None} == {9}
    assert len(driver.run.leases) == 1


def test_a_run_without_spark_removes_its_ended_lanes(driver: Driver) -> None:
    """While Spark has no application, no lease starts, but everything else goes on."""
    driver.run.tick()
    driver.connect(1, 0).ready()
    driver.has_spark, driver.jobs[0].is_done = False, True
    driver.jobs[0].error = TwinlogError("its application has ended", code="LEASE")
    driver.pass_time(60)
    assert (driver.run.lanes(), len(driver.jobs)) == ([], 1)
    driver.has_spark = True
    driver.pass_time(1)
    assert len(driver.jobs) == 2


def test_partition_keeps_its_count_over_a_hand_over(running: tuple[Driver, list[LaneStub]]) -> None:
    driver, old = running
    for lane in old:
        lane.progress(*lane.taken, ordinal=50)
    driver.pass_time(5)
    driver.pass_time(0.1)
    for lane in old:
        lane.progress(*lane.taken, ordinal=60)
    lane = old[0]
    tp = lane.taken[0]
    before = driver.run.partitions[tp].total_records
    lane.gives_back(tp)
    assert driver.run.partitions[tp].total_records == before == 60


def test_lease_notes_the_copied_records_of_its_lanes(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, old = running
    for lane in old:
        lane.progress(*lane.taken, ordinal=5)
    driver.pass_time(301)
    new = driver.lanes_of(2)
    for lane in old:
        lane.gives_back(*lane.taken)
    for lane in new:
        lane.progress(*lane.taken, ordinal=12)
    driver.run.stop()
    for lane in (*old, *new):
        lane.goes()
    for job in driver.jobs:
        job.is_done = True
    driver.run.tick()
    first, second = driver.jobs
    assert first.copied == [LeaseCopy("orders", n, None, 5, 5, 500) for n in range(4)]
    assert second.copied == [LeaseCopy("orders", n, 5, 12, 12, 1200) for n in range(4)]


def test_rows_of_a_lease_add_up_over_lanes_that_are_lost(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, (first, second) = running
    driver.has_begun(*FOUR)
    first.progress(*first.taken, ordinal=0)
    first.progress(*first.taken, ordinal=5)
    lost = first.taken
    first.goes()
    driver.pass_time(1)
    assert set(lost) < set(second.taken)
    second.progress(*lost, ordinal=3)
    driver.run.stop()
    second.goes()
    driver.jobs[0].is_done = True
    driver.run.tick()
    assert driver.jobs[0].copied == [LeaseCopy(*tp, 0, 3, 8, 800) for tp in lost]


def test_failed_lease_is_retried_with_growing_pauses(driver: Driver) -> None:
    starts = []
    for _ in range(9):
        driver.run.tick()
        while not driver.run.leases:
            driver.clock.now += 0.5
            driver.run.tick()
        starts.append(driver.clock.now)
        job = driver.jobs[-1]
        job.is_done, job.error = True, TwinlogError("the executor was lost", code="LEASE")
    pauses = [after - before for before, after in pairwise(starts)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 4.5
    assert pauses[-1] == pytest.approx(MAX_LEASE_RETRY_S, abs=1)
    assert driver.run.errors["LEASE"] == 8


def test_lease_whose_lanes_never_come_is_given_up(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.run.tick()
    driver.pass_time(HELLO_WITHIN_S - 1)
    assert len(driver.run.leases) == 1
    driver.pass_time(3)
    assert driver.jobs[0].cancelled
    assert [lease.state for lease in driver.run.leases] == [LeaseState.RETIRING, LeaseState.WARMING]
    assert "Spark needs a free task slot" in caplog.text
    assert driver.run.errors == {"LEASE": 1}


def test_once_ends_if_no_lane_ever_comes() -> None:
    """Executors that cannot connect to the driver start the tasks of a lease again and again, and
    Spark's job does not fail.
    """
    driver = Driver(FOUR, once=True)
    driver.pass_time((ONCE_LEASE_TRIES + 1) * HELLO_WITHIN_S)
    assert driver.is_stopping()
    failures = [one.failure for one in driver.run.partitions.values()]
    assert {failure.code for failure in failures if failure is not None} == {"LEASE"}
    assert driver.run.errors["LEASE"] == ONCE_LEASE_TRIES


# -- lanes that end


def test_partitions_of_a_disconnected_lane_go_to_the_other_lane(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, (first, second) = running
    driver.has_begun(*FOUR)
    lost = list(first.taken)
    first.goes()
    driver.run.tick()
    assert set(second.taken) == {here(n) for n in range(4)}
    takes = {one.source: one for take in second.all_sent(Take) for one in take.partitions}
    for tp in lost:
        assert takes[tp].handed is None, "nobody knows where it stopped"
        assert takes[tp].late_requests_ms == pytest.approx(LATE_S * 1000, abs=100)
    for tp in set(takes) - set(lost):
        assert takes[tp].late_requests_ms == 0


def test_an_unstarted_partition_waits_until_no_request_of_the_lost_lane_can_arrive(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    """A lane was lost that may have begun the partition. Its first row in the offset map, and the
    records after this row, may still arrive. The partition waits until that is no longer possible.
    """
    driver, (first, second) = running
    lost = list(first.taken)
    begun = lost[0]
    driver.has_begun(FOUR[begun.partition])
    first.goes()
    driver.run.tick()
    assert {*second.taken} & {*lost} == {begun}
    driver.pass_time(LATE_S - 1)
    assert {*second.taken} & {*lost} == {begun}
    driver.pass_time(2)
    assert {*lost} <= {*second.taken}


def test_silent_lane_is_given_up_when_it_has_stopped_by_itself(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, (first, second) = running
    driver.has_begun(*FOUR)
    first.is_frozen = True
    driver.pass_time(SILENCE_S - 1)
    assert not first.is_closed()
    driver.pass_time(2)
    assert first.is_closed()
    assert set(second.taken) == {here(n) for n in range(4)}
    takes = {one.source: one for take in second.all_sent(Take) for one in take.partitions}
    waits = {takes[tp].late_requests_ms for tp in first.taken}
    assert waits == {(LATE_S - SILENCE_S - 1) * 1000}, "since it was heard"


def test_messages_of_a_lane_that_was_given_up_are_ignored(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, (first, second) = running
    driver.has_begun(*FOUR)
    tp = first.taken[0]
    first.goes()
    driver.run.tick()
    assert tp in second.taken
    known = driver.run.partitions[tp]
    before = known.placement, known.lane, known.failure
    first.troubled(tp, "GAP_WRITTEN")
    first.progress(tp, ordinal=1000)
    assert (known.placement, known.lane, known.failure) == before
    assert known.acked_ordinal < 1000


def test_cpu_time_of_lanes_is_summed_over_leases(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, (first, second) = running
    for lane in (first, second, first):
        load = LaneLoad(received_bytes=7, sent_bytes=5, waiting_records=3, free_bytes=2)
        lane.say(Progress(partitions=(), unreachable=None, cpu_ms=40, load=load))
    held = [lane.load for lease in driver.run.leases for lane in lease.lanes.values()]
    assert [(one.waiting_records, one.free_bytes) for one in held] == [(3, 2)] * 2
    first.goes()
    second.goes()
    assert driver.run.lane_cpu_ms == 120
    assert (driver.run.received_bytes, driver.run.sent_bytes) == (21, 15)


def test_second_attempt_of_a_lane_waits_for_the_first_to_end(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, (first, _) = running
    again = driver.connect(1, 0, attempt=1)
    again.ready()
    assert again.sent == []
    first.goes()
    assert again.sent == [driver.run.work]


def test_lane_of_an_unknown_lease_is_ended(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, _ = running
    stranger = driver.connect(77, 0)
    assert stranger.lane is None
    assert stranger.is_stopped


# -- failures


def test_failed_partition_is_retried_within_30_s(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, (first, second) = running
    tp = first.taken[0]
    first.troubled(tp, "GAP_WRITTEN")
    partition = driver.run.partitions[tp]
    assert driver.placement(tp) is Placement.FAILED
    taken = len(first.taken) + len(second.taken)
    driver.pass_time(RETRY_FAILED_S - 1)
    assert len(first.taken) + len(second.taken) == taken
    driver.pass_time(2)
    assert len(first.taken) + len(second.taken) == taken + 1
    assert driver.placement(tp) is Placement.ASSIGNED
    assert partition.failure is not None, "until it moves"
    holder = first if partition.lane == first.lane_key else second
    holder.progress(tp, ordinal=1)
    assert partition.failure is None


def test_unreadable_map_delays_only_cold_starts() -> None:
    driver = Driver(FOUR)
    driver.reads_map = False
    driver.run.tick()
    driver.lanes_of(1)
    assert len(driver.map_readings) == 1
    driver.map_failures[-1](Disconnected("B: the broker closed the connection"))
    failures = {one.failure.code for one in driver.run.partitions.values() if one.failure}
    assert failures == {"DISCONNECTED"}
    driver.run.tick()
    assert len(driver.map_readings) == 1, "not without a pause"
    driver.pass_time(5)
    assert len(driver.map_readings) == 2
    driver.map_readings[-1](driver.maps)
    assert {one.placement for one in driver.run.partitions.values()} == {Placement.ASSIGNED}


# -- once


def test_once_ends_when_every_partition_is_done() -> None:
    driver = Driver(FOUR, once=True)
    driver.run.tick()
    lanes = driver.lanes_of(1)
    for lane in lanes:
        lane.gives_back(*lane.taken[:1], done=True)
    driver.run.tick()
    assert not driver.is_stopping()
    for lane in lanes:
        lane.gives_back(*lane.taken[1:], done=True)
    driver.run.tick()
    assert driver.is_stopping()
    assert all(lane.is_stopped for lane in lanes)
    for lane in lanes:
        lane.goes()
    driver.jobs[0].is_done = True
    driver.run.tick()
    assert driver.run.is_finished


def test_once_renews_no_lease() -> None:
    driver = Driver(FOUR, once=True, lease_s=10.0)
    driver.run.tick()
    lanes = driver.lanes_of(1)
    driver.pass_time(30)
    assert not any(lane.asked_back for lane in lanes)
    assert len(driver.jobs) == 1


def test_once_does_not_retry_failed_partitions() -> None:
    driver = Driver(FOUR[:1], once=True, lanes=1)
    driver.run.tick()
    (lane,) = driver.lanes_of(1, 1)
    lane.troubled(here(0), "GAP_WRITTEN")
    driver.run.tick()
    assert driver.is_stopping()
    assert len(lane.taken) == 1


@pytest.mark.parametrize(("wait_ms", "most_s"), [(0, 0.0), (10_000, LEFT_OUT_S)])
def test_once_gives_up_a_problem_that_lasts_a_minute(wait_ms: int, most_s: float) -> None:
    """With `--once`, a problem that lasts a minute ends the run. This includes a problem after
    which each attempt leaves requests that may still arrive.
    """
    driver = Driver(FOUR[:1], once=True, lanes=1)
    driver.run.tick()
    (lane,) = driver.lanes_of(1, 1)
    began = driver.clock.now
    while not driver.is_stopping():
        driver.pass_time(1)
        if lane.holds(here(0)):
            lane.troubled(here(0), "TARGET_DISCONNECTED", retriable=True, wait_ms=wait_ms)
        assert driver.clock.now - began < ONCE_GIVES_UP_S + most_s + 3
    assert driver.clock.now - began >= ONCE_GIVES_UP_S


@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_once_gives_up_by_the_monotonic_clock(step_s: int) -> None:
    driver = Driver(FOUR[:1], once=True)
    driver.run.tick()
    (lane, *_) = driver.lanes_of(1)
    began = driver.clock.now
    while not driver.is_stopping():
        driver.pass_time(1)
        if lane.holds(here(0)):
            lane.troubled(here(0), "TARGET_DISCONNECTED", retriable=True)
        if driver.clock.now - began == 10:
            driver.clock.set_by(step_s)
    assert ONCE_GIVES_UP_S <= driver.clock.now - began < ONCE_GIVES_UP_S + 5


def test_once_waits_for_batches_that_are_held_back_after_a_lane_was_lost() -> None:
    """With `--once`, a problem that lasts a minute ends the run. A partition had no leader for
    almost a minute. Then its lane was lost, so its records are held back until late requests can no
    longer arrive. The run must wait for that, although the minute passes.
    """
    driver = Driver(FOUR[:2], once=True)
    driver.run.tick()
    first, second = driver.lanes_of(1)
    second.gives_back(*second.taken, done=True)
    tp = first.taken[0]
    for _ in range(int(ONCE_GIVES_UP_S) - 5):
        driver.pass_time(1)
        if first.holds(tp):
            first.troubled(tp, "NO_LEADER", retriable=True)
    partition = driver.run.partitions[tp]
    while not first.holds(tp):
        driver.pass_time(1)
    first.goes()
    driver.pass_time(LATE_S + 5)
    assert second.holds(tp)
    assert partition.failure is not None
    assert not driver.is_stopping()


def test_once_gives_up_if_spark_starts_no_lane() -> None:
    driver = Driver(FOUR, once=True)
    tries = 0
    while not driver.is_stopping():
        driver.pass_time(1)
        if driver.jobs and not driver.jobs[-1].is_done:
            tries += 1
            driver.jobs[-1].is_done = True
            driver.jobs[-1].error = TwinlogError("no executor", code="LEASE")
    assert tries == ONCE_LEASE_TRIES
    assert {one.placement for one in driver.run.partitions.values()} == {Placement.FAILED}


# -- reload


def test_topic_that_is_removed_from_the_list_is_released_shown_and_forgotten(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, (first, second) = running
    driver.run.set_plans(FOUR[:3])
    holder = next(lane for lane in (first, second) if here(3) in lane.taken)
    assert holder.asked_back == [here(3)]
    holder.gives_back(here(3))
    assert driver.partition(3).placement is Placement.RELEASED
    assert driver.run.lost_topics_at == driver.clock.now
    driver.clock.now += RELEASED_SHOWN_S + 1
    driver.run.set_plans(FOUR[:3])
    assert here(3) not in driver.run.partitions


def test_topic_that_is_listed_again_resumes(running: tuple[Driver, list[LaneStub]]) -> None:
    driver, (first, second) = running
    driver.run.set_plans(FOUR[:3])
    holder = next(lane for lane in (first, second) if here(3) in lane.taken)
    holder.gives_back(here(3), ordinal=11)
    driver.run.set_plans(FOUR)
    driver.run.tick()
    assert (first.taken + second.taken).count(here(3)) == 2


def test_new_topic_goes_to_the_lane_with_the_least(running: tuple[Driver, list[LaneStub]]) -> None:
    driver, (first, _) = running
    first.gives_back(first.taken[0], done=True)
    driver.run.set_plans([*FOUR, plan_of(0, "payments")])
    driver.run.tick()
    assert here(0, "payments") in first.taken


def test_recreated_topic_does_not_resume_at_the_old_position(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, (first, second) = running
    other = plan_of(0, "other").target_topic_id
    again = [replace(FOUR[0], target_topic_id=other), *FOUR[1:]]
    holder = next(lane for lane in (first, second) if here(0) in lane.taken)
    holder.progress(here(0), ordinal=90)
    driver.run.set_plans(again)
    holder.progress(here(0), ordinal=91)  # a late report about the previous topic
    assert driver.partition(0).acked_ordinal == -1
    holder.gives_back(here(0), ordinal=91)
    driver.run.tick()
    takes = [
        one
        for lane in (first, second)
        for take in lane.all_sent(Take)
        for one in take.partitions
        if one.source == here(0)
    ]
    assert takes[-1].target_topic_id == other
    assert (takes[-1].handed, takes[-1].acked_ordinal, takes[-1].had_row) == (None, -1, False)


def test_late_requests_count_for_a_topic_that_was_hidden_for_a_moment(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, lanes = running
    driver.has_begun(*FOUR)
    driver.run.set_plans(FOUR[:3])  # a discovery on a broker that does not know all topics yet
    holder = next(lane for lane in lanes if here(3) in lane.taken)
    holder.troubled(here(3), "TARGET_DISCONNECTED", retriable=True, wait_ms=10_000)
    driver.run.set_plans(FOUR)
    driver.run.tick()
    takes = [
        one
        for lane in lanes
        for take in lane.all_sent(Take)
        for one in take.partitions
        if one.source == here(3)
    ]
    assert len(takes) == 2
    assert takes[-1].late_requests_ms > 9_000


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_finding_in_the_log_names_the_flow_and_deletes_no_application_topic(
    running: tuple[Driver, list[LaneStub]], caplog: pytest.LogCaptureFixture, is_shared: bool
) -> None:
    driver, lanes = running
    driver.run.work = structs.replace(driver.run.work, is_ours_alone=not is_shared)
    tp = lanes[0].taken[0]
    target = TopicPartition(f"A.{tp.topic}", tp.partition)
    found = LogFinding(code="DIVERGED", what="they differ", target=target)
    finding = troubled_message(tp, found.error(), None, 0)
    with caplog.at_level(logging.INFO):
        lanes[0].say(finding)
    (line,) = [r.getMessage() for r in caplog.records if "DIVERGED" in r.getMessage()]
    assert f"--flow '{driver.run.name}' " in line
    assert "--flow FLOW" not in line
    assert ("do not delete it" if is_shared else "delete the target topic A.orders") in line
    assert ("delete the target topic" in line) != is_shared
