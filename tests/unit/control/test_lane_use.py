"""A flow with little traffic uses only one lane. When the traffic grows, it uses all lanes."""

from __future__ import annotations

import pytest

from tests.support.driver import Driver, LaneStub, plan_of
from twinlog.control.running.lane_use import BEHIND_S, LIGHT_FOR_S, PERIOD_S
from twinlog.lane.messages import LaneLoad, Progress, Take, UnreachableCluster
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind
from twinlog.model import TopicPartition

FOUR = [plan_of(number) for number in range(4)]
ALL = {one.source for one in FOUR}
MB = 1_000_000


def held(lane: LaneStub) -> set[TopicPartition]:
    return {tp for tp in ALL if lane.holds(tp)}


def reports(*lanes: LaneStub, cpu_ms: int = 20, received: int = 0) -> None:
    load = LaneLoad(received_bytes=received, sent_bytes=0, waiting_records=0, free_bytes=1)
    for lane in lanes:
        lane.say(Progress(partitions=(), unreachable=None, cpu_ms=cpu_ms, load=load))


def pass_with(driver: Driver, seconds: float, *lanes: LaneStub, **used: int) -> None:
    """Move the clock by some seconds. Each second, the lanes report this use of CPU or network."""
    for _ in range(int(seconds)):
        reports(*lanes, **used)
        driver.pass_time(1)


def give_back_all(*lanes: LaneStub) -> None:
    """Make the lanes give back the partitions that the driver has requested and that they still
    have.
    """
    for lane in lanes:
        if back := [tp for tp in dict.fromkeys(lane.asked_back) if lane.holds(tp)]:
            lane.gives_back(*back)


@pytest.fixture
def light() -> tuple[Driver, LaneStub, LaneStub]:
    """A flow whose partitions have moved to one lane. Returns the driver, this lane, and the idle
    lane.
    """
    driver = Driver(FOUR)
    driver.run.tick()
    lanes = driver.lanes_of(1)
    for lane in lanes:
        lane.progress(*lane.taken)
    pass_with(driver, LIGHT_FOR_S + 2 * PERIOD_S, *lanes)
    give_back_all(*lanes)
    idle, used = sorted(lanes, key=lambda lane: len(held(lane)))
    return driver, used, idle


def test_all_partitions_move_to_one_lane_by_message(
    light: tuple[Driver, LaneStub, LaneStub],
) -> None:
    _, used, idle = light
    assert (held(used), held(idle)) == (ALL, set())
    assert used.asked_back == []
    handed = [one.handed for take in used.all_sent(Take)[1:] for one in take.partitions]
    assert len(handed) == 2
    assert None not in handed


@pytest.mark.parametrize("used", [{"cpu_ms": 800}, {"cpu_ms": 100, "received": 40 * MB}])
def test_busy_lane_shares_its_partitions(
    light: tuple[Driver, LaneStub, LaneStub], used: dict[str, int]
) -> None:
    driver, busy, idle = light
    pass_with(driver, 2 * PERIOD_S, busy, **used)
    give_back_all(busy)
    assert len(held(busy)) == len(held(idle)) == 2
    # the partitions stay on both lanes, although the traffic is light again for as long as before
    pass_with(driver, LIGHT_FOR_S + PERIOD_S, busy, idle)
    assert len(idle.asked_back + busy.asked_back) == 4
    pass_with(driver, LIGHT_FOR_S + PERIOD_S, busy, idle)
    assert len(idle.asked_back + busy.asked_back) == 6


@pytest.mark.parametrize("used", [{"cpu_ms": 300}, {"received": 10 * MB}, {"cpu_ms": 900}])
def test_busy_lanes_keep_their_partitions(used: dict[str, int]) -> None:
    driver = Driver(FOUR)
    driver.run.tick()
    lanes = driver.lanes_of(1)
    pass_with(driver, 3 * LIGHT_FOR_S, *lanes, **used)
    assert not any(lane.asked_back for lane in lanes)


@pytest.fixture
def light_lease(light: tuple[Driver, LaneStub, LaneStub]) -> tuple[Driver, LaneStub]:
    """A flow whose next lease has only one lane, because it had little traffic."""
    driver, used, idle = light
    pass_with(driver, 300, used, idle)
    assert [lease.size for lease in driver.run.leases] == [2, 1]
    (lane,) = driver.lanes_of(2, count=1)
    give_back_all(used, idle)
    driver.run.tick()
    assert used.is_stopped
    assert idle.is_stopped
    used.goes()
    idle.goes()
    driver.jobs[0].is_done = True
    driver.run.tick()
    return driver, lane


def test_backlog_over_a_slow_link_uses_all_lanes(
    light: tuple[Driver, LaneStub, LaneStub],
) -> None:
    driver, used, idle = light
    one = driver.partition(0)
    upstream = one.recovery.upstream
    assert upstream is not None
    one.recovery.note_end(upstream + 1000, driver.clock.boot(), upstream)
    pass_with(driver, BEHIND_S, used, idle)
    assert used.asked_back == []
    pass_with(driver, PERIOD_S, used, idle)
    give_back_all(used)
    assert len(held(used)) == len(held(idle)) == 2
    pass_with(driver, 4 * LIGHT_FOR_S, used, idle)
    assert len(idle.asked_back + used.asked_back) == 4, "and keeps them"


def test_next_lease_has_one_lane(light_lease: tuple[Driver, LaneStub]) -> None:
    driver, lane = light_lease
    assert held(lane) == ALL
    pass_with(driver, 2 * LIGHT_FOR_S, lane)
    assert (len(driver.run.leases), lane.asked_back) == (1, [])


def test_lease_with_one_lane_is_replaced_when_it_gets_busy(
    light_lease: tuple[Driver, LaneStub],
) -> None:
    driver, busy = light_lease
    pass_with(driver, 2 * PERIOD_S, busy, cpu_ms=900)
    assert [lease.size for lease in driver.run.leases] == [1, 2]
    assert held(busy) == ALL, "it copies until the next ones are warm"
    lanes = driver.lanes_of(3)
    give_back_all(busy)
    assert [len(held(lane)) for lane in lanes] == [2, 2]


def test_busy_lane_shares_its_partitions_while_the_next_lease_waits_for_slots(
    light: tuple[Driver, LaneStub, LaneStub],
) -> None:
    driver, busy, idle = light
    pass_with(driver, 300, busy, idle)
    assert [lease.size for lease in driver.run.leases] == [2, 1]
    pass_with(driver, 2 * PERIOD_S, busy, cpu_ms=900)
    give_back_all(busy)
    assert len(held(busy)) == len(held(idle)) == 2


def test_first_lease_after_a_pause_has_all_lanes(
    light: tuple[Driver, LaneStub, LaneStub],
) -> None:
    driver, used, idle = light
    pause = Intent(
        flow="A->B",
        kind=IntentKind.PAUSE,
        is_set=True,
        bytes_per_second=None,
        who="",
        at_ms=1,
        reason="",
    )
    driver.run.follow(FlowIntents({pause.key: pause}))
    driver.pass_time(PERIOD_S)
    give_back_all(used)
    for lane in (used, idle):
        lane.goes()
    driver.jobs[0].is_done = True
    driver.pass_time(1)
    assert driver.run.leases == []
    driver.run.follow(FlowIntents())
    driver.pass_time(1)
    assert [lease.size for lease in driver.run.leases] == [2]


def test_the_other_lane_takes_over_from_one_that_is_lost(
    light: tuple[Driver, LaneStub, LaneStub],
) -> None:
    driver, used, idle = light
    driver.has_begun(*FOUR)
    used.goes()
    driver.run.tick()
    assert held(idle) == ALL


def test_a_lane_that_reaches_both_clusters_takes_over_from_one_that_does_not(
    light: tuple[Driver, LaneStub, LaneStub],
) -> None:
    driver, used, idle = light
    away = UnreachableCluster(code="UNREACHABLE", message="B: no broker responds")
    used.say(Progress(partitions=(), unreachable=away, load=LaneLoad()))
    driver.pass_time(PERIOD_S)
    assert set(used.asked_back) == ALL
    give_back_all(used)
    assert held(idle) == ALL


def test_new_partitions_go_to_the_same_lane(light: tuple[Driver, LaneStub, LaneStub]) -> None:
    driver, used, idle = light
    driver.run.set_plans([*FOUR, plan_of(0, "new")])
    driver.pass_time(1)
    assert used.holds(TopicPartition("new", 0))
    assert idle.taken == [tp for tp in idle.taken if tp in ALL]


def test_once_moves_nothing() -> None:
    driver = Driver(FOUR, once=True)
    driver.run.tick()
    lanes = driver.lanes_of(1)
    pass_with(driver, 3 * LIGHT_FOR_S, *lanes)
    assert not any(lane.asked_back for lane in lanes)
