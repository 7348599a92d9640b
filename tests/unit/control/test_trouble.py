"""An outage is one trouble, from its first sign to the answer of both clusters."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import cast

import pytest

from tests.support.driver import HandClock, work_of
from twinlog.channel.peer import Peer
from twinlog.codes import FlowState
from twinlog.control.flow.trouble import FlowTrouble
from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.partitions import LaneKey
from twinlog.control.leading.lead import Fenced, SetupWaiting, StandingBy
from twinlog.control.risk.pulse import Pulse
from twinlog.control.risk.running_flow import RunningFlow
from twinlog.errors import Disconnected, FlowError, TwinlogError, Unreachable
from twinlog.flow_log import FlowLog
from twinlog.lane.messages import Away

AWAY = "cluster B cannot be reached at 10.0.0.7:9092: connection refused"
UNREACHED = Away(code="UNREACHABLE", message=AWAY)


class Told:
    """A flow's trouble, its clock, and the lines that it writes."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = HandClock()
        self.pulse: Pulse | None = None
        self._caplog = caplog
        log = FlowLog(logging.getLogger("twinlog.tests"), "A->B")
        self.trouble = FlowTrouble(flow="A->B", log=log, clock=self.clock)

    def lane(self, number: int = 0) -> Lane:
        """One that has reached both clusters just now."""
        key = LaneKey(1, number, 0)
        lane = Lane(key=key, peer=cast("Peer", None), work=work_of())
        lane.ready(self.clock.monotonic())
        return lane

    def sees(self, *lanes: Lane, after: float = 1.0) -> None:
        self.clock.now += after
        self.trouble.see(lanes, self.pulse)

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
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    with caplog.at_level(logging.INFO):
        yield Told(caplog)


def test_outage_keeps_its_beginning_through_lead_run_and_set_ups(told: Told) -> None:
    lane = told.lane()
    told.clock.now += 5
    lane.reaches(UNREACHED, told.clock.monotonic())
    began_ms = told.clock.wall_ms() + 1000
    told.sees(lane)
    seen = [told.trouble.now]
    told.clock.now += 9
    told.trouble.lead_lost(Disconnected("10.0.0.7:9092 of cluster B has not answered"))
    seen.append(told.trouble.now)
    for _ in range(3):
        told.fails(Unreachable(AWAY), after=20)
        seen.append(told.trouble.now)
    assert {(one.state, one.since_ms) for one in seen if one} == {(FlowState.DEGRADED, began_ms)}
    assert [one.reason for one in seen if one][-1] == f"{AWAY} [UNREACHABLE]"
    assert told.all_clear == []
    told.clock.now += 1
    told.trouble.is_over()
    told.trouble.is_over()
    assert told.all_clear == [
        (logging.INFO, "A->B: both clusters can be reached again, after 1 min 10 s")
    ]
    assert told.state == ""


def test_lanes_that_are_gone_are_no_all_clear(told: Told) -> None:
    lane = told.lane()
    lane.reaches(UNREACHED, told.clock.monotonic())
    told.sees(lane)
    told.sees()
    assert (told.state, told.all_clear) == ("DEGRADED", [])


def test_lane_that_has_not_noticed_is_no_all_clear(told: Told) -> None:
    first, second = told.lane(0), told.lane(1)
    first.reaches(UNREACHED, told.clock.monotonic())
    told.sees(first, second)
    told.sees(second)  # the first one's process died
    assert (told.state, told.all_clear) == ("DEGRADED", [])
    told.clock.now += 5
    told.sees(second, told.lane(2))
    assert told.state == ""
    assert len(told.all_clear) == 1


def test_lane_that_reaches_both_again_ends_it(told: Told) -> None:
    lane = told.lane()
    lane.reaches(UNREACHED, told.clock.monotonic())
    told.sees(lane)
    told.sees(lane, after=10)
    lane.reaches(None, told.clock.monotonic() + 0.5)
    told.sees(lane)
    assert told.all_clear == [
        (logging.INFO, "A->B: both clusters can be reached again, after 11 s")
    ]


@pytest.fixture
def silent(told: Told) -> Pulse:
    """What a run hears of a source that has answered nothing for a while."""
    pulse = Pulse(run=cast("RunningFlow", None), ask=lambda: None)
    pulse.silence = Disconnected("10.0.0.3:9092 of cluster A has not answered within 5 s")
    told.pulse = pulse
    return pulse


@pytest.mark.parametrize("lanes", [0, 1])
def test_silent_source_is_an_outage_before_lanes_notice(
    told: Told, silent: Pulse, lanes: int
) -> None:
    held = [told.lane(number) for number in range(lanes)]
    told.sees(*held)
    assert told.trouble.now is not None
    assert (told.state, told.trouble.now.is_of_all) == ("DEGRADED", True)
    assert told.trouble.now.reason.endswith("has not answered within 5 s [DISCONNECTED]")
    told.sees(*held, after=9)
    silent.silence = None
    told.sees(*held)
    assert (told.state, [line for _, line in told.all_clear]) == (
        "",
        ["A->B: both clusters can be reached again, after 10 s"],
    )


def test_outage_that_lanes_notice_after_the_silence_is_the_same_one(
    told: Told, silent: Pulse
) -> None:
    lane = told.lane()
    told.sees(lane)
    began_ms = told.clock.wall_ms()
    lane.reaches(UNREACHED, told.clock.monotonic())
    told.sees(lane, after=20)
    lane.reaches(None, told.clock.monotonic() + 0.5)
    told.sees(lane)
    assert told.trouble.now is not None
    assert (told.trouble.now.since_ms, told.all_clear) == (began_ms, []), "the source is silent yet"
    silent.silence = None
    told.sees(lane)
    assert (told.state, len(told.all_clear)) == ("", 1)


def test_answer_of_the_source_is_no_all_clear_while_the_target_is_away(
    told: Told, silent: Pulse
) -> None:
    lane = told.lane()
    lane.reaches(UNREACHED, told.clock.monotonic())
    told.sees(lane)
    silent.silence = None
    told.sees(lane)
    told.sees(after=1)  # its process died
    assert (told.state, told.all_clear) == ("DEGRADED", [])
    told.sees(told.lane(1))
    told.sees(told.lane(1))
    assert (told.state, len(told.all_clear)) == ("", 1)


def test_it_is_told_at_once_for_each_code_and_once_a_minute(told: Told) -> None:
    told.fails(Unreachable(AWAY))
    told.fails(Unreachable(AWAY), after=30)
    told.fails(Disconnected("no answer"), after=1)
    assert len(told.lines) == 2
    told.fails(Unreachable(AWAY), after=61)
    assert len(told.lines) == 3
    assert told.lines[0] == f"A->B: DEGRADED: {AWAY} [UNREACHABLE]; trying again"


def test_whoever_stands_by_says_so_once(told: Told) -> None:
    for _ in range(5):
        told.fails(StandingBy("standing by: another process leads it (east)"), after=100)
    assert (told.state, len(told.lines)) == ("STANDBY", 1)
    told.fails(StandingBy("standing by: another process leads it (west)"))
    assert len(told.lines) == 2


def test_whoever_stands_by_has_asked_both(told: Told) -> None:
    told.fails(Unreachable(AWAY))
    told.fails(StandingBy("standing by"), after=60)
    assert [line for _, line in told.all_clear] == [
        "A->B: both clusters can be reached again, after 1 min"
    ]


def test_who_was_promoted_has_not_asked_the_source(told: Told) -> None:
    told.fails(Unreachable(AWAY))
    told.fails(Fenced("promoted"), after=60)
    assert (told.state, told.all_clear) == ("FENCED", [])


def test_another_trouble_in_between_is_no_all_clear(told: Told) -> None:
    told.fails(Unreachable(AWAY))
    told.fails(FlowError("another cluster answers", code="CLUSTER_CHANGED", flow="A->B"))
    assert told.all_clear == []
    assert told.trouble.now is not None
    assert told.trouble.now.reason == "another cluster answers [CLUSTER_CHANGED]"
    assert told.state == "FAILED", "waiting does not help"
    assert told.lines[-1].count("A->B") == 1


def test_wait_for_the_lanes_before_is_no_outage(told: Told) -> None:
    told.fails(SetupWaiting("A->B: waiting until its lanes have surely stopped"))
    told.trouble.is_over()
    assert told.all_clear == []


def test_lost_lead_without_an_outage_names_itself(told: Told) -> None:
    told.trouble.lead_lost(None)
    assert told.trouble.now is not None
    assert told.trouble.now.error.code == "NOT_LEADER"
    assert not told.trouble.now.is_outage
