"""Commands on the page write exactly the change that the page has shown before. The state topic is
in memory.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from tests.support.browser import Browser, Page
from tests.support.eventually import eventually
from tests.support.rest import Rest
from twinlog.client.steering import FlowSteering
from twinlog.control.check.reported_status import ReportedFlow
from twinlog.control.web.api import leaders
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind, flow_intents

pytestmark = pytest.mark.xdist_group("browser")

WRITE = "document.querySelector('dialog button.first')"


@dataclass(slots=True)
class StateTopic:
    """An in-memory state topic. Steering reads it and appends to it, whichever target a
    flow has.
    """

    rows: list[tuple[bytes, bytes]] = field(default_factory=list)
    questions: int = 0
    answers: threading.Event = field(default_factory=threading.Event)

    def intents(self, flow: str = "A->B") -> FlowIntents:
        return flow_intents(flow, self.rows)

    def asked(self, flow: str) -> FlowIntents:
        self.questions += 1
        assert self.answers.wait(60)
        return self.intents(flow)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> StateTopic:
    topic = StateTopic()
    topic.answers.set()
    monkeypatch.setattr(FlowSteering, "intents", lambda one, *_: topic.asked(one.flow))
    monkeypatch.setattr(FlowSteering, "append", lambda _, rows, **named: topic.rows.extend(rows))

    def reports(flows: list[str], *_: object) -> dict[str, ReportedFlow]:
        return {flow: ReportedFlow(status=None, intents=topic.intents(flow)) for flow in flows}

    monkeypatch.setattr(leaders, "reports_of", reports)
    return topic


def dialog_of(rest: Rest, browser: Browser, title: str) -> Page:
    page = browser.open(f"http://{rest.address}/page/#/flow/A-%3EB")
    page.click(title, "main button")
    page.shows(f"{title} A->B", "dialog")
    return page


def write_into(page: Page, name: str, text: str) -> None:
    """Append text to an input of the dialog by single key presses."""
    page.run(f"document.querySelector('dialog [name={name}]').focus()")
    for key in text:
        page.press(key)


def test_a_pause_is_written_on_the_page(rest: Rest, topic: StateTopic, browser: Browser) -> None:
    page = dialog_of(rest, browser, "Pause")
    write_into(page, "reason", "an upgrade")
    page.click("Preview")
    page.shows("A->B: pause\n", "dialog")
    page.shows("Nothing has been changed yet.", "dialog")
    assert topic.rows == []
    assert "false" not in page.text("dialog")
    page.click("Pause", "dialog button")
    page.shows("Saved", "dialog")
    pause = topic.intents().pause
    assert pause is not None
    assert pause.reason == "an upgrade"
    assert page.run(f"{WRITE}.disabled"), "it is written once"
    page.click("Close")
    page.shows("an upgrade", "main table")


def test_changes_after_the_preview_are_not_written(
    rest: Rest, topic: StateTopic, browser: Browser
) -> None:
    page = dialog_of(rest, browser, "Limit")
    write_into(page, "rate", "5")
    page.click("Preview")
    page.shows("A->B: limit 5.0 MB/s", "dialog")
    assert not page.run(f"{WRITE}.disabled")
    write_into(page, "rate", "00")
    assert page.run(f"{WRITE}.disabled")
    assert "limit 5.0" not in page.text("dialog")
    page.click("Preview")
    page.shows("A->B: limit 500 MB/s", "dialog")
    write_into(page, "reason", "why")
    assert page.run(f"{WRITE}.disabled")
    assert topic.rows == []
    page.click("Preview")
    page.click("Limit", "dialog button")
    page.shows("Saved", "dialog")
    assert topic.intents().limit == 500_000_000


def test_a_preview_that_comes_after_an_edit_is_not_written(
    rest: Rest, topic: StateTopic, browser: Browser
) -> None:
    page = dialog_of(rest, browser, "Limit")
    topic.answers.clear()
    write_into(page, "rate", "5")
    page.click("Preview")
    eventually(lambda: topic.questions == 1)
    write_into(page, "rate", "00")
    topic.answers.set()
    able = "[...document.querySelectorAll('dialog button')].map((one) => !one.disabled)"
    eventually(lambda: page.run(able) == [True, False, True], what="the answer to what was asked")
    assert "5.0 MB/s" not in page.text("dialog")


@pytest.mark.parametrize("text", ["", "5e", "1e308"])
def test_an_invalid_number_is_an_error_and_removes_no_limit(
    rest: Rest, topic: StateTopic, browser: Browser, text: str
) -> None:
    """An invalid number, such as 1e308 MB/s whose bytes exceed a JavaScript number, is an error.
    Nothing is sent, and the limit is unchanged.
    """
    limit_to(topic, 7_000_000)
    page = dialog_of(rest, browser, "Limit")
    write_into(page, "rate", text)
    page.click("Preview")
    page.shows("MB/s must be a number. Nothing was sent.", "dialog")
    assert page.run(f"{WRITE}.disabled")
    assert topic.questions == 0
    assert topic.intents().limit == 7_000_000


def test_a_limit_is_removed_by_choice(rest: Rest, topic: StateTopic, browser: Browser) -> None:
    limit_to(topic, 7_000_000)
    page = dialog_of(rest, browser, "Limit")
    page.run("document.querySelector('dialog [name=none]').click()")
    page.click("Preview")
    page.shows("A->B: limit removed", "dialog")
    page.click("Limit", "dialog button")
    page.shows("Saved", "dialog")
    assert topic.intents().limit is None


def limit_to(topic: StateTopic, rate: int) -> None:
    kind = IntentKind.LIMIT
    row = Intent(
        reason="", flow="A->B", kind=kind, is_set=True, bytes_per_second=rate, who="ann", at_ms=1
    )
    topic.rows.append(row.encode())
