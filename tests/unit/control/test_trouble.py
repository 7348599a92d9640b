"""An outage is reported as one problem, from its first sign until both clusters respond."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import cast

import pytest

from tests.support.driver import HandClock, work_of
from twinlog.channel.server import Peer
from twinlog.codes import FlowState
from twinlog.control.flow.trouble import FlowTrouble
from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.partitions import LaneKey
from twinlog.control.leading.lead import Fenced, SetupWaiting, StandingBy
from twinlog.control.risk.running_flow import RunningFlow
from twinlog.control.risk.source_watch import SourceLiveness
from twinlog.errors import Disconnected, FlowError, TwinlogError, Unreachable
from twinlog.flow_log import FlowLog
from twinlog.lane.messages import Ready, UnreachableCluster

AWAY = "cluster B cannot be reached at 10.0.0.7:9092: connection refused"
UNREACHED = UnreachableCluster(code="UNREACHABLE", message=AWAY)


class WatchedFlow:
    """A flow's problem, with its clock and its log lines."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = HandClock()
        self.pulse: SourceLiveness | None = None
        self._caplog = caplog
        log = FlowLog(logging.getLogger("twinlog.tests"), "A->B")
        self.trouble = FlowTrouble(flow="A->B", log=log, clock=self.clock)

    def lane(self, number: int = 0) -> Lane:
        """Return a lane that has just reached both clusters."""
        key = LaneKey(1, number, 0)
        lane = Lane(key=key, peer=cast("Peer", None), work=work_of())
        lane.ready(Ready(), self.clock.monotonic())
        return lane

    def sees(self, *lanes: Lane, after: float = 1.0) -> None:
        self.clock.now += after
        self.trouble.note_lanes(lanes, self.pulse)

    def fails(self, error: TwinlogError, after: float = 1.0) -> None:
        self.clock.now += after
        self.trouble.set_up_failed(error)

    @property
    def state(self) -> str:
        return "" if self.trouble.now is None else self.trouble.now.state

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]

    @property
    def all_clear(self) -> list[tuple[int, str]]:
        records = self._caplog.records
        return [(r.levelno, r.getMessage()) for r in records if "again, after" in r.getMessage()]


@pytest.fixture
def flow(caplog: pytest.LogCaptureFixture) -> Iterator[WatchedFlow]:
    with caplog.at_level(logging.INFO):
        yield WatchedFlow(caplog)


def test_outage_keeps_its_beginning_through_lead_run_and_set_ups(flow: WatchedFlow) -> None:
    lane = flow.lane()
    flow.clock.now += 5
    lane.note_unreachable(UNREACHED, flow.clock.monotonic())
    began_ms = flow.clock.wall_ms() + 1000
    flow.sees(lane)
    seen = [flow.trouble.now]
    flow.clock.now += 9
    flow.trouble.lead_lost(Disconnected("10.0.0.7:9092 of cluster B has not answered"))
    seen.append(flow.trouble.now)
    for _ in range(3):
        flow.fails(Unreachable(AWAY), after=20)
        seen.append(flow.trouble.now)
    assert {(one.state, one.since_ms) for one in seen if one} == {(FlowState.DEGRADED, began_ms)}
    assert [one.reason for one in seen if one][-1] == f"{AWAY} [UNREACHABLE]"
    assert flow.all_clear == []
    flow.clock.now += 1
    flow.trouble.is_over()
    flow.trouble.is_over()
    assert flow.all_clear == [
        (logging.INFO, "A->B: both clusters can be reached again, after 1 min 10 s")
    ]
    assert flow.state == ""


def test_lanes_that_are_gone_are_no_all_clear(flow: WatchedFlow) -> None:
    lane = flow.lane()
    lane.note_unreachable(UNREACHED, flow.clock.monotonic())
    flow.sees(lane)
    flow.sees()
    assert (flow.state, flow.all_clear) == ("DEGRADED", [])


def test_lane_that_has_not_noticed_is_no_all_clear(flow: WatchedFlow) -> None:
    first, second = flow.lane(0), flow.lane(1)
    first.note_unreachable(UNREACHED, flow.clock.monotonic())
    flow.sees(first, second)
    flow.sees(second)  # the process of the first lane has died
    assert (flow.state, flow.all_clear) == ("DEGRADED", [])
    flow.clock.now += 5
    flow.sees(second, flow.lane(2))
    assert flow.state == ""
    assert len(flow.all_clear) == 1


def test_lane_that_reaches_both_again_ends_it(flow: WatchedFlow) -> None:
    lane = flow.lane()
    lane.note_unreachable(UNREACHED, flow.clock.monotonic())
    flow.sees(lane)
    flow.sees(lane, after=10)
    lane.note_unreachable(None, flow.clock.monotonic() + 0.5)
    flow.sees(lane)
    assert flow.all_clear == [
        (logging.INFO, "A->B: both clusters can be reached again, after 11 s")
    ]


@pytest.fixture
def silent(flow: WatchedFlow) -> SourceLiveness:
    """Make the flow's source silent: it has not responded for a while."""
    pulse = SourceLiveness(run=cast("RunningFlow", None), ask=lambda: None)
    pulse.silence = Disconnected("10.0.0.3:9092 of cluster A has not answered within 5 s")
    flow.pulse = pulse
    return pulse


@pytest.mark.parametrize("lanes", [0, 1])
def test_silent_source_is_an_outage_before_lanes_notice(
    flow: WatchedFlow, silent: SourceLiveness, lanes: int
) -> None:
    held = [flow.lane(number) for number in range(lanes)]
    flow.sees(*held)
    assert flow.trouble.now is not None
    assert (flow.state, flow.trouble.now.is_of_all) == ("DEGRADED", True)
    assert flow.trouble.now.reason.endswith("has not answered within 5 s [DISCONNECTED]")
    flow.sees(*held, after=9)
    silent.silence = None
    flow.sees(*held)
    assert (flow.state, [line for _, line in flow.all_clear]) == (
        "",
        ["A->B: both clusters can be reached again, after 10 s"],
    )


def test_outage_that_lanes_notice_after_the_silence_is_the_same_one(
    flow: WatchedFlow, silent: SourceLiveness
) -> None:
    lane = flow.lane()
    flow.sees(lane)
    began_ms = flow.clock.wall_ms()
    lane.note_unreachable(UNREACHED, flow.clock.monotonic())
    flow.sees(lane, after=20)
    lane.note_unreachable(None, flow.clock.monotonic() + 0.5)
    flow.sees(lane)
    assert flow.trouble.now is not None
    assert (flow.trouble.now.since_ms, flow.all_clear) == (began_ms, []), "the source is silent yet"
    silent.silence = None
    flow.sees(lane)
    assert (flow.state, len(flow.all_clear)) == ("", 1)


def test_a_response_of_the_source_ends_no_problem_while_the_target_is_unreachable(
    flow: WatchedFlow, silent: SourceLiveness
) -> None:
    lane = flow.lane()
    lane.note_unreachable(UNREACHED, flow.clock.monotonic())
    flow.sees(lane)
    silent.silence = None
    flow.sees(lane)
    flow.sees(after=1)  # the lane's process has died
    assert (flow.state, flow.all_clear) == ("DEGRADED", [])
    flow.sees(flow.lane(1))
    flow.sees(flow.lane(1))
    assert (flow.state, len(flow.all_clear)) == ("", 1)


def test_it_is_reported_immediately_for_each_code_and_once_a_minute(flow: WatchedFlow) -> None:
    flow.fails(Unreachable(AWAY))
    flow.fails(Unreachable(AWAY), after=30)
    flow.fails(Disconnected("no answer"), after=1)
    assert len(flow.lines) == 2
    flow.fails(Unreachable(AWAY), after=61)
    assert len(flow.lines) == 3
    assert flow.lines[0] == f"A->B: DEGRADED: {AWAY} [UNREACHABLE]; trying again"


def test_it_is_reported_until_when_a_flow_that_is_given_up_is_tried(flow: WatchedFlow) -> None:
    at = time.strftime("%H:%M:%SZ", time.gmtime(1_790_000_000))
    flow.trouble.set_up_failed(Unreachable(AWAY), until_ms=1_790_000_000_400)
    assert flow.lines[0].endswith(f"; trying again until {at}, then it gives up")


def test_a_standby_is_reported_once(flow: WatchedFlow) -> None:
    for _ in range(5):
        flow.fails(StandingBy("standing by: another process leads it (east)"), after=100)
    assert (flow.state, len(flow.lines)) == ("STANDBY", 1)
    flow.fails(StandingBy("standing by: another process leads it (west)"))
    assert len(flow.lines) == 2


def test_a_standby_has_reached_both_clusters(flow: WatchedFlow) -> None:
    flow.fails(Unreachable(AWAY))
    flow.fails(StandingBy("standing by"), after=60)
    assert [line for _, line in flow.all_clear] == [
        "A->B: both clusters can be reached again, after 1 min"
    ]


def test_a_promoted_flow_has_not_queried_the_source(flow: WatchedFlow) -> None:
    flow.fails(Unreachable(AWAY))
    flow.fails(Fenced("promoted"), after=60)
    assert (flow.state, flow.all_clear) == ("FENCED", [])


def test_another_trouble_in_between_is_no_all_clear(flow: WatchedFlow) -> None:
    flow.fails(Unreachable(AWAY))
    flow.fails(FlowError("another cluster answers", code="CLUSTER_CHANGED", flow="A->B"))
    assert flow.all_clear == []
    assert flow.trouble.now is not None
    assert flow.trouble.now.reason == "another cluster answers [CLUSTER_CHANGED]"
    assert flow.state == "FAILED", "waiting does not help"
    assert flow.lines[-1].count("A->B") == 1


def test_wait_for_the_lanes_before_is_no_outage(flow: WatchedFlow) -> None:
    flow.fails(SetupWaiting("A->B: waiting until its lanes have certainly stopped"))
    flow.trouble.is_over()
    assert flow.all_clear == []


def test_lost_lead_without_an_outage_names_itself(flow: WatchedFlow) -> None:
    flow.trouble.lead_lost(None)
    assert flow.trouble.now is not None
    assert flow.trouble.now.error.code == "NOT_LEADER"
    assert not flow.trouble.now.is_outage
