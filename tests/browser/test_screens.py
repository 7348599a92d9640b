"""The page in a real Chromium, served as by `twinlog mirror`. Tests set the numbers that it
shows.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.support.browser import Browser, axe_script
from tests.support.eventually import eventually
from tests.support.rest import Rest, rest_of
from tests.support.snapshots import PUBLISHED, flow, partition
from twinlog.addresses import Address
from twinlog.codes import PartitionState
from twinlog.config.load import load
from twinlog.control.check.both_logs import LogFacts
from twinlog.control.check.reported_status import ReportedFlow
from twinlog.control.watch.latency import Quantiles
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.control.web.api import endpoints, leaders
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind, flow_intents
from twinlog.mirror.state.published import Proof
from twinlog.model import TopicPartition

pytestmark = pytest.mark.xdist_group("browser")

AXE = """axe.run(document).then((found) => found.violations.map((one) =>
  `${one.id}: ${one.nodes.map((node) => node.html).join(" ").slice(0, 300)}`))"""
"""Script that returns the violations of all rules of axe-core, which include WCAG and good
practice.
"""
SCROLL = """new Promise((done) => {
  const frames = [];
  let before = performance.now();
  const step = (now) => {
    frames.push(Math.round(now - before));
    before = now;
    scrollBy(0, 60);
    if (frames.length < 120) requestAnimationFrame(step);
    else done(frames.sort((a, b) => b - a));
  };
  requestAnimationFrame(step);
})"""
"""Script that scrolls, and returns the milliseconds of 120 frames, longest first."""
CHECKS = Path(__file__).with_name("checks.js").read_text().strip()
HOSTILE = "<img src=x onerror=alert(1)>"
SCREENS = {
    "Overview": "#/",
    "Flow": "#/flow/A-%3EB",
    "Topics": "#/flow/A-%3EB/topics",
    "Groups": "#/flow/A-%3EB/groups",
    "Cut-over": "#/flow/A-%3EB/cutover",
    "Compare": "#/flow/A-%3EB/compare",
    "Events": "#/events",
}


@pytest.mark.witness("the page says in one sentence whether everything is in order")
def test_one_sentence_says_whether_it_is_all_right(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    page = browser.open(f"http://{rest.address}/page/")
    page.shows(
        "Yes: all 2 flows are copying; nothing would be lost if the sources died now.", "#verdict"
    )
    page.shows("RUNNING")
    assert page.run("document.querySelectorAll('svg.map .edge').length") == 2
    broken = partition("logs", 0, lag=7, state="FAILED", code="RECORD_TOO_LARGE", message=HOSTILE)
    monitor.update(
        [
            flow(broken, state="PARTLY_FAILED", reason=HOSTILE, loss_records=3, loss_ms=2500),
            flow(flow="C->B", loss_records=0, loss_ms=0),
        ]
    )
    page.shows("No: A->B is PARTLY_FAILED; 3 records would be lost", "#verdict")
    page.shows(HOSTILE)  # shown as text, not as an element
    assert page.run("document.querySelectorAll('main img').length") == 0


@pytest.mark.witness("every screen of the page has its own address")
def test_every_screen_opens_by_its_address(rest: Rest, browser: Browser) -> None:
    before = len(browser.errors)
    titles = {"Overview": "Is replication healthy?", "Events": "Events"}
    for name, address in SCREENS.items():
        page = browser.open(f"http://{rest.address}/page/{address}")
        page.shows(titles.get(name, "A->B"), "h1")
        page.shows(name, "nav a[aria-current]")
    # a browser logs an error for the code with which the server reports unreachable clusters
    errors = [one for one in browser.errors[before:] if "/api/v1/" not in one]
    assert errors == []


def many(count: int) -> list[PartitionSnapshot]:
    return [partition(f"topic-{number:03}", lag=number) for number in range(count)]


def test_topics_are_filtered_sorted_and_paged(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    monitor.update([flow(*many(300)), flow(flow="C->B")])
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Topics']}")
    page.shows("300 topics, 1 to 200")
    page.click("Next")
    page.shows("300 topics, 201 to 300")
    page.click("Topic")
    page.shows("300 topics, 1 to 200")
    page.press("/")
    assert page.run("document.activeElement.type") == "search"
    page.run(
        "document.activeElement.value = 'nothing',"
        "document.activeElement.dispatchEvent(new Event('input'))"
    )
    page.shows("0 topics")


@pytest.mark.parametrize(
    ("wide", "dark"),
    [
        (360, True),
        (1200, False),
        pytest.param(360, False, marks=pytest.mark.long),
        pytest.param(1200, True, marks=pytest.mark.long),
    ],
)
def test_a_topic_unfolds_to_its_partitions_with_both_logs_and_stays_so(
    rest: Rest,
    monitor: Monitor,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
    *,
    wide: int,
    dark: bool,
) -> None:
    asked = itertools.count(1)

    def both_logs(
        _: object, source: list[TopicPartition], target: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, LogFacts], ...]:
        here = LogFacts(topic="orders", start=12_000_003, last_stable=98_001_234, end=98_001_240)
        here = replace(here, leader=2, replicas=(1, 2, 3), in_sync=(2, 3))
        away = LogFacts(topic="A.orders", problem=f"away {next(asked)}: {HOSTILE}")
        return dict.fromkeys(source, here), dict.fromkeys(target, away)

    monkeypatch.setattr(endpoints, "both_logs", both_logs)
    parts = [partition("orders", n, lag=9, upstream=98_001_225, lane=1) for n in range(60)]
    parts[7] = replace(parts[7], state=PartitionState.FAILED, code="RECORD_TOO_LARGE")
    monitor.update([flow(*parts), flow(flow="C->B")])
    address = f"http://{rest.address}/page/{SCREENS['Topics']}"
    page = browser.open(address, wide=wide, dark=dark)
    page.shows("FAILED", "main tbody")
    page.run("document.querySelector('button[aria-expanded=false]').focus()")
    page.run("document.activeElement.click()")
    page.shows("60 partitions of orders, 1 to 50; the source's logs as of", "td.below")
    assert page.run("document.activeElement.ariaExpanded") == "true"
    row = "[...document.querySelectorAll('td.below tbody tr:first-child td')]"
    cells = page.run(f"{row}.map((one) => one.innerText.trim())")
    assert cells[2:7] == ["12,000,003", "98,001,234", "98,001,240", "98,001,225", "?"]
    assert cells[10:] == ["source: 2; in sync 2, 3 of 1, 2, 3\ntarget: ?", "100\nlane 1"]
    page.shows(f"target: away 1: {HOSTILE}", "td.below")
    page.click("RECORD_TOO_LARGE", "td.below summary")
    page.shows("max.message.bytes", "td.below")
    # the element stays unfolded, and its content is requested again
    page.shows("target: away 2", "td.below")
    assert page.run("document.querySelector('td.below details').open")
    inside = "document.querySelector('td.below .scroll').getBoundingClientRect()"
    assert page.run(f"{inside}.right") <= wide
    scrolls = "((one) => one.scrollWidth - one.clientWidth)"
    assert page.run(f"{scrolls}(document.querySelector('td.below .scroll'))") == 0
    assert page.run("document.documentElement.scrollWidth") <= wide
    assert page.run(f"{CHECKS}.unreadable()") == []
    page.run(f"{axe_script().read_text()}; true")
    assert page.run(AXE) == []
    page.run("document.querySelector('[aria-label=\"Next partitions of orders\"]').click()")
    page.shows("60 partitions of orders, 51 to 60; the source's logs as of", "td.below")
    page.click("orders")
    eventually(lambda: not page.run("document.querySelector('td.below')"))


def test_the_states_are_those_of_the_servers_catalogue(rest: Rest, browser: Browser) -> None:
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Topics']}")
    page.shows("1 topic,")
    offered = page.run("[...document.querySelectorAll('select option')].map((one) => one.value)")
    assert offered == ["", *PartitionState]


def test_an_address_keeps_filters_and_order(rest: Rest, monitor: Monitor, browser: Browser) -> None:
    monitor.update([flow(*many(300)), flow(flow="C->B")])
    address = f"{SCREENS['Topics']}?sort=topic&state=AT_END&topic=topic&offset=200"
    page = browser.open(f"http://{rest.address}/page/{address}")
    page.shows("300 topics, 201 to 300")
    assert page.run("document.querySelector('select').value") == "AT_END"
    assert page.run("document.querySelector('input').value") == "topic"
    page.click("Previous")
    page.shows("300 topics, 1 to 200")
    page.click("Copied")
    hash_is = "decodeURIComponent(location.hash)"
    wanted = "#/flow/A->B/topics?topic=topic&state=AT_END&sort=-records"
    eventually(lambda: page.run(hash_is) == wanted, what="the address of the second table")


def test_an_address_that_sorts_by_a_column_of_partitions_opens_as_usual(
    rest: Rest, browser: Browser
) -> None:
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Topics']}?sort=-sinceMs&topic=or")
    page.shows("1 topic,")
    page.shows("Lag ▼", "thead")


def test_new_numbers_take_nothing_out_of_a_readers_hands(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    """New numbers arrive while a reader uses the page. Unfolded elements stay unfolded, and the
    focus does not move.
    """
    broken = partition("logs", 0, lag=7, state="FAILED", code="RECORD_TOO_LARGE", message="no")
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Flow']}")
    for lag in (7, 8):
        failed = replace(broken, lag=lag)
        monitor.update(
            [flow(failed, state="PARTLY_FAILED", code="RECORD_TOO_LARGE"), flow(flow="C->B")]
        )
        page.shows(f"{lag}\n", ".cards")
        if lag == 7:
            page.click("RECORD_TOO_LARGE", "main summary")
            page.run("document.querySelector('main summary').focus()")
    eventually(lambda: page.run("document.querySelector('main details').open"))
    assert page.run("document.activeElement.innerText") == "RECORD_TOO_LARGE"
    page.go(f"http://{rest.address}/page/#/")
    page.shows("Is replication healthy?", "h1")
    link = "document.querySelector('main table a')"
    page.run(f"{link}.focus(), {link}.isOld = true")
    monitor.update([flow(replace(broken, lag=9)), flow(flow="C->B")])
    eventually(lambda: not page.run(f"{link}.isOld"), what="a table with other numbers")
    assert page.run(f"document.activeElement === {link}")


def test_how_long_batches_and_records_have_is_on_the_flows_screen(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    near = partition("logs", 0, lag=7, left_ms=90_000, needs_ms=200_000, is_near_deletion=True)
    late = Quantiles(p50_ms=7, p99_ms=2047)
    monitor.update([flow(near, latency=late), flow(flow="C->B")])
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Flow']}")
    page.shows("7 ms\np99 2.0 s", ".cards")
    page.shows("90 s\nwill lose records of 1 topic: logs", ".cards")
    page.click("will lose records of 1 topic: logs")
    page.shows("1 topic", "table")


def test_whether_a_flow_has_caught_up_is_reported_in_words(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Flow']}")
    page.shows("\n0\ncaught up\n", ".cards")
    monitor.update([flow(partition("logs", 0, lag=7)), flow(flow="C->B")])
    page.shows("\n7\nnot caught up at this rate\n", ".cards")
    monitor.update([flow(partition(), loss_records=0, loss_ms=0), flow(flow="C->B")])
    page = browser.open(f"http://{rest.address}/page/")
    page.shows("caught up\t", "main table tbody")


def test_a_code_is_shown_once_where_a_text_ends_with_it(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    part = partition("logs", 0, state="FAILED", code="DIVERGED", message="logs-0: no [DIVERGED]")
    gone = {"reason": "it is gone [PROCESS_GONE]; paused", "code": "PROCESS_GONE"}
    monitor.update([flow(part, state="NOT_RUNNING", **gone), flow(flow="C->B")])
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Flow']}")
    page.shows("it is gone; paused")
    assert page.text().count("PROCESS_GONE") == 1
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Topics']}")
    page.click("logs", "main table summary, main table button")
    page.shows("logs-0: no")
    assert "[DIVERGED]" not in page.text()


@pytest.mark.alone  # the test measures time
@pytest.mark.long
def test_ten_thousand_topics_are_smooth(rest: Rest, monitor: Monitor, browser: Browser) -> None:
    """With 10,000 topics of 10 partitions each, the page opens within two seconds, sorts and
    filters within one second, and scrolls smoothly.
    """
    parts = [
        partition(f"topic-{n // 10:05}", n % 10, lag=n % 977, records=n) for n in range(100_000)
    ]
    monitor.update([flow(*parts), flow(flow="C->B")])
    begun = time.monotonic()
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Topics']}")
    page.shows("10,000 topics, 1 to 200")
    took = {"opens": time.monotonic() - begun}
    for what, click, shows in (
        ("sorts", "Copied", "999,945"),
        ("turns round", "Copied ▼", "topic-00000"),
        ("next page", "Next", "201 to 400"),
    ):
        monitor.update([flow(*parts), flow(flow="C->B")])
        begun = time.monotonic()
        page.click(click)
        page.shows(shows)
        took[what] = time.monotonic() - begun
    begun = time.monotonic()
    page.press("/")
    for key in "09999":
        page.press(key)
    page.shows("1 topic, 1 to 1")
    took["filters"] = time.monotonic() - begun
    page.go(f"http://{rest.address}/page/{SCREENS['Topics']}?sort=topic")
    page.shows("topic-00199")
    frames = page.run(SCROLL)
    assert took["opens"] < 2, took
    assert all(seconds < 1 for what, seconds in took.items() if what != "opens"), took
    assert frames[1] < 100, "one frame may be another process's"


def test_resume_is_offered_of_a_topic_that_was_named_and_not_of_a_paused_flow(
    rest: Rest, monitor: Monitor, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"": IntentKind.PAUSE, "a.b": IntentKind.PAUSE, "gone": IntentKind.RELEASE}
    rows = [
        Intent(
            bytes_per_second=None,
            reason="",
            flow="A->B",
            kind=kind,
            topic=topic,
            is_set=True,
            who="ann",
            at_ms=1,
        ).encode()
        for topic, kind in kinds.items()
    ]
    reported = ReportedFlow(status=None, intents=flow_intents("A->B", rows))
    monkeypatch.setattr(leaders, "reports_of", lambda flows, *_: dict.fromkeys(flows, reported))
    states = {"a.b": "PAUSED", "axb": "PAUSED", "gone": "RELEASED", "original": "PROMOTED"}
    parts = [partition(topic, state=state) for topic, state in states.items()]
    monitor.update([flow(*parts, state="PAUSED"), flow(flow="C->B")])
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Topics']}")
    labels = "[...document.querySelectorAll('td button.do')].map((one) => one.ariaLabel).sort()"
    wanted = ["Pause axb", "Resume a.b", "Resume gone"]
    eventually(lambda: page.run(labels) == wanted, what="a button for each topic")


def test_a_promoted_topic_shows_author_and_reason(
    rest: Rest, monitor: Monitor, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = LogFacts(topic="original", problem="away")
    monkeypatch.setattr(
        endpoints, "both_logs", lambda _, *sides: tuple(dict.fromkeys(tps, away) for tps in sides)
    )
    said = "promoted by ann: A is lost, 2027-01-15T08:00:00Z"
    part = replace(partition("original", lag=None, state="PROMOTED"), message=said)
    monitor.update([flow(part), flow(flow="C->B")])
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Topics']}")
    page.shows("PROMOTED", "main table")
    page.click("original")
    page.shows(said)


def test_a_stream_that_never_ends_keeps_up_where_little_would_be_lost(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    waits = partition("orders", 0, lag=7)
    late = flow(waits, flow="C->B", loss_records=7, loss_ms=60_000)
    monitor.update([flow(waits, loss_records=4, loss_ms=1200), late])
    page = browser.open(f"http://{rest.address}/page/")
    page.shows("keeps up", "main table")
    page.shows("not at this rate", "main table")
    rows = "[...document.querySelectorAll('main table tr')].map((one) => one.innerText)"
    (here,) = (row for row in page.run(rows) if row.startswith("A->B"))
    assert "keeps up" in here


def test_a_paused_flow_has_no_speed(rest: Rest, monitor: Monitor, browser: Browser) -> None:
    """An operator pauses a flow, and checks on the page whether the copy has stopped. The page must
    show `?` or 0 B/s, and not the speed from before the pause.
    """
    first = "[...document.querySelectorAll('tbody tr:first-child td')].map((one) => one.innerText)"
    total = itertools.count(1)

    def shown(state: str, copied: int) -> tuple[str, str]:
        part = partition("orders", 0, lag=7, bytes=10_000 * copied)
        monitor.update([flow(part, state=state), flow(flow="C->B")])
        cells = page.run(first)
        return (cells[1].split()[0], cells[5]) if cells else ("", "")

    page = browser.open(f"http://{rest.address}/page/")
    eventually(lambda: shown("RUNNING", next(total))[1].endswith("KB/s"), what="a speed")
    copied = next(total)
    eventually(lambda: shown("PAUSED", copied)[0] == "PAUSED")
    assert shown("PAUSED", copied)[1] in ("?", "0 B/s"), "not that of before"
    eventually(lambda: shown("PAUSED", copied) == ("PAUSED", "0 B/s"))


@pytest.mark.parametrize("wide", [360, 1400])
def test_all_columns_of_the_flows_are_in_the_window(
    rest: Rest, browser: Browser, wide: int
) -> None:
    page = browser.open(f"http://{rest.address}/page/", wide=wide)
    page.shows("Reported by" if wide > 1000 else "RUNNING", "main table")
    hidden = (
        "[...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth - one.clientWidth)"
    )
    eventually(lambda: page.run(hidden) == [0], what="a table without a scroll bar")
    cell = "document.querySelector('td[data-name^=Lost]').getBoundingClientRect().right"
    assert 0 < page.run(cell) <= wide


def test_a_flow_that_is_led_elsewhere_has_its_lag_and_its_last_proof(
    rest: Rest, monitor: Monitor, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor.update([flow(state="STANDBY", generation=None), flow(flow="C->B", state="STANDBY")])
    proof = Proof(mode="full", at_ms=1, records=123, differences=0, is_complete=True)

    def reports(flows: list[str], *_: object) -> dict[str, ReportedFlow]:
        now_ms = int(time.time() * 1000)
        row = structs.replace(
            PUBLISHED, at_ms=now_ms, lag=4321, lag_unknown=0, loss_ms=60_000, proof=proof
        )
        return dict.fromkeys(flows, ReportedFlow(status=row, intents=FlowIntents()))

    monkeypatch.setattr(leaders, "reports_of", reports)
    page = browser.open(f"http://{rest.address}/page/")
    page.shows("4,321", "main table")
    page.shows("123 records equal, all copied records", "main table")
    page.shows("not at this rate", "main table")
    page.go(f"http://{rest.address}/page/{SCREENS['Compare']}")
    page.shows("123 records equal, all copied records")
    proof = structs.replace(proof, differences=2)
    page.go(f"http://{rest.address}/page/")
    page.shows("Check A->B (the copy differs)", "#verdict")
    page.shows("2 ranges differ", "main table")


def test_a_code_shows_its_remedy(rest: Rest, monitor: Monitor, browser: Browser) -> None:
    broken = partition("logs", 0, lag=7, state="FAILED", code="RECORD_TOO_LARGE", message="no")
    monitor.update([flow(broken, state="PARTLY_FAILED")])
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Topics']}")
    page.click("RECORD_TOO_LARGE")
    page.shows("max.message.bytes")


def test_a_change_is_previewed_and_errors_are_shown(rest: Rest, browser: Browser) -> None:
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Flow']}")
    page.click("Pause", "main button")
    page.shows("Pause A->B", "dialog")
    assert page.run("document.querySelector('dialog button.first').disabled")
    page.click("Preview")
    page.shows("[UNREACHABLE]", "dialog")
    page.click("Close")
    assert page.run("!document.querySelector('dialog').open")


@pytest.mark.witness("the page asks for a token")
def test_a_token_is_requested(
    monitor: Monitor, file: Path, tmp_path: Path, browser: Browser
) -> None:
    from twinlog.config.rest import RestRole
    from twinlog.control.web.tokens import append, new_token

    made, tokens = new_token("oncall", RestRole.OPERATE), tmp_path / "tokens"
    append(tokens, "oncall", made.line)
    file.write_text(f"{file.read_text()}twinlog.rest.tokens.file = {tokens}\n")
    with rest_of(load(file, environment={}), file, monitor, Address("127.0.0.1", 0)) as rest:
        page = browser.open(f"http://{rest.address}/page/")
        page.shows("Sign in")
        page.run(f"document.querySelector('input').value = '{made.token}'")
        page.click("Sign in")
        page.shows("Yes: all 2 flows are copying")


@pytest.mark.parametrize(
    ("wide", "dark"),
    [
        (360, True),
        (1200, False),
        pytest.param(360, False, marks=pytest.mark.long),
        pytest.param(1200, True, marks=pytest.mark.long),
    ],
)
def test_it_fits_and_can_be_read(rest: Rest, browser: Browser, *, dark: bool, wide: int) -> None:
    """No screen is wider than the window, all text has enough contrast (WCAG 1.4.3), and every
    control has a name.
    """
    for address in SCREENS.values():
        page = browser.open(f"http://{rest.address}/page/{address}", wide=wide, dark=dark)
        eventually(partial(page.text, "h1"))
        assert page.run("document.documentElement.scrollWidth") <= wide, address
        assert page.run(f"{CHECKS}.unreadable()") == [], address
        assert page.run(f"{CHECKS}.nameless()") == [], address


@pytest.mark.witness("the page passes axe's accessibility rules")
@pytest.mark.parametrize(
    ("wide", "dark"),
    [
        (1200, False),
        pytest.param(1200, True, marks=pytest.mark.long),
        pytest.param(360, False, marks=pytest.mark.long),
        pytest.param(360, True, marks=pytest.mark.long),
    ],
)
def test_axe_finds_nothing(
    rest: Rest, monitor: Monitor, browser: Browser, *, dark: bool, wide: int
) -> None:
    broken = partition("logs", 0, lag=7, state="FAILED", code="RECORD_TOO_LARGE", message="no")
    monitor.update([flow(broken, state="PARTLY_FAILED", reason="why"), flow(flow="C->B")])
    axe = axe_script().read_text()
    for address in SCREENS.values():
        page = browser.open(f"http://{rest.address}/page/{address}", wide=wide, dark=dark)
        eventually(partial(page.text, "h1"))
        eventually(partial(page.run, "!document.querySelector('main [role=status]:empty')"))
        page.run(f"{axe}; true")
        assert page.run(AXE) == [], address
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Flow']}", wide=wide, dark=dark)
    page.click("Pause", "main button")
    page.shows("Pause A->B", "dialog")
    page.run(f"{axe}; true")
    assert page.run(AXE) == [], "the dialog"


def test_unknown_values_are_not_shown_as_yes(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    monitor.update(
        [
            flow(partition(), loss_records=0, loss_ms=0, loss_unknown=3),
            flow(flow="C->B", loss_records=0, loss_ms=0),
        ]
    )
    page = browser.open(f"http://{rest.address}/page/")
    page.shows("no loss is known if the sources died now", "#verdict")
    page.shows("(unknown for 3 partitions)", "#verdict")
    page.shows("unknown for 3 partitions", "main table")
    monitor.update(
        [
            flow(loss_records=0, loss_ms=0),
            flow(flow="C->B", state="STANDBY", generation=None),
        ]
    )
    page.shows("Check C->B (STANDBY, but no leader reports)", "#verdict")


def test_an_unknown_address_of_the_page_still_opens(rest: Rest, browser: Browser) -> None:
    page = browser.open(f"http://{rest.address}/page/#/%E0%A4%A")
    page.shows("Yes: all 2 flows are copying")


def test_a_client_that_lost_access_sees_no_further_data(
    monitor: Monitor, file: Path, tmp_path: Path, browser: Browser
) -> None:
    from twinlog.config.rest import RestRole
    from twinlog.control.web.tokens import append, new_token

    made, tokens = new_token("oncall", RestRole.OPERATE), tmp_path / "tokens"
    append(tokens, "oncall", made.line)
    append(tokens, "other", new_token("other", RestRole.READ).line)
    file.write_text(f"{file.read_text()}twinlog.rest.tokens.file = {tokens}\n")
    with rest_of(load(file, environment={}), file, monitor, Address("127.0.0.1", 0)) as rest:
        page = browser.open(f"http://{rest.address}/page/")
        page.shows("Sign in")
        page.run(f"document.querySelector('input').value = '{made.token}'")
        page.click("Sign in")
        page.shows("Yes: all 2 flows are copying")
        tokens.write_text(tokens.read_text().splitlines(keepends=True)[1])
        page.shows("Sign in")
        page.run(f"location.hash = '{SCREENS['Flow']}'")
        page.run("new Promise((done) => setTimeout(done, 100))")
        assert "Sign in" in page.text()
        assert "A->B" not in page.text("body")
        assert page.run("sessionStorage.getItem('twinlog-token')") == ""


def test_topics_are_filtered_by_a_code_of_their_partitions(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    codes = {"orders": "", "logs": "RECORD_TOO_LARGE", "pay": "DIVERGED"}
    parts = [partition(topic, code=code) for topic, code in codes.items()]
    monitor.update([flow(*parts), flow(flow="C->B")])
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Topics']}")
    page.shows("3 topics")
    offered = page.run("[...document.querySelectorAll('#codes option')].map((one) => one.value)")
    assert {*codes.values()} - {*offered} == {""}
    page.run("document.querySelector('input[list]').focus()")
    for key in "diverged":
        page.press(key)
    page.run("document.activeElement.blur()")
    page.shows("1 topic,")
    page.shows("pay")
    assert page.run("location.hash").endswith("topics?code=DIVERGED")
    page = browser.open(f"http://{rest.address}/page/{SCREENS['Topics']}?code=RECORD_TOO_LARGE")
    page.shows("logs")
    assert page.run("document.querySelector('input[list]').value") == "RECORD_TOO_LARGE"
