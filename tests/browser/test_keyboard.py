"""The page can be used by keyboard only, and new numbers do not move the focus."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.browser import Browser, Page
from tests.support.eventually import eventually
from tests.support.rest import Rest
from tests.support.snapshots import flow, partition
from twinlog.control.check.reported_status import ReportedFlow
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.web.api import leaders
from twinlog.mirror.state.intents import FlowIntents

pytestmark = pytest.mark.xdist_group("browser")

TOPICS = "#/flow/A-%3EB/topics"
FOCUSED = "document.activeElement"
STANDS = 60
"""Number of focusable elements from the top of a screen to its end."""


def flows(lag: int) -> list[FlowSnapshot]:
    parts = [partition("orders", number, lag=lag) for number in range(3)]
    return [flow(*parts, partition("pay", lag=lag)), flow(flow="C->B")]


@pytest.fixture
def page(rest: Rest, monitor: Monitor, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> Page:
    """A page that shows the screen of two topics."""
    reported = ReportedFlow(status=None, intents=FlowIntents())
    monkeypatch.setattr(leaders, "reports_of", lambda flows, *_: dict.fromkeys(flows, reported))
    monitor.update(flows(7))
    page = browser.open(f"http://{rest.address}/page/{TOPICS}")
    page.shows("2 topics, 1 to 2")
    return page


def tab_to(page: Page, selector: str) -> None:
    for _ in range(STANDS):
        page.press("Tab")
        if page.run(f"{FOCUSED}.matches('{selector}')"):
            return
    raise AssertionError(f"no {selector} by the keyboard")


def is_new(page: Page, monitor: Monitor) -> None:
    """Wait until the page shows other numbers, for which the focused element was created again."""
    page.run(f"{FOCUSED}.isOld = true")
    monitor.update(flows(8))
    eventually(lambda: not page.run(f"{FOCUSED}.isOld"), what="a new table")


def held(page: Page) -> tuple[str, str | None]:
    """Return the text of the focused element, and its aria-expanded value."""
    text, is_unfolded = page.run(f"[{FOCUSED}.innerText, {FOCUSED}.ariaExpanded]")
    return text, is_unfolded


@pytest.mark.witness("the page's topics expand by keyboard")
def test_a_topic_unfolds_and_folds_by_enter_and_by_space(page: Page, monitor: Monitor) -> None:
    tab_to(page, "button.unfold")
    topic, is_unfolded = held(page)
    assert is_unfolded == "false"
    page.press("Enter")
    assert held(page) == (topic, "true")
    page.shows(f" of {topic}, 1 to ", "td.below caption")
    page.shows("both logs unknown", "td.below caption")
    is_new(page, monitor)
    assert held(page) == (topic, "true"), "after the next question"
    page.shows(f" of {topic}, 1 to ", "td.below caption")
    for key, is_unfolded in (("Enter", "false"), (" ", "true"), (" ", "false")):
        page.press(key)
        assert held(page) == (topic, is_unfolded)
        assert page.run("!!document.querySelector('td.below')") is (is_unfolded == "true")


def test_a_column_that_is_sorted_by_and_a_table_that_is_scrolled_keep_the_focus(
    page: Page, monitor: Monitor
) -> None:
    tab_to(page, "main .scroll")
    is_new(page, monitor)
    assert page.run(f"{FOCUSED}.matches('main .scroll')")
    tab_to(page, "th button")
    assert held(page)[0] == "Topic"
    for arrow in ("▼", "▲"):
        page.press("Enter")
        eventually(partial(page.run, f"{FOCUSED}.innerText === 'Topic {arrow}'"))


def test_content_is_skipped_to_on_the_screen_that_is_open(page: Page) -> None:
    tab_to(page, "a.skip")
    page.press("Enter")
    eventually(lambda: page.run(f"{FOCUSED}.id") == "main")
    page.run("new Promise((done) => setTimeout(done, 100))")
    assert page.run("location.hash") == TOPICS
    page.shows("Topics of A->B", "h1")
    page.press("Tab")
    assert page.run(f"{FOCUSED}.type") == "search"


def test_the_last_page_leaves_the_keyboard_at_the_button_before(
    page: Page, monitor: Monitor
) -> None:
    topics = [partition(f"topic-{number:03}") for number in range(250)]
    monitor.update([flow(*topics)])
    page.shows("250 topics, 1 to ")
    page.run(
        "[...document.querySelectorAll('button')].find(one => one.innerText === 'Next').focus()"
    )
    while page.run(f"{FOCUSED}.innerText") == "Next":
        before = page.run("document.querySelector('caption').innerText")
        page.press("Enter")
        eventually(
            lambda before=before: page.run("document.querySelector('caption').innerText") != before,  # type: ignore[misc]
            what="the next page",
        )
    page.shows("to 250;")
    assert page.run(f"{FOCUSED}.innerText") == "Previous"


def test_a_dialog_is_closed_with_the_screen_it_is_of(page: Page) -> None:
    tab_to(page, "td button.do")
    page.press("Enter")
    assert page.run("document.getElementById('dialog').open")
    page.run("location.hash = '#/events'")
    eventually(lambda: not page.run("document.getElementById('dialog').open"), what="no dialog")
    page.shows("Events", "h1")


def test_the_focus_goes_back_to_the_button_of_a_dialog_that_is_closed(
    page: Page, monitor: Monitor
) -> None:
    """While a dialog was open, new numbers arrived, so the button that opened it was created again.
    When the dialog is closed, the focus returns to the new button.
    """
    pause = '[aria-label="Pause orders"]'
    eventually(lambda: page.run(f"!!document.querySelector('{pause}')"))
    tab_to(page, pause)
    page.run(f"{FOCUSED}.isOld = true")
    page.press("Enter")
    page.shows("Pause A->B: orders", "dialog")
    monitor.update(flows(8))
    eventually(lambda: not page.run(f"document.querySelector('{pause}').isOld"))
    page.press("Escape")
    eventually(lambda: page.run(f"{FOCUSED}.ariaLabel") == "Pause orders")
    assert not page.run("document.querySelector('dialog').open")
