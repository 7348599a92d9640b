"""REST responses that are made from the output of commands have all fields of this output, in
camelCase.
"""

from __future__ import annotations

from typing import Any

from pydantic.alias_generators import to_camel

from tests.support import snapshots
from tools.pages import reports
from tools.pages.answers import Value
from twinlog.cluster.groups.group_members import GroupSide, Member
from twinlog.control.check.group_readiness import CommittedOffset, GroupReadiness
from twinlog.control.compare import Aspect, Deviation, FlowComparison
from twinlog.control.cutover.copies import Copy
from twinlog.control.cutover.failover import FailoverPlan
from twinlog.control.cutover.gates import Gate
from twinlog.control.cutover.groups import GroupPartition, GroupPlan
from twinlog.control.cutover.newest_status import NewestStatus
from twinlog.control.cutover.switchover import SwitchoverPlan
from twinlog.control.doctor.findings import ClusterView, Finding, Likelihood, Observation
from twinlog.control.doctor.findings import printed as printed_findings
from twinlog.control.web.api import shown
from twinlog.encoded import encoded
from twinlog.model import TopicPartition

HERE, THERE = TopicPartition("my_orders", 0), TopicPartition("my_east.my_orders", 0)
COPIES = (
    Copy(source=HERE, target=THERE, upstream=5, source_start=7, source_end=9, newest_ms=1),
    Copy(source=HERE, target=THERE, upstream=None, source_end=None, problem="no answer"),
)
GROUPS = (
    GroupPlan(
        group="my_shop",
        partitions=(
            GroupPartition(source=HERE, committed=5, target=THERE, to=5, now=None),
            GroupPartition(
                source=HERE, committed=9, target=THERE, why_not_exact="the copy is late"
            ),
        ),
    ),
)


def renamed(value: Any) -> Any:
    """Return the value with its field names as in REST."""
    if isinstance(value, dict):
        names = {"places": "offsets"}
        return {names.get(name, to_camel(name)): renamed(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [renamed(one) for one in value]
    return value


def answered(model: type[Value], printed: Any) -> Any:
    """Return the REST response for the output of a command. Check that it has exactly the fields of
    its type in the OpenAPI document.
    """
    found = shown.printed(printed)
    typed = model.model_validate(found, by_alias=True, by_name=False)
    assert typed.model_dump(mode="json", by_alias=True) == found
    return found


def test_groups() -> None:
    exact = CommittedOffset(
        topic="my_orders", partition=0, offset=3, end=None, to_topic="x", to_offset=3, why_not=""
    )
    lost = CommittedOffset(
        topic="pay", partition=1, offset=3, end=5, to_topic=None, to_offset=None, why_not="by key"
    )
    group = GroupReadiness(
        group="my_shop",
        is_share=False,
        source_side=GroupSide(
            state="Stable", members=(Member("my_app", "10.0.0.7"),), is_active=True
        ),
        target_side=GroupSide(state=None, members=None, problem="denied"),
        committed=(exact, lost),
        why_not=("it is active",),
    )
    printed = encoded(group)
    found = answered(reports.SourceGroup, printed)
    assert found == renamed(printed)
    assert (found["offsets"][0]["end"], found["offsets"][0]["lag"], found["lag"]) == (None, None, 2)


def test_differences() -> None:
    comparison = FlowComparison(flow="my_east->west", notes=["ACLs cannot be read"])
    factor = Deviation(aspect=Aspect.REPLICATION_FACTOR, name="my_orders", source="3", target="1")
    config = Deviation(
        aspect=Aspect.CONFIG, name="a", detail="retention.ms", source="1", target="", left_alone="x"
    )
    comparison.add(Aspect.REPLICATION_FACTOR, 4, [factor])
    comparison.add(Aspect.CONFIG, 4, [config])
    printed = encoded(comparison.as_json(with_left_alone=True))
    found = answered(reports.Diff, printed)
    wanted = renamed(printed)
    wanted["deviations"][0]["aspect"] = "replicationFactor"
    assert found == wanted
    assert found["totals"].keys() == {"replicationFactor", "config"}


def test_the_doctors_findings() -> None:
    seen = Observation(
        snapshot=snapshots.flow(snapshots.partition(state="COPYING", lag=7, lag_ms=9)),
        file="mm2.properties",
        source=ClusterView(alias="my_east", round_trips_ms={0: 1.25}),
        target=ClusterView(alias="west"),
    )
    printed = encoded(
        printed_findings(seen, [Finding(Likelihood.LIKELY, "few_lanes", "what", "todo")])
    )
    found = answered(reports.Doctor, printed)
    assert found["roundTripsMs"] == {"my_east": {"0": 1.25}, "west": {}}, "an alias is no field"
    assert found == renamed(printed) | {"roundTripsMs": found["roundTripsMs"]}


def test_plan_of_a_switchover() -> None:
    plan = SwitchoverPlan(
        flow="my_east->west",
        gates=(Gate(name="lag", is_open=False, evidence=("much",)),),
        copies=COPIES,
        groups=GROUPS,
        fenced=("my_orders",),
        is_begun=False,
        promoted="",
        notes=("note",),
    )
    found = answered(reports.PlannedSwitchover, encoded(plan))
    assert found == renamed(encoded(plan))
    assert [one["sourceEnd"] for one in found["partitions"]] == [9, None]


def test_plan_of_a_failover() -> None:
    for status, reported in ((None, {"problem": "no row"}), (snapshots.PUBLISHED, {})):
        plan = FailoverPlan(
            flow="my_east->west",
            source_problem="no answer",
            newest=NewestStatus(status=status, problem="no row"),
            copies=COPIES,
            groups=GROUPS,
            promoted="",
        )
        wanted = renamed(encoded(plan))
        told = wanted.pop("told")
        found = answered(reports.PlannedFailover, encoded(plan))
        assert found.pop("reported") == told
        assert found == wanted
        assert reported.items() <= told.items()
