"""The OpenAPI types of responses that `shown.printed` encodes: history, logs of partitions, the
catalog of codes, the clusters, and the output of commands with `--format json`.

Names in JSON are camelCase. Tests compare responses with these types
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
"""A compared property: topic, partitions, replicationFactor, config, acl, quota or group."""


class HistoryRow(Value):
    """A flow at one moment of the last hour."""

    at_ms: int
    """Time of the values in this row."""
    state: FlowState
    """The flow's state at this time."""
    generation: int
    """Generation of the flow: a number that grows with every new leader."""
    lag: int | None
    """Number of records that waited to be copied."""
    loss_records: int | None
    """Number of records that were only on the source."""
    loss_ms: int | None
    """How long the target had lacked records of the source."""
    records: int
    """Number of records that this process has copied since it leads the flow."""
    bytes: int
    """Number of bytes that this process has copied since it leads the flow."""
    p50_ms: int | None
    """Median of the latency in the minute before."""
    p99_ms: int | None
    """99th percentile of the latency in the minute before."""


class History(Value):
    """The last hour of a flow, with a row for every ten seconds. Only the process that leads the
    flow has rows, and stores them only in memory."""

    flow: str
    """Name of the flow."""
    rows: list[HistoryRow]
    """The rows, oldest first."""


class TopicHistoryRow(Value):
    """A topic at one moment of the last hour."""

    at_ms: int
    """Time of the values in this row."""
    lag: int | None
    """Number of records that waited to be copied, without partitions for which it was unknown."""
    bytes: int
    """Number of bytes that this process has copied since it leads the flow."""


class TopicHistory(Value):
    """The last hour of a topic, with a row for every 30 seconds. Only the process that leads the
    flow has rows, and only for the 400 topics with the most traffic."""

    flow: str
    """Name of the flow."""
    topic: Text
    """Source topic."""
    rows: list[TopicHistoryRow]
    """The rows, oldest first. Empty if the topic is not one of these 400."""


class Log(Value):
    """Offsets and replicas of one partition on one cluster."""

    topic: Text
    """The topic's name on this cluster."""
    start: int | None
    """The first offset."""
    last_stable: int | None
    """Last stable offset, up to which consumers with read_committed read."""
    end: int | None
    """The offset of the next record."""
    leader: int | None
    """ID of the broker that leads the partition."""
    leader_epoch: int | None
    """Epoch of the partition's leader, as in Kafka."""
    replicas: list[int]
    """IDs of all brokers with a replica."""
    in_sync: list[int]
    """IDs of the brokers whose replica is in sync."""
    problem: Text
    """Why some of these values are unknown. Empty if all are known."""


class PartitionLogs(Value):
    """Both logs of a partition, and its copy position."""

    partition: int
    """Number of the partition."""
    next_offset: int | None
    """The next source offset to copy."""
    lane: int | None
    """Number of the lane that copies the partition, as in the list of partitions."""
    source: Log
    """The log on the source."""
    target: Log | None
    """The log of the target partition with the same number. If records are placed by key, copied
    records may be in other partitions. null if unknown."""


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
    """The wanted state of a flow, which `PUT` on this path sets."""

    paused: bool
    """True if the whole flow is paused."""
    bytes_per_second: int | None
    """The rate limit. null if the configured limit applies."""
    paused_topics: list[Text]
    """Topics that are paused by name."""
    released_topics: list[Text]
    """Topics that are not mirrored."""


class Code(Value):
    """The meaning of a code, and advice."""

    code: str
    """The code."""
    meaning: str
    """The meaning of the code, in Markdown."""
    advice: str
    """What to do, in Markdown. Empty if the message contains it."""
    retry: Retry
    """If and when Twinlog retries automatically."""


class State(Value):
    """The meaning of a state of a flow or partition."""

    state: str
    """The state."""
    meaning: str
    """The meaning of the state."""
    severity: Severity
    """good (normal), warn (worth knowing) or bad (needs action)."""


class Codes(Value):
    """The catalog of codes and states."""

    codes: list[Code]
    """All codes, by name."""
    flow_states: list[State]
    """All states of flows."""
    partition_states: list[State]
    """All states of partitions."""


class Cluster(Value):
    """One cluster of the configuration."""

    alias: str
    """Alias of the cluster."""
    bootstrap_servers: list[str]
    """The cluster's bootstrap addresses."""
    source_of: list[str]
    """Flows of which the cluster is the source."""
    target_of: list[str]
    """Flows of which the cluster is the target."""


class Clusters(Value):
    """All clusters of the configuration."""

    clusters: list[Cluster]
    """The clusters, in the order of the configuration."""


class Before(Value):
    """The command that was in effect before a change."""

    bytes_per_second: int | None
    """The rate of a limit. null for other commands."""
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
    """Source topic. null for the whole flow."""
    intent: IntentKind
    """The kind of command."""
    is_set: bool
    """True if the command is set, False if it is taken back."""
    bytes_per_second: int | None
    """The rate of a limit. null for other commands."""
    is_needed: bool
    """False if the change has no effect, because the command was already in effect or already taken
    back."""
    before: Before | None
    """The command that was in effect before. null if there was none, or if it cannot be read."""


class Changes(Value):
    """Changes that were written to the flow's state topic. The leader applies them within 2 s."""

    dry_run: bool
    """True if nothing was written."""
    changes: list[Change]
    """One change for each flow or topic in the request."""


class GroupMember(Value):
    """A member of a group."""

    client_id: Text
    """The application's client.id."""
    host: Text
    """The member's address from the broker's view."""


class GroupHere(Value):
    """A group on one cluster."""

    state: Text | None
    """The state in Kafka's terms. `Dead` if the group does not exist, null if unknown."""
    members: int | None
    """Number of members."""
    problem: Text
    """Why a value is unknown. Empty if all are known."""


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
    """Number of offsets in this partition that the group has not read yet."""
    to_topic: Text | None
    """Remote topic. null if the offset has no counterpart."""
    to_offset: int | None
    """The counterpart on the target. null if there is none."""
    is_exact: bool
    """True if the group would resume at exactly the next record."""
    why_not: Text
    """Why the counterpart is not exact. Empty if it is exact."""


class SourceGroup(Value):
    """A group of the source, and whether it is ready to move."""

    group: Text
    """Name of the group."""
    is_share: bool
    """True if it is a share group."""
    is_ready: bool
    """True if the group has no members, and each of its offsets has an exact counterpart."""
    why_not: list[Text]
    """Why the group is not ready. Empty if it is."""
    state: Text | None
    """Its state on the source."""
    members: list[GroupMember]
    """The group's members on the source, as far as known."""
    source: GroupHere
    """The group on the source."""
    target: GroupHere
    """The group on the target."""
    lag: int | None
    """Number of offsets that the group has not read yet, in all partitions."""
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
    """Failed queries, and what else matters before a group moves."""


class ComparedAspect(Value):
    """The counts of one aspect of a comparison."""

    compared: int
    """Number of items compared."""
    different: int
    """Number of differences that the flow should have removed."""
    left_alone: int
    """Number of differences that the flow does not remove."""


class ClusterDifference(Value):
    """A difference between the two clusters."""

    aspect: Aspect
    """The compared property, a key of `totals`."""
    name: Text
    """The source topic, the group, the ACL, or the entity of a quota."""
    detail: Text
    """The config, or the partition of a group. Empty for other aspects."""
    source: Text
    """The value on the source."""
    target: Text
    """The value on the target."""
    left_alone: Text
    """Why the flow does not remove the difference. Empty if it should."""


class Diff(Value):
    """Differences between the two clusters of a flow, as in `twinlog diff`."""

    flow: str
    """Name of the flow."""
    is_equal: bool
    """True if there is no difference that the flow should have removed."""
    totals: dict[Aspect, ComparedAspect]
    """The counts of each aspect that could be compared."""
    deviations: list[ClusterDifference]
    """The differences. With the parameter `all`, also those that the flow does not remove."""
    notes: list[Text]
    """Aspects that could not be compared, with the reasons."""


class DoctorFinding(Value):
    """One reason why a flow is slow or has stopped."""

    likelihood: Literal["certain", "likely", "possible"]
    """How certain the reason is."""
    cause: str
    """A stable identifier of the reason, such as `quota`."""
    what: Text
    """The observation."""
    todo: Text
    """What to do: a key to change, or a command."""


class Doctor(Value):
    """Why a flow is slow or has stopped, as in `twinlog doctor`."""

    flow: str
    """Name of the flow."""
    state: FlowState
    """The flow's current state."""
    lag: int | None
    """Number of records that wait to be copied."""
    lag_ms: int | None
    """How long records have waited to be copied."""
    lanes: int
    """Number of lanes."""
    bytes_per_second: int | None
    """Current rate of the copy."""
    round_trips_ms: dict[Text, dict[str, float]]
    """Round-trip time of a small request, by the cluster's alias and the broker's ID."""
    notes: list[Text]
    """Measurements that failed."""
    findings: list[DoctorFinding]
    """The reasons, most certain first."""


class PlannedGate(Value):
    """A condition of a switchover."""

    gate: str
    """Name of the gate."""
    is_open: bool
    """True if the condition holds."""
    evidence: list[Text]
    """The observations that show if the condition holds."""


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
    """Difference between the timestamps of the newest records on source and target."""
    newest_ms: int | None
    """Timestamp of the target's newest record."""
    foreign_records: int
    """Number of offsets after the end of the copy, which other clients have written."""
    deleted: list[int] | None
    """Range of offsets that the source has deleted before they were copied: the first offset, and
    the offset after the last. null if there are none."""
    problem: Text | None
    """Why a value is unknown. null if all are known."""


class PlannedOffset(Value):
    """What a switchover or failover does with a group's offset in one partition."""

    topic: Text
    """Source topic."""
    partition: int
    """Number of the partition."""
    committed: int
    """The group's offset on the source."""
    target_topic: Text
    """Remote topic."""
    to: int | None
    """The target offset at which the group would resume. null if unknown."""
    is_exact: bool
    """True if the group resumes at exactly the next record."""
    why_not_exact: Text | None
    """Why `to` is not exact. null if it is exact."""
    now: int | None
    """The group's current offset on the target. null if it has none."""
    outcome: GroupOutcome
    """What is done with the offset, in words."""


class PlannedGroup(Value):
    """What a switchover or failover does with a group."""

    group: Text
    """Name of the group."""
    is_exact: bool
    """True if the group resumes at exactly the next record in every partition."""
    is_done: bool
    """True if all its offsets on the target are at the planned offsets, or after them."""
    from_checkpoints: bool
    """True if the planned offsets are from the group's newest checkpoints."""
    in_use_on_source: bool
    """True if the group has members on the source."""
    in_use_on_target: bool
    """True if the group has members on the target. None of its offsets is then set."""
    problem: Text | None
    """Why the group's offsets on the target are unknown. null if they are known."""
    offsets: list[PlannedOffset]
    """The group's offset in each partition."""


class PlannedCutover(Value):
    """The common fields of the plans of a switchover and a failover."""

    flow: str
    """Name of the flow."""
    promoted: Text | None
    """Who promoted the flow and when. null if it is not promoted."""
    notes: list[Text]
    """What operators need to know before clients move to the target."""
    partitions: list[PlannedPartition]
    """The partitions."""
    groups: list[PlannedGroup]
    """The groups."""


class PlannedSwitchover(PlannedCutover):
    """What a switchover would do now, as in `twinlog switchover plan`."""

    is_open: bool
    """True if all gates are open."""
    fenced: list[Text]
    """Topics whose producers are already fenced."""
    gates: list[PlannedGate]
    """All gates, with evidence."""


class ReportedLoss(Value):
    """The last report of the flow's leader, of any age."""

    problem: Text = ""
    """Why there is no report. Empty if there is one."""
    at_ms: int | None = None
    """Time of the report, by the leader's clock. null if there is no report."""
    where: Text | None = None
    """Host and process of the leader. null if there is no report."""
    state: Text | None = None
    """State of the flow. null if there is no report."""
    loss_records: int | None = None
    """Number of records that were only on the source."""
    loss_ms: int | None = None
    """How long the target had lacked records of the source."""
    loss_unknown: int | None = None
    """Number of partitions whose loss was unknown."""


class PlannedFailover(PlannedCutover):
    """What a failover would do now, as in `twinlog failover plan`."""

    is_clear: bool
    """True if no loss is known, and every group resumes at exactly the next record."""
    source_problem: Text | None
    """Why the source cannot be used. null if it can."""
    groups_problem: Text | None
    """Why `groups` may be incomplete. null if it has all selected groups."""
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
"""The types by the name that the table of endpoints contains."""
