"""Unknown values are shown as unknown, and actions that depend on them are not offered."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.support.browser import Browser, axe_script
from tests.support.eventually import eventually
from tests.support.rest import Rest
from tests.support.snapshots import PUBLISHED, flow, partition
from twinlog.cluster.groups.group_members import NOT_THERE, GroupSide, Member
from twinlog.control.check.group_readiness import CommittedOffset, FlowGroups, GroupReadiness
from twinlog.control.check.reported_status import ReportedFlow
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.verified import Verified
from twinlog.control.web.api import endpoints, leaders
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.state.verified import VerifyRun

pytestmark = pytest.mark.xdist_group("browser")

FLOW = "#/flow/A-%3EB"
ROWS = """[...document.querySelectorAll('.stacked tbody tr')].map(
  (row) => [...row.cells].map((cell) => cell.innerText))"""
BUTTONS = "[...document.querySelectorAll('td button.do')].map((one) => one.ariaLabel)"


def test_a_flow_of_which_nothing_is_known_is_not_fine(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    """No process of this host runs the flow, and its target is unreachable. The page must not
    report the flow as healthy.
    """
    monitor.update([flow(loss_records=0, loss_ms=0)])
    page = browser.open(f"http://{rest.address}/page/")
    page.shows("Check C->B (state unknown)", "#verdict")
    page.shows("(unknown for 1 flow)", "#verdict")
    page.shows("UNKNOWN", "main table")
    kinds = "[...document.querySelectorAll('.badge')].map((one) => one.className.trim())"
    assert page.run(kinds) == ["badge good", "badge"]
    page.run("location.hash = '#/flow/C-%3EB'")
    page.shows("UNKNOWN", "h1")
    cards = "[...document.querySelectorAll('.cards:not(.wide) > .card')].map((c) => c.innerText)"
    shown = dict(one.split("\n")[:2] for one in page.run(cards) if "\n" in one)
    names = ("lag, records", "speed", "copied by this process", "partitions", "lanes")
    assert {name: shown[name] for name in names} == dict.fromkeys(names, "?")
    assert shown["lost if the source died now"] == "unknown"
    assert shown["source retention"] == "unknown"
    assert "0 records/s" not in page.text()


def test_each_error_is_reported_once(rest: Rest, monitor: Monitor, browser: Browser) -> None:
    late = "60 s would be lost, 30 s are allowed"
    monitor.update([flow(state="DEGRADED", reason=f"A: {late}", rpo_excess=late)])
    page = browser.open(f"http://{rest.address}/page/")
    page.shows("B (127.0.0.1:2): connection refused", "main tbody tr:last-child")
    assert page.text("main tbody tr:last-child").count("connection refused") == 1, "of C->B"
    assert page.text().count(late) == 1
    page.run("location.hash = '#/flow/C-%3EB'")
    page.shows("UNKNOWN", "h1")
    assert page.text("main > div + div").count("connection refused") == 1


def test_unknown_intents_are_not_guessed(rest: Rest, monitor: Monitor, browser: Browser) -> None:
    """The flow's target is unreachable, so its intents are unknown. The page reports that, and does
    not offer commands that depend on them.
    """
    page = browser.open(f"http://{rest.address}/page/{FLOW}")
    page.shows("its target could not be queried")
    page.shows("Unknown, for the reason above.")
    assert page.text().count("its target could not be queried") == 1
    assert "runs as configured" not in page.text()
    page.run(f"location.hash = '{FLOW}/topics'")
    page.shows(
        "The commands in effect for A->B are unknown, so Pause and Resume are not available: its"
    )
    page.shows("1 topic,")
    assert page.run(BUTTONS) == []


def test_nothing_is_wanted_where_that_is_known(
    rest: Rest, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ReportedFlow(status=None, intents=FlowIntents())
    monkeypatch.setattr(leaders, "reports_of", lambda flows, *_: dict.fromkeys(flows, known))
    page = browser.open(f"http://{rest.address}/page/{FLOW}")
    page.shows("None: the flow runs as configured.")
    page.run(f"location.hash = '{FLOW}/topics'")
    eventually(lambda: page.run(BUTTONS)[:1] == ["Pause orders"])


@pytest.mark.parametrize(("is_known", "text"), [(True, "no deletion expected"), (False, "unknown")])
def test_how_long_the_source_keeps_waiting_records(
    rest: Rest, monitor: Monitor, browser: Browser, *, is_known: bool, text: str
) -> None:
    waits = partition("orders", 0, lag=7, is_left_known=is_known)
    monitor.update([flow(waits), flow(flow="C->B")])
    page = browser.open(f"http://{rest.address}/page/{FLOW}")
    page.shows(f"source retention\n{text}", ".cards")
    assert ("no waiting records will be deleted" in page.text()) is is_known
    page.run(f"location.hash = '{FLOW}/topics'")
    page.shows("1 topic,")
    cells = "[...document.querySelectorAll('tbody td')].map((one) => one.innerText)"
    assert page.run(cells)[7] == text


def test_known_retention_is_shown_although_others_are_unknown(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    near = partition("logs", 0, lag=7, left_ms=90_000)
    monitor.update(
        [flow(near, partition("orders", 0, lag=7, is_left_known=False)), flow(flow="C->B")]
    )
    page = browser.open(f"http://{rest.address}/page/{FLOW}")
    page.shows("90 s\nuntil records of logs are deleted; unknown for other partitions", ".cards")


def test_a_standby_names_the_process_that_copied(
    rest: Rest, monitor: Monitor, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor.update([flow(state="STANDBY", generation=None), flow(flow="C->B")])

    def reports(flows: list[str], *_: object) -> dict[str, ReportedFlow]:
        row = structs.replace(PUBLISHED, at_ms=int(time.time() * 1000), records=4321)
        return dict.fromkeys(flows, ReportedFlow(status=row, intents=FlowIntents()))

    monkeypatch.setattr(leaders, "reports_of", reports)
    page = browser.open(f"http://{rest.address}/page/{FLOW}")
    page.shows("copied by east-1 (process 77)\n4,321", ".cards")
    page.shows("source retention\nknown to the leader only", ".cards")
    assert "copied by this process" not in page.text()


def test_a_report_is_not_old_before_the_next_one_is_due(
    rest: Rest, monitor: Monitor, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `twinlog.status.interval.seconds=60`, a report may be a minute old."""
    monitor.update([flow(state="STANDBY", generation=None), flow(flow="C->B", state="STANDBY")])

    def reports(flows: list[str], *_: object) -> dict[str, ReportedFlow]:
        row = structs.replace(
            PUBLISHED,
            at_ms=int(time.time() * 1000) - 50_000,
            every_ms=60_000,
            unusual_partitions=0,
            loss_records=0,
            loss_ms=0,
            loss_unknown=0,
        )
        return dict.fromkeys(flows, ReportedFlow(status=row, intents=FlowIntents()))

    monkeypatch.setattr(leaders, "reports_of", reports)
    page = browser.open(f"http://{rest.address}/page/")
    page.shows("Yes: all 2 flows are copying", "#verdict")


def test_a_groups_lag_may_be_unknown(
    rest: Rest, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = CommittedOffset(
        topic="orders",
        partition=0,
        offset=7,
        end=None,
        to_topic="A.orders",
        to_offset=7,
        why_not="",
    )
    group = GroupReadiness(
        group="billing",
        is_share=False,
        source_side=GroupSide(state="Empty", members=()),
        target_side=NOT_THERE,
        committed=(committed,),
        why_not=(),
    )
    found = FlowGroups(flow="A->B", groups=[group])
    monkeypatch.setattr(endpoints, "ready_groups", lambda *_: iter([found]))
    page = browser.open(f"http://{rest.address}/page/{FLOW}/groups")
    page.shows("lag unknown")
    page.click("billing ready lag unknown")
    page.shows("unknown", "main details td:nth-child(4)")
    assert "-1" not in page.text()


def verify_run(hours_ago: int, **changes: Any) -> VerifyRun:
    """Return a run of `twinlog verify` on some topics, which took two hours and found
    differences.
    """
    now_ms = int(time.time() * 1000)
    usual: dict[str, Any] = {
        "answer": "different",
        "topics": "orders.*",
        "since": "2026-01-31T12:00Z",
        "ranges": {"missing": 1, "shifted": 2},
        "not_compared": 1,
        "configs": 1,
        "groups": 2,
    }
    return VerifyRun(
        flow="A->B",
        began_ms=now_ms - hours_ago * 3_600_000,
        ended_ms=now_ms - (hours_ago - 2) * 3_600_000,
        who="<b>ann</b>@ops-1",
        until=None,
        deep=True,
        partitions=3,
        equal_records=70,
        sha256="0" * 64,
        **usual | changes,
    )


def test_the_last_proof_is_the_newer_of_both(
    rest: Rest, monitor: Monitor, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows the newer of two verifications: a run of `twinlog verify`, or the leader's
    comparison during the copy.
    """
    runs: tuple[VerifyRun, ...] | None = None

    def reports(flows: list[str], *_: object) -> dict[str, ReportedFlow]:
        other = ReportedFlow(status=None, intents=FlowIntents(), verify_runs=())
        return dict.fromkeys(flows, other) | {"A->B": replace(other, verify_runs=runs)}

    def shown(compared_h: int | None = None) -> str:
        """Return the shown text. `compared_h`: the leader compared 123 records this many hours ago;
        None if it compared none.
        """
        at_ms = int((time.time() - 3600 * (compared_h or 0)) * 1000)
        mine = Verified(mode="tail", at_ms=at_ms, records=123, differences=0, is_complete=False)
        now = flow(loss_records=0, loss_ms=0, verified=None if compared_h is None else mine)
        monitor.update([now, flow(flow="C->B", loss_records=0, loss_ms=0)])
        return str(
            page.run("document.querySelector('td[data-name=\"Last verification\"]')?.innerText")
        )

    monkeypatch.setattr(leaders, "reports_of", reports)
    page = browser.open(f"http://{rest.address}/page/")
    eventually(lambda: shown() == "unknown")
    eventually(lambda: shown(9) == "123 records equal\n9 h ago\nverify: unknown")
    runs = ()
    eventually(lambda: shown() == "none")
    runs = (verify_run(5), verify_run(7, answer="identical", topics=None, since=None))
    eventually(lambda: shown(3) == "123 records equal\n3 h ago")
    page.shows("Yes: all 2 flows are copying", "#verdict")
    eventually(lambda: shown(9) == "different, partial\nverify, 5 h ago")
    page.shows("Check A->B (the last verify found differences)", "#verdict")
    runs = runs[1:]
    eventually(lambda: shown() == "identical\nverify, 7 h ago")
    page.shows("Yes: all 2 flows are copying", "#verdict")


def test_logs_of_unreachable_clusters_have_no_time(rest: Rest, browser: Browser) -> None:
    page = browser.open(f"http://{rest.address}/page/{FLOW}/topics")
    page.click("orders")
    page.shows("1 to 50; both logs unknown", "td.below")
    assert "as of" not in page.text("td.below caption")


@pytest.mark.parametrize("wide", [360, 1200])
def test_compare_shows_the_last_verification(
    rest: Rest, browser: Browser, monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    page = browser.open(f"http://{rest.address}/page/{FLOW}/compare", wide=wide)
    page.shows("The last results of twinlog verify are unknown.")
    reported = ReportedFlow(status=None, intents=FlowIntents(), verify_runs=(verify_run(2),))
    monkeypatch.setattr(leaders, "reports_of", lambda flows, *_: dict.fromkeys(flows, reported))
    page = browser.open(f"http://{rest.address}/page/{FLOW}/compare", wide=wide)
    page.shows("2 h ago")
    (cells, note) = page.run(ROWS)[:2]
    assert cells == [
        "different",
        "2 h ago\nby <b>ann</b>@ops-1, in 2 h",
        "topics orders.*, since 2026-01-31T12:00Z, every record decoded",
        "70 records\n3 partitions",
        "1 range missing, 2 ranges shifted, 1 config, 2 group offsets ahead, "
        "1 partition not compared",
    ]
    assert note == [f"SHA-256 of the flow in the report: {'0' * 64}"]
    assert page.run("document.documentElement.scrollWidth") <= wide
    page.run(f"{axe_script().read_text()}; true")
    assert page.run("axe.run(document).then((found) => found.violations.map(({ id }) => id))") == []


@pytest.mark.parametrize("wide", [360, 1200])
def test_both_sides_of_a_group_with_unknown_values(
    rest: Rest, browser: Browser, monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    busy = GroupSide(state="Stable", members=(Member("till", "/10.0.0.7"),) * 3, is_active=True)
    hidden = GroupSide(state=None, members=None, problem="B refuses DESCRIBE on group billing")
    mute = GroupSide(state="Stable", members=None, problem="A does not answer", is_active=True)
    sides = {"audit": (busy, NOT_THERE), "billing": (mute, hidden)}
    groups = [
        GroupReadiness(
            group=name,
            is_share=False,
            source_side=here,
            target_side=there,
            committed=(),
            why_not=("it is active",),
        )
        for name, (here, there) in sides.items()
    ]
    found = FlowGroups(flow="A->B", groups=groups)
    monkeypatch.setattr(endpoints, "ready_groups", lambda *_: iter([found]))
    page = browser.open(f"http://{rest.address}/page/{FLOW}/groups", wide=wide)
    page.shows("0 of 2 groups ready to move.")
    audit, _, billing, why = page.run(ROWS)
    assert audit[2:6] == ["Stable", "3", "no such group", "0"]
    assert billing[2:6] == ["Stable", "unknown", "unknown", "unknown"]
    assert why == ["it is active; A does not answer; B refuses DESCRIBE on group billing"]
    assert page.run("document.documentElement.scrollWidth") <= wide
    page.run(f"{axe_script().read_text()}; true")
    assert page.run("axe.run(document).then((found) => found.violations.map(({ id }) => id))") == []
