"""`check` suggests a takeover only if a MirrorMaker 2 may have copied the topics."""

from __future__ import annotations

import pytest

from twinlog.control.check.mirror_check import foreign_topics_of, suggestion
from twinlog.control.check.report import FlowReport, Plan, Problem, TopicReport


def topic(name: str, plan: Plan, **begins: int) -> TopicReport:
    numbers = {int(number[1:]): at for number, at in begins.items()}
    return TopicReport(topic=name, remote_topic=name, partitions=1, plan=plan, begins=numbers)


@pytest.mark.parametrize(
    ("is_identity", "names"), [(False, ["orders"]), (True, ["audit", "orders"])]
)
def test_topics_that_twinlog_did_not_copy(names: list[str], *, is_identity: bool) -> None:
    report = FlowReport(
        flow="A->B",
        topics=[
            topic("audit", Plan.EXISTS, p0=0),
            topic("new", Plan.CREATE, p0=0),
            topic("orders", Plan.GROW, p1=0),
            topic("ours", Plan.EXISTS),
        ],
        problems=[
            Problem(code="FOREIGN_DATA", message="", topic="orders", partition="A.orders-0"),
            Problem(code="FOREIGN_DATA", message="", topic="orders", partition="A.orders-1"),
            Problem(code="UNAUTHORIZED", message="", topic="ours"),
        ],
    )
    assert foreign_topics_of(report, is_identity=is_identity) == names


def test_the_suggestion_has_a_reason_and_a_command() -> None:
    said = suggestion(["mm2-offsets.A.internal on B"], ["orders", "audit"])
    assert said.startswith("mm2-offsets.A.internal on B may belong to a MirrorMaker 2. ")
    assert "If it copied orders, audit, take over its work" in said
    assert "twinlog check FILE --adopt-mm2" in said
