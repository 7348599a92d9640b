"""Numbers from a process that has ended are shown as old. Ages are calculated from the server's
clock.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.browser import Browser, Page
from tests.support.eventually import eventually
from tests.support.rest import Rest, rest_of
from tests.support.snapshots import flow
from twinlog.config.load import load
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.verified import Verified

pytestmark = pytest.mark.xdist_group("browser")

HOUR_MS = 3_600_000
COLORS = """[...document.querySelectorAll('main .badge, main .good, main .edge')]
  .map((one) => getComputedStyle(one)).flatMap((one) => [one.color, one.stroke])"""
AGE = "document.querySelector('td:last-child div').innerText"
SLOW_CLOCK = f"{{ const now = Date.now; Date.now = () => now() - {HOUR_MS}; }}"


def goes_to(page: Page, screen: str) -> None:
    page.run(f"location.hash = '{screen}'")


def green_of(page: Page) -> str:
    return str(page.run("getComputedStyle(document.querySelector('#verdict.good')).color"))


def age_of(page: Page) -> float:
    """Return the shown age of the numbers in seconds."""
    said = page.run(AGE)
    if said == "just now":
        return 0.0
    number, unit, _ = said.split()
    return float(number) * {"s": 1, "min": 60}[unit]


def test_numbers_of_an_ended_process_are_shown_as_old_on_every_screen(
    monitor: Monitor, file: Path, browser: Browser
) -> None:
    with rest_of(load(file, environment={}), file, monitor) as rest:
        page = browser.open(f"http://{rest.address}/page/")
        page.shows("Yes: all 2 flows are copying", "#verdict")
        green = green_of(page)
        assert green in page.run(COLORS)
        age = age_of(page)
    page.shows("Unknown.", "#verdict")
    eventually(lambda: page.text().count("this process does not respond") == 1, what="said once")
    page.shows("was RUNNING", "main tbody")
    assert page.run("document.querySelector('svg.map text').textContent") == "was RUNNING"
    assert green not in page.run(COLORS)
    eventually(lambda: age_of(page) > age + 4, what="an age that grows")
    for screen in ("", "/topics", "/groups", "/cutover", "/compare"):
        goes_to(page, f"#/flow/A-%3EB{screen}")
        page.shows("A->B", "h1")
        page.shows("this process does not respond", "main > div")
        page.shows("Last update at", "main > div")
        if not screen:
            page.shows("was RUNNING", "h1")
            assert green not in page.run(COLORS)
    goes_to(page, "#/events")
    page.shows("Events", "h1")
    page.shows("Last update at", "main > div")


def test_a_proof_is_as_old_as_it_is_by_the_servers_clock(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    at_ms = int(time.time() * 1000) - HOUR_MS // 2
    proof = Verified(mode="full", records=123, differences=0, at_ms=at_ms, is_complete=True)
    monitor.update([flow(verified=proof), flow(flow="C->B")])
    page = browser.open("about:blank")
    page.call("Page.addScriptToEvaluateOnNewDocument", source=SLOW_CLOCK)
    page.go(f"http://{rest.address}/page/")
    page.shows("123 records equal", "main table")
    page.shows("30 min ago", "main table")
    goes_to(page, "#/flow/A-%3EB/compare")
    page.shows("30 min ago")
