"""A cluster is unreachable for longer than the lead of a flow lasts. All views show this as one
outage.
"""

from __future__ import annotations

import logging
import re
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.load import Load
from tests.support.mirror import Mirror
from tests.support.rig import Rig
from tests.support.stopwatch import Stopwatch
from twinlog.cli.terminal.progress import PlainProgress
from twinlog.cluster.groups.membership import Membership
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.watch.readiness import FlowReadiness, Readiness
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.survey.discovery import Discovery

pytestmark = [pytest.mark.faults, pytest.mark.broker]

SILENT = re.compile(r"has not responded for (\d+) s")
SOON_S = 2.0
ALL_CLEAR = "both clusters can be reached again, after"


class Screen:
    """Collects a mirror's snapshots, as a display, a probe and a reader of the status would see
    them.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.seen: list[FlowSnapshot] = []
        self.readiness: list[FlowReadiness] = []
        self._plain = PlainProgress(self.lines.append, once=False)
        self._ready = Readiness(outage_within_s=SOON_S)

    def update(self, flows: list[FlowSnapshot]) -> None:
        self._plain.update(flows)
        self.seen += flows
        self.readiness += self._ready.update(time.monotonic(), flows)

    def states(self) -> list[str]:
        """Return the states in order, without repetitions."""
        states = [flow.state for flow in self.seen]
        return [one for n, one in enumerate(states) if n == 0 or states[n - 1] != one]


@pytest.fixture(autouse=True)
def short_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    brief = partial(Membership, session_timeout_ms=2000)
    monkeypatch.setattr("twinlog.control.leading.lead.Membership", brief)
    monkeypatch.setattr("twinlog.control.flow.managed_flow.MAX_AWAY_PAUSE_S", 1.0)
    monkeypatch.setattr("twinlog.cli.terminal.progress.PASSING_TROUBLE_MS", 0)


@pytest.mark.witness("an outage of the target is one state change until it ends", case="killed")
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_target_that_is_unreachable_for_longer_than_a_lead(
    rig: Rig, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.create()
    screen, target = Screen(), rig.target
    end, begin = (target.kill, target.restart) if how == "killed" else (target.freeze, target.thaw)
    mirror = Mirror(rig.config(), lanes=1, on_snapshot=screen.update)
    with caplog.at_level(logging.INFO), mirror, Load(rig.source, rig.topic, per_second=200) as load:
        mirror.eventually(lambda parts: all(p.records > 20 for p in parts))
        end(1)
        try:
            eventually(lambda: mirror.snapshots[0].next_try_ms, what="a set-up that failed")
            (flow,) = mirror.snapshots
            assert (flow.state, flow.generation) == ("DEGRADED", None)
            assert rig.target_alias in flow.reason
            assert rig.target.bootstrap in flow.reason
            (row,) = flow.partitions
            assert (row.state, row.message.count("[")) == ("RETRYING", 0), row
            assert row.code in {"UNREACHABLE", "DISCONNECTED", "TARGET_DISCONNECTED"}
            assert row.records > 20
            assert row.lag is not None
            assert ALL_CLEAR not in caplog.text
            eventually(lambda: not screen.readiness[-1].is_ready, what="what a probe sees")
        finally:
            begin(1)
        eventually(lambda: mirror.snapshots[0].state == "RUNNING", what="a run after the outage")
        eventually(lambda: screen.readiness[-1].is_ready, what="what a probe sees")
        count = load.stop()
        rig.copied(count)
        outage = [one.since_ms for one in screen.seen if one.state == "DEGRADED"]
        before_the_end = screen.states()
        mirror.stop()
    assert set(before_the_end) == {"STARTING", "RUNNING", "DEGRADED"}
    assert before_the_end.count("DEGRADED") == 1
    assert len(set(outage)) == 1
    told = [r for r in caplog.records if ALL_CLEAR in r.getMessage()]
    assert [r.levelno for r in told] == [logging.INFO], caplog.text
    assert [line for line in screen.lines if "RUNNING again after" in line], screen.lines
    assert not [line for line in screen.lines if "no longer mirrored" in line], screen.lines
    away = [one for one in screen.readiness if one.state == "DEGRADED"]
    assert all(one.reason for one in away)
    rig.same()


def test_source_that_is_frozen_is_no_longer_at_the_end_before_a_fetch_times_out(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The source is frozen. Lanes report nothing until their fetch times out, but the partition
    must stop being AT_END before that.
    """
    rig.create()
    rig.put(range(20))
    screen = Screen()
    mirror = Mirror(rig.config(), lanes=1, on_snapshot=screen.update)
    with caplog.at_level(logging.INFO), mirror:
        mirror.eventually(lambda parts: [row.state for row in parts] == ["AT_END"])
        rig.source.freeze(1)
        try:
            with Stopwatch() as stopwatch:
                eventually(lambda: mirror.snapshots[0].state == "DEGRADED", what="a state for it")
            (flow,) = mirror.snapshots
            assert rig.source.bootstrap in flow.reason
            assert flow.code in {"UNREACHABLE", "DISCONNECTED"}
            assert [row.state for row in flow.partitions] == ["RETRYING"]
            (ready,) = Readiness().update(0.0, [flow])
            assert (ready.state, rig.source.bootstrap in ready.reason) == ("DEGRADED", True)
        finally:
            rig.source.thaw(1)
        eventually(lambda: mirror.snapshots[0].state == "RUNNING", what="the end of the outage")
        eventually(lambda: screen.seen[-1].partitions[0].state == "AT_END", what="its end again")
        told = [r for r in caplog.records if ALL_CLEAR in r.getMessage()]
        assert [r.levelno for r in told] == [logging.INFO], caplog.text
        assert screen.states().count("DEGRADED") == 1, "it did not waver"
        mirror.stop()
    assert stopwatch.seconds < 20, "a fetch waits for 30 s"


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_stop_in_an_outage_of_the_source_is_in_order_and_promises_nothing(
    rig: Rig, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The mirror is stopped while the source is unreachable and a discovery waits for it. The
    mirror shuts down cleanly, because nothing is in flight. It must not report that everything is
    copied, because the lag is unknown.
    """
    looks: list[float] = []
    discover = FlowSetup.discover

    def counted(setup: FlowSetup) -> Discovery:
        looks.append(time.monotonic())
        try:
            return discover(setup)
        finally:
            looks.pop()

    monkeypatch.setattr(FlowSetup, "discover", counted)
    rig.create()
    rig.put(range(20))
    end, begin = (
        (rig.source.kill, rig.source.restart)
        if how == "killed"
        else (rig.source.freeze, rig.source.thaw)
    )
    mirror = Mirror(rig.config({"refresh.topics.interval.seconds": "1"}), lanes=2)
    with caplog.at_level(logging.INFO), mirror:
        mirror.eventually(lambda parts: [row.state for row in parts] == ["AT_END"])
        end(1)
        try:
            eventually(lambda: mirror.snapshots[0].state == "DEGRADED", what="a state for it")
            eventually(lambda: looks, what="a look for topics")
            with Stopwatch() as stopwatch:
                mirror.stop()
                (flow,) = mirror.wait()
        finally:
            begin(1)
    assert flow.state == "STOPPED"
    assert flow.reason.startswith("this process is shutting down; ")
    assert rig.source.bootstrap in flow.reason
    assert (flow.lag, [row.lag for row in flow.partitions]) == (None, [None])
    assert "did not drain in time" not in caplog.text
    assert stopwatch.seconds < 5
    assert rig.history().is_closed


def test_source_that_is_frozen_is_degraded_with_where_and_since_when(rig: Rig) -> None:
    rig.create()
    mirror = Mirror(rig.config(), lanes=1)
    with mirror, Load(rig.source, rig.topic, per_second=200) as load:
        mirror.eventually(lambda parts: all(p.records > 20 for p in parts))
        began_ms = time.time() * 1000
        rig.source.freeze(1)
        try:
            eventually(lambda: mirror.snapshots[0].state == "DEGRADED", what="a state for it")
            (flow,) = mirror.snapshots
            assert rig.alias in flow.reason
            assert rig.source.bootstrap in flow.reason
            assert began_ms - 1000 < flow.since_ms <= time.time() * 1000
            eventually(
                lambda: [row.code for row in mirror.snapshots[0].partitions] == ["UNREACHABLE"],
                what="a row that says why",
            )
            assert mirror.snapshots[0].state == "DEGRADED"
            assert mirror.snapshots[0].since_ms == flow.since_ms, "it is one outage"
        finally:
            rig.source.thaw(1)
        eventually(lambda: mirror.snapshots[0].state == "RUNNING", what="the end of the outage")
        count = load.stop()
        rig.copied(count)
        mirror.stop()
    rig.same()


def test_flow_without_topics_runs_before_the_next_refresh(rig: Rig) -> None:
    with rig.mirror() as mirror:
        eventually(lambda: mirror.snapshots and mirror.snapshots[0].state == "RUNNING")
        (flow,) = mirror.snapshots
        assert flow.reason == "no topic of the source is selected"
        mirror.stop()


NOTES_SILENCE = """
from twinlog.lane.sides.cluster_side import ClusterSide
found = ClusterSide.broken_connections
def broken_connections(self):
    for node, error in found(self):
        with open({path!r}, "a") as file:
            print(error.message, file=file)
        yield node, error
ClusterSide.broken_connections = broken_connections
"""
"""Prelude of a lane that writes to a file why each connection was closed."""


def test_source_that_is_silent_is_given_up_after_the_time_of_its_key(
    rig: Rig, tmp_path: Path
) -> None:
    """The source is silent. A lane closes the connection 10 s after consumer.request.timeout.ms:
    after 40 s by default, and after 11 s or slightly more in this test.
    """
    rig.create()
    rig.put([0])
    notes = tmp_path / "given-up"
    notes.touch()
    keys = {f"{rig.alias}.consumer.request.timeout.ms": "1000"}
    with rig.mirror(keys=keys, prelude=NOTES_SILENCE.format(path=str(notes))):
        rig.copied(1)
        rig.source.freeze(1)
        try:
            waited = eventually(lambda: SILENT.findall(notes.read_text()))
        finally:
            rig.source.thaw(1)
        rig.put([1])
        rig.copied(2)
    assert 11 <= int(waited[0]) < 40
    rig.same()
