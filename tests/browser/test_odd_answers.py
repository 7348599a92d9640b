"""The page handles unknown addresses, flows that disappear, and responses that are late, missing or
incomplete.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from urllib.parse import quote

import pytest

from tests.support.browser import Browser, Page
from tests.support.eventually import eventually
from tests.support.rest import Rest
from tests.support.snapshots import flow, partition
from twinlog.control.watch.monitor import Monitor

pytestmark = pytest.mark.xdist_group("browser")

FLOW = "#/flow/A-%3EB"
HOOK = """{
  const real = window.fetch;
  window.asked = [];
  window.fetch = async (path, ...more) => {
    asked.push(path);
    const given = await window.instead?.(path);
    return given ? new Response(JSON.stringify(given)) : real(path, ...more);
  };
}"""
"""Script that replaces `fetch` on the page. The function `instead` may return the response to a
request, as JSON.
"""
AFTER = "(ms, value) => new Promise((done) => setTimeout(done, ms, value))"


def hooked(browser: Browser, address: str, instead: str = "") -> Page:
    page = browser.open("about:blank")
    source = HOOK + (f"window.instead = {instead};" if instead else "")
    page.call("Page.addScriptToEvaluateOnNewDocument", source=source)
    page.go(address)
    return page


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString", "nothing"])
def test_a_screen_that_there_is_not_opens_the_flow(rest: Rest, browser: Browser, name: str) -> None:
    page = browser.open(f"http://{rest.address}/page/{FLOW}/{name}")
    page.shows("A->B RUNNING", "h1")
    page.shows("Flow", "nav a[aria-current]")


@pytest.mark.parametrize("name", ["%", "..", "a/../b", "<img src=x>", "größe", "?x=1", "50%25"])
def test_a_missing_flow_is_reported_by_its_name(rest: Rest, browser: Browser, name: str) -> None:
    page = browser.open(f"http://{rest.address}/page/#/flow/{quote(name, safe='')}")
    page.shows(f"There is no flow {name}.")
    assert page.run("document.querySelectorAll('main img').length") == 0
    page.run("location.hash += '/topics'")
    page.shows(f"Topics of {name}", "h1")
    page.shows("[NOT_FOUND]", "main [role=alert]")
    assert page.text("nav").endswith("Events")


def test_of_a_flow_that_is_gone_nothing_is_shown_or_offered(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    config = rest.current.config
    left = tuple(one for one in config.flows if str(one.flow) != "A->B")
    pages = [browser.open(f"http://{rest.address}/page/{FLOW}{name}") for name in ("", "/topics")]
    pages[0].shows("lag, records")
    pages[1].shows("1 topic,")
    rest.current.replace(replace(config, flows=left))
    pages[0].shows("There is no flow A->B.")
    assert pages[0].text().strip() == "There is no flow A->B."
    pages[1].shows("no flow A->B in ")
    assert pages[1].run("document.querySelectorAll('main table, main button').length") == 0
    rest.current.replace(config)
    pages[0].shows("lag, records")
    pages[1].shows("1 topic,")


def test_events_are_shown_again_when_the_process_answers_again(
    rest: Rest, browser: Browser
) -> None:
    logging.getLogger("twinlog.test").warning("once upon a time")
    page = hooked(browser, f"http://{rest.address}/page/#/events")
    page.shows("once upon a time", "main table")
    page.run("instead = (path) => { if (path.includes('/events')) throw new Error('gone'); }, 1")
    page.shows("this process does not respond")
    page.run("delete window.instead")
    page.shows("once upon a time", "main table")


def test_events_that_come_late_are_not_shown_twice(rest: Rest, browser: Browser) -> None:
    logging.getLogger("twinlog.test").warning("once upon a time")
    slow = f"async (path) => path.includes('/events') ? await ({AFTER})(5000) : null"
    page = hooked(browser, f"http://{rest.address}/page/#/events", slow)
    page.shows("once upon a time", "main table")
    asked = "asked.filter((path) => path.includes('/events')).length"
    before = page.run(asked)
    eventually(lambda: page.run(asked) >= before + 2, what="two more answers")
    assert page.text("main table").count("once upon a time") == 1


def test_one_answer_that_cannot_be_shown_is_not_the_last(rest: Rest, browser: Browser) -> None:
    """While the page was open, the server was replaced by one of another release, whose responses
    lack some fields. The page shows these values as unknown and continues.
    """
    flows = rest.get("/api/v1/flows")["flows"]
    for one in flows:
        del one["wanted"], one["verifyRuns"]
    odd = f"(path) => path === '/api/v1/flows' ? {json.dumps({'flows': flows})} : null"
    page = hooked(browser, f"http://{rest.address}/page/{FLOW}", odd)
    page.shows("A->B RUNNING", "h1")
    page.run("location.hash = '#/'")
    page.shows("unknown", 'td[data-name="Last verification"]')
    page.run(f"location.hash = '{FLOW}'")
    page.shows("A->B RUNNING", "h1")
    page.run("delete window.instead")
    page.shows("its target could not be queried")


def test_the_last_requested_plan_is_shown(rest: Rest, browser: Browser) -> None:
    names = ("partitions", "groups", "gates", "fenced", "notes")
    plan = f"{{ {', '.join(f'{name}: []' for name in names)} }}"
    late = f"({AFTER})(1500, {plan})"
    instead = (
        f"(path) => path.endsWith('/switchover') ? {late} : path.endsWith('/failover') && {plan}"
    )
    page = hooked(browser, f"http://{rest.address}/page/{FLOW}/cutover", instead)
    page.click("Plan a switchover")
    page.click("Plan a failover")
    page.shows("No records are known to be missing.")
    page.run("new Promise((done) => setTimeout(done, 2000))")
    assert "No records are known to be missing." in page.text()


def test_a_page_of_topics_that_there_is_no_more_leads_to_the_last(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    def topics(count: int) -> None:
        many = [partition(f"topic-{number:03}") for number in range(count)]
        monitor.update([flow(*many), flow(flow="C->B")])

    topics(401)
    page = browser.open(f"http://{rest.address}/page/{FLOW}/topics?offset=1e400")
    page.shows("401 topics, 401 to 401")
    topics(300)
    page.shows("300 topics, 201 to 300")
    topics(0)
    page.shows("0 topics, 0 to 0")


def test_a_time_that_is_none_hides_nothing_else(
    rest: Rest, monitor: Monitor, browser: Browser
) -> None:
    monitor.update([flow(since_ms=10**17), flow(flow="C->B")])
    page = browser.open(f"http://{rest.address}/page/{FLOW}")
    page.shows("since ? UTC")
    page.shows("lag, records")


def test_slow_requests_for_topics_do_not_overlap(rest: Rest, browser: Browser) -> None:
    never = "(path) => path.includes('/topics?') && new Promise(() => 0)"
    page = hooked(browser, f"http://{rest.address}/page/{FLOW}/topics", never)
    page.shows("Loading ...")

    def of(what: str) -> int:
        return int(page.run(f"asked.filter((one) => one.includes('{what}')).length"))

    eventually(lambda: of("/api/v1/flows/A") >= 1, what="topics are asked for")
    seen = of("/api/v1/flows")
    # flows are requested every two seconds; topics would be requested every five seconds
    eventually(lambda: of("/api/v1/flows") >= seen + 4, what="flows, again and again")
    assert of("/topics?") == 1
