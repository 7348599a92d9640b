"""REST responses that are made from rows on the target: rows of leaders on other hosts, of no
leader, and of this process before it lost the lead.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event

import pytest
from msgspec import structs

from tests.support.snapshots import PUBLISHED, flow
from tools.pages import answers
from twinlog.cli.terminal import monitoring
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.codes import FlowState
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load
from twinlog.control.check.reported_status import LastRun, ReportedFlow, _by_flow, _report
from twinlog.control.watch.events import last_events
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.web.api import leaders, shown
from twinlog.control.web.api.leaders import LeaderReport, Leaders
from twinlog.errors import Unreachable
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind
from twinlog.mirror.state.published import PublishedStatus
from twinlog.mirror.state.state_row import row_key

AWAY = "its target could not be queried: no broker"
PAUSE = Intent(
    bytes_per_second=None,
    reason="",
    flow="A->B",
    kind=IntentKind.PAUSE,
    is_set=True,
    who="an operator",
    at_ms=1,
)


@pytest.fixture
def config(tmp_path: Path) -> MirrorConfig:
    file = tmp_path / "mm2.properties"
    servers = "".join(f"{one}.bootstrap.servers = 127.0.0.1:1\n" for one in "ABC")
    flows = "A->B.enabled = true\nA->C.enabled = true\n"
    file.write_text(f"clusters = A, B, C\n{servers}{flows}topics = orders.*\n")
    return load(file, environment={})


def shown_flow(
    config: MirrorConfig, own: FlowSnapshot | None, reported: ReportedFlow | None, problem: str = ""
) -> answers.Flow:
    heard = LeaderReport(reported=reported, problem=problem)
    return answers.Flow.model_validate(shown.flow(config.flows[0], own, 1.0, heard))


def row(age_s: float = 1.0, **changes: object) -> PublishedStatus:
    at_ms = int((time.time() - age_s) * 1000)
    return structs.replace(PUBLISHED, at_ms=at_ms, **changes)


def of(status: PublishedStatus | None, run: LastRun | None = None) -> ReportedFlow:
    return ReportedFlow(status=status, intents=FlowIntents(), run=run)


def test_its_own_last_row_hides_no_outage(config: MirrorConfig) -> None:
    own = flow(state="DEGRADED", reason="B: no broker", generation=None, code="UNREACHABLE")
    last = of(row(host=socket.gethostname(), pid=os.getpid()))
    for problem in ("", AWAY):
        found = shown_flow(config, own, last, problem)
        assert (found.state, found.reason, found.reported_by) == (
            "DEGRADED",
            "B: no broker",
            "here",
        )
    # processes of two containers may have the same host name and process ID, so a standby shows its
    # leader's row
    assert shown_flow(config, flow(state="STANDBY", generation=None), last).state == "RUNNING"


def test_a_leader_without_a_recent_report_is_not_known_to_run(config: MirrorConfig) -> None:
    reported = of(row(age_s=60))
    found = shown_flow(config, None, reported, AWAY)
    assert (found.state, found.reason, found.problem) == ("UNKNOWN", AWAY, AWAY)
    assert (found.records, found.bytes, found.lanes, found.partitions) == (None,) * 4
    assert (found.loss.records, found.loss.unknown_partitions) == (None, None)
    assert shown_flow(config, None, of(row(age_s=20)), AWAY).state == "RUNNING"


def test_a_flow_without_a_leader_shows_how_it_ended(config: MirrorConfig) -> None:
    gone = of(None, LastRun(FlowState.NOT_RUNNING, "killed", "PROCESS_GONE"))
    found = shown_flow(config, None, gone)
    assert (found.state, found.reason, found.code) == ("NOT_RUNNING", "killed", "PROCESS_GONE")
    found = shown_flow(config, None, gone, AWAY)
    assert (found.state, found.reason) == ("UNKNOWN", AWAY), "somebody may have begun since"


def test_intents_are_unknown_before_the_target_has_responded(config: MirrorConfig) -> None:
    assert shown_flow(config, flow(), None, AWAY).wanted is None
    assert shown_flow(config, flow(), of(None)).wanted == []


def test_a_code_is_the_same_everywhere(config: MirrorConfig) -> None:
    reported = of(row(state="DEGRADED", code="UNREACHABLE"))
    assert shown_flow(config, None, reported).code == "UNREACHABLE"


def test_rows_that_cannot_be_read_are_a_trouble_of_their_own_flow_alone() -> None:
    newer = json.dumps({"v": 999}).encode()
    other = [*map(str.encode, ('["flow","C->B","intent","pause",""]',))]
    state = [
        PAUSE.encode(),
        (other[0], newer),
        (b'["flow","C->B","generation",7]', newer),
    ]
    status = [row().encode(), (b'["flow","C->B","status"]', newer)]
    now_ms = int(time.time() * 1000)
    found = _report("A->B", state, status, now_ms, reports=True)
    assert (found.status is not None, found.problem) == (True, "")
    assert found.intents is not None
    assert found.intents.pause == PAUSE
    broken = _report("C->B", state, status, now_ms, reports=True)
    assert (broken.status, broken.intents, broken.run) == (None, None, None)
    assert broken.problem.count("newer release") >= 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'["flow","A->B","generation",4,"c"]', b'{"v":1}'),
        (b'["flow","A->B","generation"]', b'{"v":1}'),
        (b'["flow","A->B"]', b'{"v":1}'),
        (b"5", b'{"v":1}'),
        (b'["flow","A->B","intent","pause",""]', b'{"v":1}'),
    ],
)
def test_no_row_of_the_state_topic_hides_the_leaders_report(key: bytes, value: bytes) -> None:
    now_ms = int(time.time() * 1000)
    state = _by_flow([PAUSE.encode(), (key, value)])("A->B")
    found = _report("A->B", state, [row().encode()], now_ms, reports=True)
    assert found.status is not None
    assert "cannot be read" in found.problem


def test_a_number_that_no_process_has_is_one_that_is_gone() -> None:
    late = row(25, host=socket.gethostname(), pid=-7)
    found = _report("A->B", [], [late.encode()], int(time.time() * 1000), reports=True)
    assert found.status is None


def test_of_a_state_topic_that_may_not_be_read_nothing_is_claimed() -> None:
    found = _report("A->B", None, [row().encode()], int(time.time() * 1000), reports=True)
    assert found.status is not None
    assert (found.intents, found.run) == (None, None)
    assert "grant READ on topic" in found.problem


def test_an_unreachable_target_does_not_make_others_outdated(
    config: MirrorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ends = Event()

    def reports(
        flows: Mapping[str, bool], target: ClusterSettings, *_: object
    ) -> dict[str, ReportedFlow]:
        asked.append(target.alias)
        if target.alias == "B":
            ends.wait(20)
            raise Unreachable("no broker")
        return dict.fromkeys(flows, of(None))

    monkeypatch.setattr(leaders, "reports_of", reports)
    monkeypatch.setattr(leaders, "WAITED_S", 0.01)
    monkeypatch.setattr(leaders, "FRESH_S", 0.05)

    async def run() -> None:
        some = Leaders()
        for _ in range(200):
            heard = await some.read(config.flows)
            if asked.count("C") > 3:
                break
            await asyncio.sleep(0.05)
        assert asked.count("B") == 1, "it is being asked all the time"
        assert heard["A->C"].problem == ""
        ends.set()
        while "A->B" not in heard:
            heard = await some.read(config.flows)
            await asyncio.sleep(0.01)
        assert heard["A->B"].problem == f"{AWAY} [UNREACHABLE]"

    asyncio.run(run())


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_flow_that_cannot_enter_its_target_hides_no_other_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_reversed: bool
) -> None:
    file = tmp_path / "mm2.properties"
    servers = "".join(f"{one}.bootstrap.servers = 127.0.0.1:1\n" for one in "ABC")
    flows = "A->B.enabled = true\nC->B.enabled = true\n"
    other = "A->B.target.cluster.security.protocol = SSL\n"
    file.write_text(f"clusters = A, B, C\n{servers}{flows}{other}topics = orders.*\n")

    def reports(flows: Mapping[str, bool], *_: object) -> dict[str, ReportedFlow]:
        if "A->B" in flows:
            raise Unreachable("no broker")
        return dict.fromkeys(flows, of(None))

    monkeypatch.setattr(leaders, "reports_of", reports)
    found = sorted(load(file, environment={}).flows, key=str, reverse=is_reversed)
    heard = asyncio.run(Leaders().read(found))
    assert heard["A->B"].problem == f"{AWAY} [UNREACHABLE]"
    assert (heard["C->B"].problem, heard["C->B"].reported) == ("", of(None))


def test_that_a_reason_counts_on_is_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mm2.properties"
    with monitoring.watched(file, None, Event(), lambda _: None) as watch:
        for second in range(1, 50):
            reason = f"RPO: records of the last {second}.5 s, {second * 1000:,} of them"
            watch.update([flow(state="DEGRADED", reason=reason)])
        watch.update([flow(state="DEGRADED", reason="B: no broker")])
        watch.update([flow(state="DEGRADED", reason="orders-3: no leader")])
        watch.update([flow(state="DEGRADED", reason="orders-7: no leader")])
        monkeypatch.setattr(monitoring, "COUNTS_ON_S", 0.0)
        watch.update([flow(state="DEGRADED", reason="B: no broker of 3")])
        watch.update([flow(state="DEGRADED", reason="B: no broker of 4")])
        watch.update([flow(state="DEGRADED", reason="B: no broker of 4")])
    (process,) = last_events(file)
    texts = [one.message for one in process.events if one.flow]
    assert texts == [
        "A->B: DEGRADED: RPO: records of the last 1.5 s, 1,000 of them",
        "A->B: DEGRADED: B: no broker",
        "A->B: DEGRADED: orders-3: no leader",
        "A->B: DEGRADED: orders-7: no leader",
        "A->B: DEGRADED: B: no broker of 3",
        "A->B: DEGRADED: B: no broker of 4",
    ]


def test_rows_are_those_of_the_flow_that_their_key_names() -> None:
    a, b = (b'["flow","A->B","pause"]', b"1"), (b'["flow","B->A","status"]', None)
    odd = (row_key("flow", 'A "1"\u00e9->B', "pause"), b"2")
    of_none = (b'["flow",["A->B"]]', b"")
    unread: list[tuple[bytes | None, bytes | None]] = [
        (None, b""),
        (b"", b""),
        (b"5", b""),
        (b'["flow"]', b""),
        (b'["flow","A->B",', b""),
        (b'["flow",' + b"[" * 100_000, b""),
        (b'["flow","\xff->B","pause"]', b""),
    ]
    rows_of = _by_flow([a, of_none, *unread, b, odd])
    found = {flow: rows_of(flow) for flow in ("A->B", "B->A", 'A "1"\u00e9->B', "C->B")}
    # unreadable rows without a flow are reported for every flow
    assert found == {
        "A->B": [a, *unread],
        "B->A": [b, *unread],
        'A "1"\u00e9->B': [odd, *unread],
        "C->B": unread,
    }
