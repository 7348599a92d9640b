"""Responses that take seconds, and the charts of a topic, are shown completely."""

from __future__ import annotations

import time

import pytest

from tests.support.browser import Browser
from tests.support.rest import Rest
from tests.support.snapshots import flow, partition
from twinlog.control.compare import Aspect, Deviation, FlowComparison
from twinlog.control.doctor.findings import ClusterView, Observation
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.api import endpoints

pytestmark = pytest.mark.xdist_group("browser")

FLOW = "#/flow/A-%3EB"


def test_each_finding_of_the_doctor_has_a_remedy(
    rest: Rest, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Observation(
        snapshot=flow(state="FAILED", reason="no broker answers"),
        file="mm2.properties",
        source=ClusterView(alias="A"),
        target=ClusterView(alias="B", problem="no broker answers [UNREACHABLE]"),
    )
    monkeypatch.setattr(endpoints, "observe", lambda *_: iter([seen]))
    page = browser.open(f"http://{rest.address}/page/{FLOW}")
    page.click("Why is it not faster?")
    page.shows("B cannot be reached from this host", "main ol")
    page.shows("B.bootstrap.servers", "main ol")


@pytest.mark.parametrize("wide", [360, 1440])
def test_differences_are_counted_and_listed_in_words(
    rest: Rest, browser: Browser, monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    comparison = FlowComparison(flow="A->B")
    factor = Deviation(aspect=Aspect.REPLICATION_FACTOR, name="my_orders", source="3", target="1")
    comparison.add(Aspect.REPLICATION_FACTOR, 4, [factor])
    comparison.add(Aspect.TOPIC, 5, [])
    monkeypatch.setattr(endpoints, "compare_flows", lambda *_, **__: iter([comparison]))
    page = browser.open(f"http://{rest.address}/page/{FLOW}/compare", wide=wide)
    page.shows("The two clusters differ.")
    page.shows(
        "topic: 5 compared, 0 different; replication factor: 4 compared, 1 different", "main"
    )
    heads = page.run("[...document.querySelectorAll('thead th')].map((one) => one.innerText)")
    assert heads == ["Aspect", "Name", "Source", "Target"], "no columns without values"
    cells = page.run("[...document.querySelectorAll('tbody td')].map((one) => one.innerText)")
    assert cells == ["replication factor", "my_orders", "3", "1"]
    assert page.run("document.documentElement.scrollWidth") <= wide


@pytest.mark.parametrize("wide", [360, 1440])
def test_a_topic_unfolds_to_its_speed_and_lag_of_the_last_hour(
    rest: Rest, monitor: Monitor, browser: Browser, wide: int
) -> None:
    now_ms = int(time.time() * 1000)
    for step in range(4):
        part = partition("pay", lag=step, bytes=3_000_000 * step)
        monitor.history.topics.update(now_ms - 30_000 * (4 - step), [flow(part)])
    monitor.update([flow(part), flow(flow="C->B")])
    page = browser.open(f"http://{rest.address}/page/{FLOW}/topics", wide=wide)
    page.click("pay", "main table button")
    page.shows("speed, last hour\nmost: 100 KB/s", "td.below")
    page.shows("lag in records, last hour\nmost: 3", "td.below")
    assert page.run("document.querySelectorAll('td.below svg.spark').length") == 2
    assert page.run("document.documentElement.scrollWidth") <= wide
