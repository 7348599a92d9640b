"""The OpenAPI types of answers that are encodings of other values: history, logs of partitions,
the catalogue, the clusters, and what commands print with `--format json`.

`shown.printed` encodes them in camelCase. Tests compare the answers with these types
(tests/unit/control/web/test_reports.py, tests/unit/control/test_rest_document.py).
"""

from __future__ import annotations

from typing import Final, Literal

from tools.pages.answers import (
    Events,
    Flow,
    Flows,
    PartitionPage,
    Text,
    TopicPage,
    Value,
)
from twinlog.codes import FlowState, Retry, Severity
from twinlog.control.cutover.groups import GroupOutcome
from twinlog.mirror.state.intents import IntentKind

Aspect = str
"""What is compared: topic, partitions, replicationFactor, config, acl, quota, group."""


class HistoryRow(Value):
    """A flow at one moment of the last hour."""

    at_ms: int
    """The time of the numbers."""
    state: FlowState
    """What the flow did."""
    generation: int
    """Number of its leadership."""
    lag: int | None
    """Records that waited to be copied."""
    loss_records: int | None
    """Records that were only on the source."""
    loss_ms: int | None
    """How long the target had lacked records of the source."""
    records: int
    """Records copied by this process since it leads the flow."""
    bytes: int
    """Bytes copied by this process since it leads the flow."""
    p50_ms: int | None
    """Median of the latency of the minute before."""
    p99_ms: int | None
    """99th percentile of it."""


class History(Value):
    """The last hour of a flow, one row every ten seconds, oldest first. Only the process that leads
    the flow has rows, and keeps them in memory.
    """

    flow: str
    """Name of the flow."""
    rows: list[HistoryRow]
    """The rows, oldest first."""


class TopicHistoryRow(Value):
    """A topic at one moment of the last hour."""

    at_ms: int
    """The time of the numbers."""
    lag: int | None
    """Records that waited to be copied, over partitions where that was known."""
    bytes: int
    """Bytes copied by this process since it leads the flow."""


class TopicHistory(Value):
    """The last hour of a topic, one row every 30 seconds. Only the process that leads the flow has
    rows, for the 400 topics with the most traffic.
    """

    flow: str
    """Name of the flow."""
    topic: Text
    """Source topic."""
    rows: list[TopicHistoryRow]
    """The rows, oldest first; none if the topic is not among these."""


class Log(Value):
    """Offsets and replicas of one partition on one cluster."""

    topic: Text
    """The topic's name on this cluster."""
    start: int | None
    """The first offset."""
    last_stable: int | None
    """Last stable offset: consumers with read_committed read up to it."""
    end: int | None
    """The offset of the next record."""
    leader: int | None
    """ID of the broker that leads the partition."""
    leader_epoch: int | None
    """Number of its leadership."""
    replicas: list[int]
    """IDs of the brokers with a replica."""
    in_sync: list[int]
    """IDs of the brokers whose replica is in sync."""
    problem: Text
    """Why a part is unknown; empty if none is."""


class PartitionLogs(Value):
    """Both logs of a partition, and its copy position."""

    partition: int
    """Number of the partition."""
    next_offset: int | None
    """The next source offset to copy."""
    lane: int | None
    """As in a row of the partitions."""
    source: Log
    """The log on the source."""
    target: Log | None
    """The log of the same partition number. If records are partitioned by key, they may be in other
    partitions. null if unknown."""


class Logs(Value):
    """Both logs of some partitions of a topic, in the order of the request."""

    flow: str
    """Name of the flow."""
    topic: str
    """Source topic."""
    partitions: list[PartitionLogs]
    """The partitions."""
    as_of_ms: int
    """Time of the queries."""


class InEffect(Value):
    """The wanted state of a flow: what `PUT` on this path sets."""

    paused: bool
    """The whole flow is paused."""
    bytes_per_second: int | None
    """The limit; null: as configured."""
    paused_topics: list[Text]
    """Topics that are paused by name."""
    released_topics: list[Text]
    """Topics that are not mirrored."""


class Code(Value):
    """The meaning of a code, and advice."""

    code: str
    """The code."""
    meaning: str
    """What it means, in Markdown."""
    advice: str
    """What to do, in Markdown; empty if the message says it."""
    retry: Retry
    """Whether and when Twinlog retries by itself."""


class State(Value):
    """The meaning of a state of a flow or partition."""

    state: str
    """The state."""
    meaning: str
    """What it means."""
    severity: Severity
    """good: normal; warn: worth knowing; bad: needs action."""


class Codes(Value):
    """The catalogue of codes and states."""

    codes: list[Code]
    """All codes, by name."""
    flow_states: list[State]
    """All states of flows."""
    partition_states: list[State]
    """All states of partitions."""


class Cluster(Value):
    """One cluster of the configuration."""

    alias: str
    """Its alias."""
    bootstrap_servers: list[str]
    """Addresses of its first brokers."""
    source_of: list[str]
    """Flows of which it is the source."""
    target_of: list[str]
    """Flows of which it is the target."""


class Clusters(Value):
    """All clusters of the configuration."""

    clusters: list[Cluster]
    """The clusters, in the order of the configuration."""


class Before(Value):
    """The command that was in effect before a change."""

    bytes_per_second: int | None
    """The rate of a limit; null for other commands."""
    who: Text
    """The user and host that wrote it."""
    at_ms: int
    """When it was written."""
    reason: Text
    """The user's reason."""


class Change(Value):
    """The effect of a command on one flow or topic."""

    flow: str
    """Name of the flow."""
    topic: Text | None
    """Source topic; null for the whole flow."""
    intent: IntentKind
    """The kind of command."""
    is_set: bool
    """False if the command is taken back."""
    bytes_per_second: int | None
    """The rate of a limit; null for other commands."""
    is_needed: bool
    """False if the command was already in effect, or already taken back."""
    before: Before | None
    """The command that was in effect; null if there was none, or if it cannot be read."""


class Changes(Value):
    """Written to the flow's state topic; the leader applies them within 2 s."""

    dry_run: bool
    """Nothing was written."""
    changes: list[Change]
    """One for each flow or topic that the request names."""


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
    offsets: list[PlannedOffset]
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
    where: Text | None = None
    """Host and process of the leader; null if there is no report."""
    state: Text | None = None
    """State of the flow; null if there is no report."""
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
    reported: ReportedLoss
    """The last report of the flow's leader."""


REPORTS: Final[dict[str, type[Value]]] = {
    one.__name__: one
    for one in (
        *(History, TopicHistory, Logs, SourceGroups, Diff, Doctor, Code, Codes, Clusters),
        *(Events, Flow, Flows, PartitionPage, TopicPage, InEffect, Changes),
        *(PlannedSwitchover, PlannedFailover),
    )
}
"""By the names that the table of endpoints has."""
