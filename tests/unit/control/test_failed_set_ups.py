"""A process that cannot set up a flow writes a row about it for other hosts. The tests check when
such a row counts.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.snapshots import PUBLISHED, flow, partition
from tools.pages.answers import Flow
from twinlog.codes import FlowState
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load
from twinlog.control.check.reported_status import ReportedFlow, _report
from twinlog.control.duties import publication
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.process.supervisor import FailedSetUps
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.web.api import shown
from twinlog.control.web.api.leaders import LeaderReport
from twinlog.errors import TwinlogError, Unauthorized, Unreachable
from twinlog.mirror.state.generations import Claim, closing_row
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind
from twinlog.mirror.state.published import PublishedStatus, failed_set_up
from twinlog.mirror.state.state_row import Rows

NOW_MS = PUBLISHED.at_ms
FAILED = structs.replace(
    PUBLISHED, host="west-1", generation=None, state="FAILED", code="WRONG_CLUSTER", reason="why"
)
LED = structs.replace(PUBLISHED, at_ms=NOW_MS - 1000)
CLAIM = Claim(
    flow="A->B",
    generation=4,
    claimant="c",
    producer_id=1,
    meaning="m",
    host=PUBLISHED.host,
    pid=PUBLISHED.pid,
    started_ms=NOW_MS - 100_000,
    source_cluster_id="s",
    target_cluster_id="t",
)
CLOSED = closing_row("A->B", CLAIM.generation)
PROMOTED = Intent(
    bytes_per_second=None,
    reason="",
    flow="A->B",
    kind=IntentKind.PROMOTE,
    is_set=True,
    who="ops",
    at_ms=1,
)


@pytest.fixture
def config(tmp_path: Path) -> MirrorConfig:
    file = tmp_path / "mm2.properties"
    servers = "".join(f"{one}.bootstrap.servers = 127.0.0.1:1\n" for one in "AB")
    flows = "A->B.enabled = true\ntwinlog.status.interval.seconds = 1\n"
    file.write_text(f"clusters = A, B\n{servers}{flows}topics = orders.*\n")
    return load(file, environment={})


# -- readers of the rows


def report(*status: PublishedStatus, state: Rows = (), now_ms: int = NOW_MS) -> ReportedFlow:
    return _report("A->B", state, [one.encode() for one in status], now_ms, reports=True)


@pytest.mark.parametrize("state", ["FAILED", "DEGRADED"])
def test_a_first_start_that_fails_is_shown(state: str) -> None:
    failed = structs.replace(FAILED, state=state)
    found = report(failed)
    assert (found.status, found.run) == (failed, None)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ((LED,), (CLAIM.encode(),)),
        ((structs.replace(LED, at_ms=NOW_MS - 60_000),), (CLAIM.encode(), CLOSED)),
        ((structs.replace(LED, state="STOPPED"),), (CLAIM.encode(), CLOSED)),
        ((), (CLAIM.encode(),)),
    ],
    ids=["it leads", "it led long ago", "it ended before", "it was killed, and said nothing"],
)
def test_it_hides_no_leader(
    status: tuple[PublishedStatus, ...], state: tuple[tuple[bytes, bytes], ...]
) -> None:
    found = report(*status, FAILED, state=state)
    assert found.status == (LED if LED in status else FAILED)


@pytest.mark.parametrize(
    ("status", "state", "now_ms"),
    [
        ((FAILED,), (), NOW_MS + FAILED.lives_ms + 1),
        ((FAILED, structs.replace(LED, state="STOPPED")), (CLAIM.encode(), CLOSED), NOW_MS),
        ((FAILED,), (structs.replace(CLAIM, started_ms=NOW_MS + 1).encode(), CLOSED), NOW_MS + 2),
        ((FAILED,), (structs.replace(CLAIM, started_ms=NOW_MS - 9).encode(),), NOW_MS),
        ((FAILED,), (PROMOTED.encode(),), NOW_MS),
        ((structs.replace(FAILED, state="STOPPED"),), (), NOW_MS),
        ((structs.replace(FAILED, host=socket.gethostname(), pid=2**22 + 1),), (), NOW_MS + 20_000),
    ],
    ids=[
        "it is old",
        "the flow ended in order since",
        "another process led it since, and ended",
        "another process leads it since a moment ago, and has not said how it is",
        "it was promoted",
        "it fails no more",
        "its process is gone",
    ],
)
def test_it_is_not_shown(
    status: tuple[PublishedStatus, ...], state: tuple[tuple[bytes, bytes], ...], now_ms: int
) -> None:
    assert report(*status, state=state, now_ms=now_ms).status is None


def test_each_of_its_tries_may_have_a_generation() -> None:
    own = structs.replace(CLAIM, host=FAILED.host, pid=FAILED.pid, started_ms=NOW_MS + 1)
    assert report(FAILED, state=(own.encode(),)).status == FAILED


def test_it_is_not_shown_if_the_leader_is_unknown() -> None:
    found = _report("A->B", None, [FAILED.encode()], NOW_MS, reports=True)
    assert found.status is None


def test_an_unreadable_row_is_a_problem_only_without_a_leader() -> None:
    """A process of a later release has failed to set up the flow, so its row is unreadable. While a
    leader copies, this is no problem of the flow. Without a leader, the flow's problem is that
    Twinlog must be upgraded.
    """
    key, value = FAILED.encode()
    rows = [LED.encode(), (key, value.replace(b'"v":1', b'"v":2'))]
    led = _report("A->B", [CLAIM.encode()], rows, NOW_MS, reports=True)
    assert (led.status, led.problem) == (LED, "")
    alone = _report("A->B", [], rows[1:], NOW_MS, reports=True)
    assert alone.status is None
    assert "upgrade Twinlog" in alone.problem


def test_rest_shows_it_with_process_and_age_unless_it_has_newer_data(config: MirrorConfig) -> None:
    row = structs.replace(FAILED, at_ms=int(time.time() * 1000) - 3000)
    reported = ReportedFlow(status=row, intents=FlowIntents())

    def seen(own: FlowSnapshot | None) -> tuple[object, ...]:
        heard = LeaderReport(reported=reported)
        found = Flow.model_validate(shown.flow(config.flows[0], own, 1.0, heard))
        return found.state, found.code, found.reason, found.reported_by

    west = ("FAILED", "WRONG_CLUSTER", "why", "west-1 (process 77)")
    assert seen(None) == west
    assert seen(flow(state="STANDBY", generation=None)) == west
    own = flow(state="DEGRADED", generation=None, code="UNREACHABLE", reason="B: no broker")
    assert seen(own) == ("DEGRADED", "UNREACHABLE", "B: no broker", "here")
    heard = LeaderReport(reported=reported)
    found = Flow.model_validate(shown.flow(config.flows[0], None, 1.0, heard))
    assert (found.generation, found.retention) == (None, None)
    assert found.age_ms is not None
    assert found.age_ms >= 3000


# -- writers of the rows


class Target:
    """A target that records the rows that are written."""

    def __init__(self) -> None:
        self.has_state = True
        self.fails: TwinlogError | None = None
        self.asked = 0
        self.made: list[str] = []
        self.rows: list[tuple[bytes, bytes]] = []
        self.last: threading.Event | None = None
        """An event that the row about an end waits for; None if it does not wait."""

    def asked_for_state(self, *_: object, **__: object) -> bool:
        self.asked += 1
        return self.has_state

    def made_topic(self, _client: object, name: str, *_: object) -> None:
        self.made.append(name)

    def append(self, _client: object, _home: object, rows: Sequence[Any], _at_ms: int) -> None:
        if self.fails is not None:
            self.asked += 1
            raise self.fails
        if self.last is not None and b'"STOPPED"' in rows[0][1]:
            self.last.wait(PATIENCE_S)
        self.rows += rows

    def newest(self) -> PublishedStatus | None:
        return failed_set_up("A->B", self.rows)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    made = Target()
    monkeypatch.setattr(publication, "has_state", made.asked_for_state)
    monkeypatch.setattr(publication, "ensure_mm2_topic", made.made_topic)
    monkeypatch.setattr(publication, "append_rows", made.append)
    monkeypatch.setattr("twinlog.control.duties.rounds.FIRST_PAUSE_S", 0.01)
    return made


@pytest.fixture
def setup(config: MirrorConfig) -> FlowSetup:
    return flow_setup(config.flows[0])


@pytest.fixture
def failed() -> Iterator[FailedSetUps]:
    made = FailedSetUps(publishes=True)
    yield made
    made.end()
    made.join(PATIENCE_S)


def own(**changes: Any) -> FlowSnapshot:
    usual = {"state": "FAILED", "generation": None, "code": "WRONG_CLUSTER", "reason": "why"}
    return flow(partition(lag=5), **usual | changes)


def is_under_way(failed: FailedSetUps) -> bool:
    return any(duties.is_alive for duties in failed._ending.values())


def test_it_says_why_as_long_as_it_fails_and_that_it_fails_no_more(
    target: Target, setup: FlowSetup, failed: FailedSetUps
) -> None:
    failed.update([(setup, own())])
    eventually(target.newest)
    found = target.newest()
    assert found is not None
    assert (found.state, found.code, found.reason) == ("FAILED", "WRONG_CLUSTER", "why")
    assert (found.host, found.pid, found.kept) == (socket.gethostname(), os.getpid(), None)
    failed.update([(setup, own(state="DEGRADED", reason="B: no broker"))])
    eventually(lambda: "B: no broker" in str(target.newest()), what="the next of its rows")
    failed.update([(setup, own(state="STARTING"))])
    eventually(lambda: target.newest() is None and not is_under_way(failed))
    assert target.made == ["mm2-twinlog-status.internal"]


def test_one_that_fails_again_before_its_end_is_written_is_shown(
    target: Target, setup: FlowSetup, failed: FailedSetUps
) -> None:
    setup.config = replace(setup.config, status_interval_seconds=600)
    target.last = threading.Event()
    failed.update([(setup, own())])
    eventually(target.newest)
    failed.update([(setup, own(state="STARTING"))])
    failed.update([(setup, own(reason="again"))])
    is_published = bool(failed._published)
    target.last.set()
    assert not is_published, "what is said last is not to come behind it"

    def is_shown() -> bool:
        failed.update([(setup, own(reason="again"))])
        found = target.newest()
        return found is not None and found.reason == "again"

    eventually(is_shown)
    eventually(lambda: len(target.rows) == 3)
    assert is_shown()


def test_the_end_of_the_process_is_reported(
    target: Target, setup: FlowSetup, failed: FailedSetUps
) -> None:
    failed.update([(setup, own())])
    eventually(target.newest)
    failed.end()
    failed.join(PATIENCE_S)
    assert target.newest() is None
    failed.update([(setup, own())])
    assert not failed._published, "it is over"


@pytest.mark.parametrize(
    "seen",
    [
        own(generation=3, state="DEGRADED"),
        *(own(state=one) for one in (FlowState.STANDBY, FlowState.FENCED, FlowState.STARTING)),
    ],
    ids=lambda one: one.state,
)
def test_a_led_or_waiting_flow_is_no_failure(
    target: Target, setup: FlowSetup, failed: FailedSetUps, seen: FlowSnapshot
) -> None:
    failed.update([(setup, seen)])
    assert not failed._published
    assert target.rows == []


def test_nothing_is_written_where_status_is_off(
    target: Target, setup: FlowSetup, failed: FailedSetUps
) -> None:
    setup.config = replace(setup.config, status_interval_seconds=0)
    failed.update([(setup, own())])
    assert not failed._published
    assert target.rows == []


def test_nothing_is_created_where_no_set_up_was_admitted(
    target: Target, setup: FlowSetup, failed: FailedSetUps
) -> None:
    target.has_state = False
    failed.update([(setup, own())])
    eventually(lambda: target.asked > 1)
    assert (target.made, target.rows) == ([], [])


def test_an_unreachable_target_is_retried_and_not_reported(
    target: Target, setup: FlowSetup, failed: FailedSetUps, caplog: pytest.LogCaptureFixture
) -> None:
    target.fails = Unreachable("no broker")
    failed.update([(setup, own())])
    eventually(lambda: target.asked > 3)
    target.fails = None
    eventually(target.newest)
    assert caplog.text == ""


def test_a_refusal_is_reported_once(
    target: Target, setup: FlowSetup, failed: FailedSetUps, caplog: pytest.LogCaptureFixture
) -> None:
    target.fails = Unauthorized("grant WRITE on the topic")
    failed.update([(setup, own())])
    eventually(lambda: "shown on this host only: grant WRITE" in caplog.text)
    failed.update([(setup, own(state="STANDBY"))])
    eventually(lambda: not is_under_way(failed))
    failed.update([(setup, own())])
    eventually(lambda: target.asked > 3)
    assert caplog.text.count("grant WRITE") == 1
