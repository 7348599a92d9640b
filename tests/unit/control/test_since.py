"""A displayed state has the time at which it began."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.driver import Driver, LaneStub, plan_of
from twinlog.codes import FlowState
from twinlog.control.flow.snapshots import flow_snapshot
from twinlog.control.flow.trouble import Trouble
from twinlog.control.watch.snapshot import FlowSince, FlowSnapshot
from twinlog.errors import ClusterError, ConfigError, PartitionError, Unreachable
from twinlog.lane.messages import NO_LOAD, Progress, Throttle, UnreachableCluster
from twinlog.model import TopicPartition
from twinlog.shown import redacting
from twinlog.survey.discovery import TopicProblem

HERE = TopicPartition("orders", 0)


@pytest.fixture
def driver() -> Driver:
    return Driver([plan_of(0)], lanes=1)


@pytest.fixture
def lane(driver: Driver) -> LaneStub:
    driver.run.tick()
    (lane,) = driver.lanes_of(1, count=1)
    return lane


@pytest.fixture
def since() -> FlowSince:
    return FlowSince()


def shown(driver: Driver, since: FlowSince, *problems: TopicProblem) -> FlowSnapshot:
    return flow_snapshot(driver.run, "exact", None, problems, Counter(), since)


def test_partition_in_one_state_shows_when_that_began(
    driver: Driver, lane: LaneStub, since: FlowSince
) -> None:
    began = driver.clock.wall_ms()
    lane.progress(HERE, ordinal=3)
    for ordinal in (4, 5, 6):
        (part,) = shown(driver, since).partitions
        assert (part.state, part.since_ms) == ("COPYING", began)
        driver.pass_time(60)
        lane.progress(HERE, ordinal=ordinal)


def test_trouble_shows_when_it_began_however_often_it_is_tried_again(
    driver: Driver, lane: LaneStub, since: FlowSince
) -> None:
    lane.progress(HERE, ordinal=3)
    shown(driver, since)
    driver.pass_time(10)
    began = driver.clock.wall_ms()
    for _ in range(3):
        lane.troubled(HERE, "TARGET_UNDER_MIN_ISR", retriable=True)
        (part,) = shown(driver, since).partitions
        assert (part.code, part.since_ms) == ("TARGET_UNDER_MIN_ISR", began)
        driver.pass_time(20)
    lane.progress(HERE, ordinal=4)
    (part,) = shown(driver, since).partitions
    assert (part.code, part.since_ms) == ("", driver.clock.wall_ms()), "it copies since now"


def test_partition_whose_source_answers_nothing_is_at_no_end(
    driver: Driver, lane: LaneStub, since: FlowSince
) -> None:
    """A partition was at its end, and then its lane reports that the source does not respond. The
    partition must not be shown as AT_END any more.
    """
    lane.progress(HERE, ordinal=3)
    refused = UnreachableCluster(code="UNREACHABLE", message="A (a:9092): connection refused")
    lane.say(Progress(partitions=(), unreachable=refused, load=NO_LOAD))
    gone = Unreachable("A (a:9092): connection refused")
    trouble = Trouble(state=FlowState.DEGRADED, error=gone, since_ms=1, is_of_all=True)
    away = flow_snapshot(driver.run, "exact", trouble, (), Counter(), since)
    (part,) = away.partitions
    assert (part.state, part.code) == ("RETRYING", "UNREACHABLE")
    (part,) = shown(driver, since).partitions
    assert part.state == "COPYING", "one that alone has a trouble"


def test_no_secret_that_a_lane_or_an_error_quotes_is_shown(
    driver: Driver, lane: LaneStub, since: FlowSince
) -> None:
    """A lane's message or an error may quote a secret. The text of a snapshot is shown by status,
    REST, the page and the target's state topic, so secrets are removed from it.
    """
    with redacting(lambda text: text.replace("only-we-know", "<hidden>")):
        refused = UnreachableCluster(code="UNREACHABLE", message="A: echoes only-we-know")
        lane.say(Progress(partitions=(), unreachable=refused, load=NO_LOAD))
        away = shown(driver, since)
        lane.troubled(HERE, "TARGET_REFUSED", said="B: echoes only-we-know")
        stopped = shown(driver, since)
        error = ClusterError("echoes only-we-know", flow="A->B")
        wrong = ConfigError("echoes only-we-know", file="mm2.properties", line=3)
    assert away.reason == "A: echoes <hidden> [UNREACHABLE]"
    assert away.partitions[0].message == "A: echoes <hidden>"
    assert stopped.partitions[0].message == "B: echoes <hidden>"
    assert (str(error), error.what) == ("A->B: echoes <hidden> [CLUSTER]", "echoes <hidden>")
    assert wrong.what == "echoes <hidden>"


def test_flow_shows_when_its_state_began_and_not_when_the_mirror_did(
    driver: Driver, lane: LaneStub, since: FlowSince
) -> None:
    began = driver.clock.wall_ms()
    lane.progress(HERE, ordinal=3)
    driver.pass_time(30)
    assert shown(driver, since).since_ms == began + 30_000, "nobody looked before"
    driver.pass_time(30)
    failed_at = driver.clock.wall_ms()
    lane.troubled(HERE, "DIVERGED")
    for _ in range(2):
        flow = shown(driver, since)
        assert (flow.state, flow.since_ms) == ("PARTLY_FAILED", failed_at)
        driver.pass_time(5)


def test_partition_that_stopped_is_in_the_state_though_a_quota_binds(
    driver: Driver, lane: LaneStub, since: FlowSince
) -> None:
    (of_driver,) = driver.run.lanes()
    of_driver.throttle = Throttle(source_ms=900, target_ms=0)
    lane.progress(HERE, ordinal=3)
    of_driver.throttle = Throttle(source_ms=900, target_ms=0)
    assert shown(driver, since).state == "THROTTLED"
    lane.troubled(HERE, "DIVERGED")
    assert shown(driver, since).state == "PARTLY_FAILED"


def test_topic_that_cannot_be_mirrored_shows_since_when(
    driver: Driver, lane: LaneStub, since: FlowSince
) -> None:
    def problem(code: str) -> TopicProblem:
        return TopicProblem(topic="bad", partitions=2, error=PartitionError("no", code=code))

    began = driver.clock.wall_ms()
    for _ in range(3):
        _, *bad = shown(driver, since, problem("NAME_TOO_LONG")).partitions
        assert [part.since_ms for part in bad] == [began, began]
        driver.pass_time(5)
    changed = driver.clock.wall_ms()
    _, *bad = shown(driver, since, problem("TOPIC_UNAUTHORIZED")).partitions
    assert {part.since_ms for part in bad} == {changed}, "for another reason"
    shown(driver, since)
    driver.pass_time(5)
    _, *bad = shown(driver, since, problem("TOPIC_UNAUTHORIZED")).partitions
    assert {part.since_ms for part in bad} == {driver.clock.wall_ms()}, "it was over in between"


def test_first_record_after_a_quiet_hour_shows_no_hour_of_lag(
    driver: Driver, lane: LaneStub, since: FlowSince
) -> None:
    lane.progress(HERE, ordinal=10, end=10)
    (part,) = shown(driver, since).partitions
    assert (part.lag, part.lag_ms) == (0, 0)
    last_ms = driver.clock.wall_ms()
    driver.pass_time(3600)  # its lane has nothing to report
    shown(driver, since)
    driver.pass_time(1)
    lane.progress(HERE, ordinal=10, end=11, last_timestamp=last_ms)
    (part,) = shown(driver, since).partitions
    assert (part.lag, part.lag_ms) == (1, 1000)


def test_backlog_shows_the_age_of_the_last_copied_record(
    driver: Driver, lane: LaneStub, since: FlowSince
) -> None:
    lane.progress(HERE, ordinal=5, end=10, last_timestamp=driver.clock.wall_ms() - 60_000)
    (part,) = shown(driver, since).partitions
    assert (part.lag, part.lag_ms) == (5, 60_000)
