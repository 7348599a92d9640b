"""A source topic that was deleted is distinguished from one that is no longer mirrored."""

from __future__ import annotations

from collections import Counter

from tests.support.driver import Driver, plan_of
from twinlog.control.flow.snapshots import flow_snapshot
from twinlog.control.lanes.wanted import see_source
from twinlog.control.watch.snapshot import FlowSince

BOTH = [plan_of(0), plan_of(1), plan_of(0, "payments")]


def survey(driver: Driver, *there: str, released: tuple[str, ...] = ()) -> dict[str, str]:
    """Run a discovery in which the source lists the topics `there`. Return the result by topic."""
    driver.run.set_plans(plan for plan in BOTH if plan.source.topic in there)
    return see_source(driver.run.partitions.values(), there, released)


def states(driver: Driver) -> dict[str, tuple[str, str]]:
    found = flow_snapshot(driver.run, "exact", None, (), Counter(), FlowSince())
    return {part.topic: (part.state, part.message) for part in found.partitions}


def test_deleted_topic_is_reported_once_and_its_copy_is_listed() -> None:
    driver = Driver(BOTH, lanes=1)
    assert survey(driver, "orders", "payments") == {}
    assert survey(driver, "orders") == {"payments": "A.payments"}
    assert survey(driver, "orders") == {}
    said = "deleted at the source, or no longer visible; A.payments is kept"
    assert states(driver)["payments"] == ("SOURCE_DELETED", said)
    driver.pass_time(7200)
    assert survey(driver, "orders") == {}
    assert states(driver)["payments"] == ("SOURCE_DELETED", said), "hours later"


def test_topic_that_reappears_is_copied_and_reported_again_when_it_disappears() -> None:
    driver = Driver(BOTH, lanes=1)
    survey(driver, "orders")
    survey(driver, "orders", "payments")
    assert states(driver)["payments"][0] == "PENDING"
    assert survey(driver, "orders") == {"payments": "A.payments"}


def test_topic_that_is_there_and_not_wanted_is_released() -> None:
    driver = Driver(BOTH, lanes=1)
    driver.run.set_plans([plan_of(0), plan_of(1)])
    assert see_source(driver.run.partitions.values(), ("orders", "payments"), ()) == {}
    assert states(driver)["payments"] == ("RELEASED", "")


def test_topic_that_people_released_may_go() -> None:
    driver = Driver(BOTH, lanes=1)
    assert survey(driver, "orders", released=("payments",)) == {}
    assert states(driver)["payments"] == ("RELEASED", "")
