"""The cutover screen shows the numbers of the plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.browser import Browser
from tests.support.rest import Rest
from twinlog.control.cutover.copies import Copy
from twinlog.control.cutover.failover import Failover, FailoverPlan
from twinlog.control.cutover.gates import Gate
from twinlog.control.cutover.newest_status import NewestStatus
from twinlog.control.cutover.switchover import Switchover, SwitchoverPlan
from twinlog.control.web.api import endpoints
from twinlog.model import TopicPartition

pytestmark = pytest.mark.xdist_group("browser")

ADDRESS = "page/#/flow/A-%3EB/cutover"


def a_copy(number: int, *, upstream: int, source_end: int | None) -> Copy:
    return Copy(
        source=TopicPartition("orders", number),
        target=TopicPartition("A.orders", number),
        upstream=upstream,
        source_end=source_end,
    )


COPIES = (
    a_copy(0, upstream=1000, source_end=2200),
    a_copy(1, upstream=40, source_end=74),
    a_copy(2, upstream=9, source_end=9),
    a_copy(3, upstream=5, source_end=None),
)


@contextmanager
def no_clusters(_: object) -> Iterator[None]:
    yield


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch) -> None:
    switchover = SwitchoverPlan(
        flow="A->B",
        gates=(
            Gate(name="lag", is_open=False, evidence=("orders-0: 1200 records wait",)),
            Gate(name="mirror", is_open=True, evidence=()),
        ),
        copies=COPIES,
        groups=(),
        is_begun=False,
        fenced=(),
        promoted="",
        notes=("device-heartbeats is A.device-heartbeats",),
    )
    failover = FailoverPlan(
        flow="A->B",
        source_problem="",
        newest=NewestStatus(status=None),
        copies=COPIES,
        groups=(),
        promoted="",
        lacking=frozenset(copy.source for copy in COPIES[:2]),
        notes=("device-heartbeats is A.device-heartbeats",),
    )
    monkeypatch.setattr(endpoints, "CutoverScope", no_clusters)
    monkeypatch.setattr(Switchover, "__post_init__", lambda _: None)
    monkeypatch.setattr(Switchover, "plan", lambda _: switchover)
    monkeypatch.setattr(Failover, "__init__", lambda *_: None)
    monkeypatch.setattr(Failover, "plan", lambda _: failover)


@pytest.mark.witness("the cut-over screen shows how many offsets are to be drained")
def test_the_plans_numbers_are_shown(rest: Rest, browser: Browser) -> None:
    page = browser.open(f"http://{rest.address}/{ADDRESS}")
    page.click("Plan a switchover")
    page.shows("1 gate closed.")
    page.shows("device-heartbeats is A.device-heartbeats")
    page.shows("1,234 offsets of 4 partitions remain to be drained; unknown for 1 partition.")
    page.click("Plan a failover")
    page.shows("3 partitions would lose records, or the loss is unknown.")
    rows = page.text("main table").splitlines()
    assert [row.split("\t") for row in rows[-3:]] == [
        ["orders-0", "1,200"],
        ["orders-1", "34"],
        ["orders-3", "unknown"],
    ]
