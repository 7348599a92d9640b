"""A run applies intents (pause, resume, release, limit), with a manual clock."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.support.driver import Driver, LaneStub, plan_of, work_of
from twinlog.codes import FlowState, PartitionState
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.flow.start import Priorities
from twinlog.control.duties.rounds import Duties
from twinlog.control.flow.snapshots import flow_snapshot
from twinlog.control.flow.steering import IntentFollower
from twinlog.control.lanes.lanes import LeaseState
from twinlog.control.lanes.partitions import Placement
from twinlog.control.running.flow_run import ONCE_GIVES_UP_S
from twinlog.control.watch.snapshot import FlowSince, FlowSnapshot
from twinlog.errors import CorruptData, Disconnected, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.lane.messages import KnownProducers, Pace, Take
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind, flow_intents
from twinlog.model import TopicPartition
from twinlog.survey.state_reader import StateNews

FOUR = [plan_of(0), plan_of(1), plan_of(0, "audit"), plan_of(1, "audit")]
ORDERS = [TopicPartition("orders", number) for number in range(2)]
AUDIT = [TopicPartition("audit", number) for number in range(2)]


def wanted(*rows: tuple[IntentKind, str]) -> FlowIntents:
    every = (
        Intent(
            bytes_per_second=None,
            reason="",
            flow="A->B",
            kind=kind,
            topic=topic,
            is_set=True,
            who="anna@ops",
            at_ms=1,
        )
        for kind, topic in rows
    )
    return flow_intents("A->B", [row.encode() for row in every])


def news(intents: FlowIntents, *producers: int) -> StateNews:
    return StateNews(intents=intents, producers=frozenset(producers))


PAUSED = wanted((IntentKind.PAUSE, ""))
NOTHING = FlowIntents()
LIMITED = flow_intents(
    "A->B",
    [
        Intent(
            reason="",
            flow="A->B",
            kind=IntentKind.LIMIT,
            is_set=True,
            bytes_per_second=5000,
            who="anna@ops",
            at_ms=1,
        ).encode()
    ],
)


def snapshot(driver: Driver) -> FlowSnapshot:
    return flow_snapshot(driver.run, "exact", None, (), Counter(), FlowSince())


def states(driver: Driver) -> dict[TopicPartition, PartitionState]:
    return {
        TopicPartition(part.topic, part.partition): part.state
        for part in snapshot(driver).partitions
    }


@pytest.fixture
def driver() -> Driver:
    return Driver(FOUR)


@pytest.fixture
def running(driver: Driver) -> tuple[Driver, list[LaneStub]]:
    driver.run.tick()
    lanes = driver.lanes_of(1)
    for lane in lanes:
        lane.progress(*lane.taken, ordinal=5)
    return driver, lanes


# -- a paused flow


def test_pause_takes_everything_from_the_lanes_and_ends_them(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, lanes = running
    driver.run.follow(PAUSED)
    assert sorted(tp for lane in lanes for tp in lane.asked_back) == sorted(ORDERS + AUDIT)
    driver.run.tick()
    assert not any(lane.is_stopped for lane in lanes), "first they give back what they have"
    for lane in lanes:
        lane.gives_back(*lane.taken, ordinal=9)
    driver.run.tick()
    assert all(lane.is_stopped for lane in lanes)
    assert set(states(driver).values()) == {PartitionState.PAUSED}
    assert snapshot(driver).state is FlowState.PAUSED
    assert "anna@ops" in snapshot(driver).reason
    for lane in lanes:
        lane.goes()
    driver.jobs[0].is_done = True
    driver.pass_time(600)
    assert len(driver.jobs) == 1, "no lease begins"
    assert driver.run.leases == []


def test_it_resumes_cold_in_a_new_lease(running: tuple[Driver, list[LaneStub]]) -> None:
    driver, lanes = running
    driver.run.follow(PAUSED)
    for lane in lanes:
        lane.gives_back(*lane.taken, ordinal=9)
        lane.goes()
    driver.jobs[0].is_done = True
    driver.pass_time(100)
    assert all(one.handed is None for one in driver.run.partitions.values())
    driver.run.follow(NOTHING)
    driver.run.tick()
    assert len(driver.jobs) == 2
    new = driver.lanes_of(2)
    assert sorted(tp for lane in new for tp in lane.taken) == sorted(ORDERS + AUDIT)
    assert snapshot(driver).state is FlowState.RUNNING


def test_resume_before_the_lanes_gave_back(running: tuple[Driver, list[LaneStub]]) -> None:
    driver, lanes = running
    driver.run.follow(PAUSED)
    driver.run.tick()
    driver.run.follow(NOTHING)
    driver.run.tick()
    assert [lease.state for lease in driver.run.leases] == [
        LeaseState.RETIRING,
        LeaseState.WARMING,
    ]
    new = driver.lanes_of(2)
    for lane in lanes:
        lane.gives_back(*lane.taken, ordinal=9)
    assert sorted(tp for lane in new for tp in lane.taken) == sorted(ORDERS + AUDIT)


def test_pause_while_the_first_lease_warms_up(driver: Driver) -> None:
    driver.run.tick()
    driver.run.follow(PAUSED)
    driver.run.tick()
    first = driver.connect(1, 0).ready()
    driver.run.tick()
    assert first.taken == []
    assert first.is_stopped


def test_partition_that_was_handed_over_when_the_pause_came(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    """When a flow is paused, a partition has been handed over by one lane and not yet taken by the
    next one. The handed-over position is dropped, because the clusters may have changed by the time
    of the resume.
    """
    driver, lanes = running
    driver.pass_time(301)
    for lane in driver.lanes_of(2):
        lane.goes()
    for lane in lanes:
        lane.gives_back(*lane.taken, ordinal=9)
    assert all(one.handed is not None for one in driver.run.partitions.values())
    driver.run.follow(PAUSED)
    assert all(one.handed is None for one in driver.run.partitions.values())


def test_lane_that_is_lost_while_it_gives_back(running: tuple[Driver, list[LaneStub]]) -> None:
    driver, lanes = running
    driver.run.follow(PAUSED)
    for lane in lanes:
        lane.goes()
    driver.jobs[0].is_done = True
    driver.pass_time(1)
    assert {one.placement for one in driver.run.partitions.values()} == {Placement.PENDING}
    assert all(one.wait_until > driver.clock.now for one in driver.run.partitions.values())
    driver.pass_time(100)
    assert len(driver.jobs) == 1


def test_code_of_a_partition_is_shown_while_it_is_paused(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, lanes = running
    lane = next(one for one in lanes if one.holds(ORDERS[0]))
    lane.troubled(ORDERS[0], "DIVERGED")
    driver.run.follow(PAUSED)
    part = next(
        p for p in snapshot(driver).partitions if (p.topic, p.partition) == tuple(ORDERS[0])
    )
    assert (part.state, part.code) == (PartitionState.PAUSED, "DIVERGED")


def test_once_ends_when_it_is_paused() -> None:
    driver = Driver(FOUR, once=True)
    driver.run.tick()
    lanes = driver.lanes_of(1)
    driver.run.follow(PAUSED)
    for lane in lanes:
        lane.gives_back(*lane.taken)
    driver.run.tick()
    assert driver.is_stopping()
    assert set(states(driver).values()) == {PartitionState.PAUSED}


# -- topics


def test_paused_topic_leaves_and_the_others_stay(running: tuple[Driver, list[LaneStub]]) -> None:
    driver, lanes = running
    driver.run.follow(wanted((IntentKind.PAUSE, "audit")))
    assert sorted(tp for lane in lanes for tp in lane.asked_back) == AUDIT
    for lane in lanes:
        lane.gives_back(*lane.asked_back)
    driver.pass_time(60)
    found = states(driver)
    assert {found[tp] for tp in AUDIT} == {PartitionState.PAUSED}
    assert {found[tp] for tp in ORDERS} == {PartitionState.COPYING}
    assert snapshot(driver).state is FlowState.RUNNING
    message = next(p.message for p in snapshot(driver).partitions if p.topic == "audit")
    assert message == "paused by anna@ops"
    driver.run.follow(NOTHING)
    driver.run.tick()
    assert all(driver.run.partitions[tp].placement is Placement.ASSIGNED for tp in AUDIT)


def test_discovery_does_not_bring_a_paused_or_released_topic_back(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, lanes = running
    driver.run.follow(wanted((IntentKind.PAUSE, "audit"), (IntentKind.RELEASE, "orders")))
    for lane in lanes:
        lane.gives_back(*lane.taken)
    driver.run.set_plans([*FOUR, plan_of(2, "audit"), plan_of(2)])
    driver.pass_time(60)
    found = states(driver)
    assert {found[tp] for tp in ORDERS} == {PartitionState.RELEASED}
    assert {state for tp, state in found.items() if tp.topic == "audit"} == {PartitionState.PAUSED}
    assert TopicPartition("orders", 2) not in found


def test_released_topic_is_mirrored_again_when_that_is_undone(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, lanes = running
    driver.run.follow(wanted((IntentKind.RELEASE, "orders")))
    for lane in lanes:
        lane.gives_back(*lane.asked_back)
    assert not any(driver.run.partitions[tp].is_wanted for tp in ORDERS)
    driver.run.follow(NOTHING)
    driver.run.tick()
    assert all(driver.run.partitions[tp].placement is Placement.ASSIGNED for tp in ORDERS)


def test_a_released_and_resumed_partition_starts_cold(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    """Other clients may have written to the topic while it was released. So a partition that is
    resumed must start cold: the lane searches both logs for the position, and gets no position that
    another lane handed over.
    """
    driver, lanes = running
    driver.run.follow(wanted((IntentKind.RELEASE, "orders")))
    for lane in lanes:
        lane.gives_back(*lane.asked_back)
    driver.pass_time(50)
    before = {id(take) for lane in lanes for take in lane.all_sent(Take)}
    driver.run.follow(NOTHING)
    driver.run.tick()
    new = [take for lane in lanes for take in lane.all_sent(Take) if id(take) not in before]
    parts = [one for take in new for one in take.partitions]
    assert sorted(one.source for one in parts) == ORDERS
    assert all(one.handed is None for one in parts)


def test_nothing_of_another_generation_holds_but_its_counts(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    """Other processes led the flow between two generations of this process. The later generation
    continues the counts of copied records. It uses no position that was handed over in the earlier
    one.
    """
    driver, lanes = running
    driver.pass_time(301)
    for lane in driver.lanes_of(2):
        lane.goes()
    for lane in lanes:
        lane.gives_back(*lane.taken, ordinal=9)
    former = [*driver.run.partitions.values()]
    assert all(one.handed is not None for one in former)
    later = Driver([], clean=False)
    later.clock.now = driver.clock.now
    later.run.continue_from(former)
    later.run.set_plans(FOUR)
    later.run.tick()
    new = later.lanes_of(1)
    parts = [one for lane in new for take in lane.all_sent(Take) for one in take.partitions]
    assert sorted(one.source for one in parts) == sorted(ORDERS + AUDIT)
    assert all(one.handed is None for one in parts)
    assert {one.term.generation for one in parts} == {later.run.generation}
    assert {one.total_records for one in later.run.partitions.values()} == {5}
    # latencies that they report now belong to this run
    assert all(one.spread is later.run.spread for one in later.run.partitions.values())


def test_flow_that_was_set_up_paused_waits_for_a_look_for_topics(
    driver: Driver, steered: IntentFollower
) -> None:
    steered.begin(news(PAUSED))
    assert set(states(driver).values()) == {PartitionState.PAUSED}
    steered._apply_news(news(NOTHING))
    driver.run.tick()
    lanes = driver.lanes_of(1)
    assert not any(lane.taken for lane in lanes), "the guard against loops has not been asked"
    driver.run.set_plans(FOUR)
    driver.run.tick()
    assert sorted(tp for lane in lanes for tp in lane.taken) == sorted(ORDERS + AUDIT)


def test_lag_of_a_paused_partition_grows_with_the_source(
    running: tuple[Driver, list[LaneStub]],
) -> None:
    driver, lanes = running
    assert {part.lag for part in snapshot(driver).partitions} == {95}
    driver.run.follow(PAUSED)
    for lane in lanes:
        lane.gives_back(*lane.taken)
    for partition in driver.run.partitions.values():
        partition.queried_end = 300
    assert {part.lag for part in snapshot(driver).partitions} == {295}


def test_lanes_are_renewed_until_they_are(running: tuple[Driver, list[LaneStub]]) -> None:
    """All lanes must get new settings. If the lease (Spark job whose tasks are lanes) that has the
    new settings fails, another lease is started, until all lanes have them.
    """
    driver, _ = running
    driver.run.work = work_of(has_budget=True)
    driver.run.tick()
    assert len(driver.jobs) == 2
    driver.jobs[1].is_done, driver.jobs[1].error = True, TwinlogError("lost", code="LEASE")
    driver.pass_time(20)
    assert len(driver.jobs) == 3
    driver.lanes_of(3)
    driver.pass_time(40)
    assert len(driver.jobs) == 3
    assert driver.run.current is not None
    assert driver.run.current.work is driver.run.work


def test_limit_that_goes_holds_until_lanes_without_one_are_there(
    running: tuple[Driver, list[LaneStub]], steered: IntentFollower
) -> None:
    driver, _ = running
    driver.run.work = work_of(has_budget=False)
    steered.begin(news(LIMITED))
    assert driver.run.pacer is not None
    assert driver.run.pacer.limit == 5000
    driver.run.tick()
    driver.lanes_of(2)
    assert driver.run.current is not None
    assert driver.run.current.work.has_budget
    steered._apply_news(news(NOTHING))
    driver.run.tick()
    assert driver.run.pacer is not None, "its lanes wait for shares"
    assert driver.run.pacer.limit > 1 << 30
    driver.lanes_of(3)
    assert driver.run.pacer is None


@pytest.mark.parametrize("when", ["first lease", "lease change", "off and on"])
def test_limit_that_comes_while_a_lease_warms_up_is_kept(
    driver: Driver, steered: IntentFollower, when: str
) -> None:
    """A limit (bytes per second) is set while a Spark job is starting whose lanes ignore limits
    (`Work.has_budget`). When that job becomes the current one, the limit must not be dropped. The
    lanes of the next job fetch nothing until they get their shares of it, so the shares must be
    sent (`Pace`).
    """
    steered.begin(news(NOTHING))
    driver.run.work = work_of(has_budget=False)
    driver.run.tick()
    old: list[LaneStub] = []
    if when != "first lease":
        old += driver.lanes_of(1)
        driver.pass_time(301)
    steered._apply_news(news(LIMITED))
    if when == "off and on":
        steered._apply_news(news(NOTHING))
        steered._apply_news(news(LIMITED))
    old += driver.lanes_of(len(driver.jobs))
    driver.run.tick()
    lanes = driver.lanes_of(len(driver.jobs))
    for lane in old:
        assert lane.lane is not None
        lane.gives_back(*lane.lane.partitions)
    assert driver.run.current is not None
    assert driver.run.current.work is driver.run.work
    assert driver.run.work.has_budget
    assert driver.run.pacer is not None
    driver.pass_time(1)
    assert all(lane.all_sent(Pace) for lane in lanes)


# -- intents that cannot be read


@dataclass
class Asked:
    """Replaces the supervisor's threads. The test itself completes each call."""

    then: Callable[[Any], None] = lambda _: None
    otherwise: Callable[[TwinlogError], None] = lambda _: None
    asked: int = 0

    def __call__(
        self,
        job: Callable[[], Any],
        then: Callable[[Any], None],
        otherwise: Callable[[TwinlogError], None],
    ) -> None:
        self.asked += 1
        self.then, self.otherwise = then, otherwise


@dataclass
class Lanes:
    """The part of a configuration that concerns limits."""

    max_bytes_per_second: int | None = None
    priorities: Priorities = field(default_factory=lambda: Priorities(()))


@dataclass
class Config:
    lanes: Lanes = field(default_factory=Lanes)


@dataclass
class DutiesStub:
    is_held: bool = False

    def set_held(self, *, is_held: bool) -> None:
        self.is_held = is_held


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def steered(driver: Driver) -> IntentFollower:
    return IntentFollower(
        config=cast("FlowConfig", Config()),
        run=driver.run,
        duties=cast("Duties", DutiesStub()),
        read=lambda: news(NOTHING),
        release=lambda _: None,
        followed=lambda _: None,
        log=FlowLog(logging.getLogger(__name__), "A->B"),
    )


def test_it_asks_every_second_and_never_twice_at_once(
    driver: Driver, steered: IntentFollower, asked: Asked
) -> None:
    for _ in range(30):
        steered.poll(asked)
        driver.clock.now += 0.1
    assert asked.asked == 1
    asked.then(news(NOTHING))
    steered.poll(asked)
    assert asked.asked == 2


def test_rows_that_another_flow_has_just_read_are_applied_without_a_query(
    driver: Driver, steered: IntentFollower, asked: Asked
) -> None:
    steered.at_hand = lambda: news(PAUSED)
    steered.poll(asked)
    assert driver.run.intents == PAUSED
    steered.at_hand = lambda: None
    driver.clock.now += 1.0
    steered.poll(asked)
    assert asked.asked == 1


def test_unreadable_intents_stop_nothing_and_start_nothing(
    running: tuple[Driver, list[LaneStub]], steered: IntentFollower, asked: Asked
) -> None:
    driver, lanes = running
    steered.poll(asked)
    asked.otherwise(CorruptData("a row", code="STATE_CORRUPT"))
    driver.run.set_plans([*FOUR, plan_of(0, "new")])
    driver.pass_time(30)
    assert not any(lane.asked_back for lane in lanes)
    assert states(driver)[TopicPartition("new", 0)] is PartitionState.PENDING
    assert snapshot(driver).state is FlowState.DEGRADED
    assert "STATE_CORRUPT" in snapshot(driver).reason
    assert driver.run.errors["STATE_CORRUPT"] == 1
    lanes[0].goes()
    driver.pass_time(40)
    still = [one for one in driver.run.partitions.values() if one.plan.source.topic != "new"]
    assert {one.placement for one in still} == {Placement.ASSIGNED}, (
        "a lost lane's continue elsewhere"
    )
    asked.then(news(NOTHING))
    driver.pass_time(1)
    assert driver.partition(0, "new").placement is Placement.ASSIGNED


def test_a_pause_remains_while_intents_are_unreadable(
    running: tuple[Driver, list[LaneStub]], steered: IntentFollower, asked: Asked
) -> None:
    driver, lanes = running
    steered.poll(asked)
    asked.then(news(PAUSED))
    for lane in lanes:
        lane.gives_back(*lane.taken)
    driver.clock.now += 5
    steered.poll(asked)
    asked.otherwise(CorruptData("a row", code="STATE_CORRUPT"))
    driver.pass_time(30)
    assert set(states(driver).values()) == {PartitionState.PAUSED}
    assert steered.duties.is_held  # type: ignore[attr-defined]


def test_topic_without_a_leader_for_a_moment_holds_nothing_back(
    running: tuple[Driver, list[LaneStub]], steered: IntentFollower, asked: Asked
) -> None:
    driver, _ = running
    for seconds, holds in ((0, False), (5, False), (6, True)):
        driver.clock.now += seconds
        steered.poll(asked)
        asked.otherwise(Disconnected("gone"))
        assert bool(driver.run.hold_reason) is holds


def test_time_that_a_look_takes_counts(
    running: tuple[Driver, list[LaneStub]], steered: IntentFollower, asked: Asked
) -> None:
    driver, _ = running
    steered.poll(asked)
    driver.clock.now += 11
    asked.otherwise(Disconnected("gone"))
    assert driver.run.hold_reason


def test_once_ends_although_intents_are_unreadable() -> None:
    driver = Driver(FOUR, once=True)
    driver.run.hold_back(CorruptData("a row", code="STATE_CORRUPT"))
    driver.run.tick()
    driver.lanes_of(1)
    driver.pass_time(ONCE_GIVES_UP_S + 35)
    assert driver.is_stopping()
    assert {part.code for part in snapshot(driver).partitions} == {"STATE_CORRUPT"}


def test_a_partition_that_is_no_longer_mirrored_is_not_held_back(driver: Driver) -> None:
    driver.run.follow(wanted((IntentKind.RELEASE, "audit")))
    driver.run.hold_back(CorruptData("a row", code="STATE_CORRUPT"))
    found = states(driver)
    assert {found[tp] for tp in AUDIT} == {PartitionState.RELEASED}
    assert {found[tp] for tp in ORDERS} == {PartitionState.RETRYING}
    driver.run.hold_back(None)
    assert {states(driver)[tp] for tp in ORDERS} == {PartitionState.PENDING}
    assert {part.code for part in snapshot(driver).partitions} == {""}


def test_paused_flow_reports_unreadable_intents(
    running: tuple[Driver, list[LaneStub]], steered: IntentFollower, asked: Asked
) -> None:
    driver, _ = running
    steered.begin(news(PAUSED))
    steered.poll(asked)
    asked.otherwise(CorruptData("a row", code="STATE_CORRUPT"))
    found = snapshot(driver)
    assert found.state is FlowState.PAUSED
    assert "paused by anna@ops" in found.reason
    assert "STATE_CORRUPT" in found.reason


# -- topics that other clients write to


def test_lanes_hear_of_another_flow_s_producer_and_continue(
    running: tuple[Driver, list[LaneStub]], steered: IntentFollower
) -> None:
    driver, lanes = running
    driver.run.work = structs.replace(driver.run.work, is_ours_alone=False)
    for lease in driver.run.leases:
        lease.work = driver.run.work
    steered._apply_news(replace(news(NOTHING), producers=frozenset({7})))
    for lane in lanes:
        assert lane.all_sent(KnownProducers) == [KnownProducers(producers=(7,))]
    jobs = len(driver.jobs)
    driver.pass_time(1)
    assert len(driver.jobs) == jobs, "no lane is renewed for it"
    steered._apply_news(replace(news(NOTHING), producers=frozenset({7})))
    assert all(len(lane.all_sent(KnownProducers)) == 1 for lane in lanes), "it is told once"


def test_foreign_data_is_checked_again_when_another_flow_becomes_known(
    running: tuple[Driver, list[LaneStub]], steered: IntentFollower
) -> None:
    driver, _ = running
    driver.run.work = structs.replace(driver.run.work, is_ours_alone=False)
    partition = driver.run.partitions[ORDERS[0]]
    placements = []
    for _ in range(2):  # at first, it may be unknown whose records they are
        partition.note_failure("TAKEN_OVER", "others have written", retriable=False)
        placements.append(partition.placement)
    assert placements == [Placement.PENDING, Placement.FAILED]
    assert not partition.is_due(driver.clock.monotonic())
    steered._apply_news(replace(news(NOTHING), producers=frozenset({7})))
    assert partition.is_due(driver.clock.monotonic())


# -- duties


def test_duties_rest_while_the_flow_is_paused(
    running: tuple[Driver, list[LaneStub]], steered: IntentFollower
) -> None:
    driver, _ = running
    steered.begin(news(PAUSED))
    assert steered.duties.is_held  # type: ignore[attr-defined]
    assert not driver.run.wants_discovery
    steered._apply_news(news(NOTHING))
    assert not steered.duties.is_held  # type: ignore[attr-defined]
    assert driver.run.wants_discovery
