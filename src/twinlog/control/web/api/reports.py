"""The types of answers that need queries of both clusters: the groups, the comparison, the doctor,
and the plans of a cut-over.

They are made from what the commands of these names print with `--format json`. A field that is not
here is not in the answer (tests/unit/control/web/test_reports.py compares both).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic.alias_generators import to_camel

from twinlog.codes import FlowState
from twinlog.control.cutover.groups import GroupOutcome
from twinlog.control.web.api.answers import Text, Value

Aspect = Annotated[str, BeforeValidator(to_camel)]
"""What is compared: topic, partitions, replicationFactor, config, acl, quota, group."""


class GroupMember(Value):
    """A member of a group."""

    client_id: Text
    """The application's client.id."""
    host: Text
    """The address that the broker sees."""


class GroupHere(Value):
    """A group on one cluster."""

    state: Text | None
    """Kafka's name of the state, `Dead` if there is no such group; null if unknown."""
    members: int | None
    """Number of members."""
    problem: Text
    """Why something is unknown; empty if nothing is."""


class SourceGroupOffset(Value):
    """A committed offset of a group, and its counterpart on the target."""

    topic: Text
    """Source topic."""
    partition: int
    """Number of the source's partition."""
    offset: int
    """The committed offset on the source."""
    end: int | None
    """End of the source's log."""
    lag: int | None
    """Offsets that the group has not read yet."""
    to_topic: Text | None
    """Remote topic; null if the offset has no counterpart."""
    to_offset: int | None
    """The counterpart on the target; null if there is none."""
    is_exact: bool
    """The group would resume at exactly the next record."""
    why_not: Text
    """Why the counterpart is not exact; empty if it is."""


class SourceGroup(Value):
    """A group of the source, and whether it is ready to move."""

    group: Text
    """Name of the group."""
    is_share: bool
    """It is a share group."""
    is_ready: bool
    """It has no members, and an exact counterpart for each of its offsets."""
    why_not: list[Text]
    """Why it is not ready."""
    state: Text | None
    """Its state on the source."""
    members: list[GroupMember]
    """Its members on the source, as far as they are known."""
    source: GroupHere
    """The group on the source."""
    target: GroupHere
    """The group on the target."""
    lag: int | None
    """Offsets that it has not read yet."""
    offsets: list[SourceGroupOffset]
    """Its committed offsets."""


class SourceGroups(Value):
    """Groups of a flow's source, and whether they are ready to move."""

    flow: str
    """Name of the flow."""
    groups: list[SourceGroup]
    """The groups, by name."""
    left_out: int
    """Number of source groups that `groups` and `groups.exclude` leave out."""
    notes: list[Text]
    """What could not be queried, and what else matters before a group moves."""


class ComparedAspect(Value):
    """The counts of one aspect of a comparison."""

    compared: int
    """Number of items compared."""
    different: int
    """Number of differences that the flow should have made equal."""
    left_alone: int
    """Number of differences that the flow leaves alone."""


class ClusterDifference(Value):
    """A difference between the two clusters."""

    aspect: Aspect
    """What is compared, as in `totals`."""
    name: Text
    """The source topic, the group, the ACL, or the entity of a quota."""
    detail: Text
    """The config, or the partition of a group; empty if there is none."""
    source: Text
    """The value on the source."""
    target: Text
    """The value on the target."""
    left_alone: Text
    """Why the flow does not make it equal; empty if it should be equal."""


class Diff(Value):
    """Differences between the two clusters of a flow, as in `twinlog diff`."""

    flow: str
    """Name of the flow."""
    is_equal: bool
    """There is no difference that the flow should have made equal."""
    totals: dict[Aspect, ComparedAspect]
    """The counts of each aspect that could be compared."""
    deviations: list[ClusterDifference]
    """The differences; with `all` also those that the flow leaves alone."""
    notes: list[Text]
    """What could not be compared, and why."""


class DoctorFinding(Value):
    """One reason why a flow is slow or has stopped."""

    likelihood: Literal["certain", "likely", "possible"]
    """How certain it is."""
    cause: str
    """A stable identifier, such as `quota`."""
    what: Text
    """What was observed."""
    todo: Text
    """A key to change, or a command."""


class Doctor(Value):
    """Why a flow is slow or has stopped, as in `twinlog doctor`."""

    flow: str
    """Name of the flow."""
    state: FlowState
    """What it does now."""
    lag: int | None
    """Records that wait to be copied."""
    lag_ms: int | None
    """How long they have waited."""
    lanes: int
    """Number of lanes."""
    bytes_per_second: int | None
    """Speed of the copy."""
    round_trips_ms: dict[Text, dict[str, float]]
    """Round-trip time of a small request, by the cluster's alias and the broker's ID."""
    notes: list[Text]
    """What could not be measured."""
    findings: list[DoctorFinding]
    """The reasons, most certain first."""


class PlannedGate(Value):
    """A condition of a switchover."""

    gate: str
    """Name of the gate."""
    is_open: bool
    """The condition holds."""
    evidence: list[Text]
    """The observations."""


class PlannedPartition(Value):
    """How far a partition is copied."""

    topic: Text
    """Source topic."""
    partition: int
    """Number of the partition."""
    target_topic: Text
    """Remote topic."""
    copied_to: int | None
    """The next source offset to copy."""
    source_end: int | None
    """End of the source's log."""
    missing: int | None
    """Number of source offsets that are not on the target."""
    behind_ms: int | None
    """How much newer the source's newest record is than the target's."""
    newest_ms: int | None
    """Timestamp of the target's newest record."""
    foreign_records: int
    """Number of offsets after the copy, which other clients wrote."""
    deleted: list[int] | None
    """Offsets that the source deleted and that were not copied: the first one, and the one after
    the last. null if there are none."""
    problem: Text | None
    """Why something is unknown; null if nothing is."""


class PlannedOffset(Value):
    """What a cut-over does with a group in one partition."""

    topic: Text
    """Source topic."""
    partition: int
    """Number of the partition."""
    committed: int
    """The group's offset on the source."""
    target_topic: Text
    """Remote topic."""
    to: int | None
    """The target offset at which it resumes."""
    is_exact: bool
    """It resumes at exactly the next record."""
    why_not_exact: Text | None
    """Why it is not exact; null if it is."""
    now: int | None
    """The group's current offset on the target; null if it has none."""
    outcome: GroupOutcome
    """What is done, in words."""


class PlannedGroup(Value):
    """What a cut-over does with a group."""

    group: Text
    """Name of the group."""
    is_exact: bool
    """It resumes at exactly the next record in every partition."""
    is_done: bool
    """Its offsets on the target are where they should be, or further."""
    from_checkpoints: bool
    """The offsets are from its newest checkpoints."""
    in_use_on_source: bool
    """It has members on the source."""
    in_use_on_target: bool
    """It has members on the target, so none of its offsets is set."""
    problem: Text | None
    """Why its offsets on the target are unknown; null if they are known."""
    offsets: list[PlannedOffset] = Field(validation_alias="places")
    """Its offset in each partition."""


class PlannedCutover(Value):
    """What plans of a switchover and of a failover have in common."""

    flow: str
    """Name of the flow."""
    promoted: Text | None
    """Who promoted the flow and when; null if it is not promoted."""
    notes: list[Text]
    """What operators need to know before clients move to the target."""
    partitions: list[PlannedPartition]
    """The partitions."""
    groups: list[PlannedGroup]
    """The groups."""


class PlannedSwitchover(PlannedCutover):
    """What a switchover would do now, as in `twinlog switchover plan`."""

    is_open: bool
    """All gates are open."""
    fenced: list[Text]
    """Topics whose producers are already fenced."""
    gates: list[PlannedGate]
    """The conditions, with evidence."""


class ReportedLoss(Value):
    """The last report of the flow's leader, of any age."""

    problem: Text = ""
    """Why there is none; empty if there is one."""
    at_ms: int | None = None
    """Its time, by the leader's clock."""
    where: Text = ""
    """Host and process of the leader."""
    state: Text = ""
    """State of the flow."""
    loss_records: int | None = None
    """Records that were only on the source."""
    loss_ms: int | None = None
    """How long the target had lacked records of the source."""
    loss_unknown: int | None = None
    """Number of partitions whose loss was unknown."""


class PlannedFailover(PlannedCutover):
    """What a failover would do now, as in `twinlog failover plan`."""

    is_clear: bool
    """No loss is known, and every group resumes exactly."""
    source_problem: Text | None
    """Why the source cannot be used; null if it can."""
    groups_problem: Text | None
    """Why `groups` may be incomplete; null if it has all selected groups."""
    reported: ReportedLoss = Field(validation_alias="told")
    """The last report of the flow's leader."""
