"""The types of the requests and answers of `/api/v1`. The OpenAPI document is generated from them.

Times are milliseconds since 1970, ages and durations are milliseconds, rates are bytes per second.
Unknown values are null.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from twinlog.codes import FlowState, PartitionState, Retry
from twinlog.codes.states import Severity
from twinlog.config.keys.key_table import DEFINITIONS
from twinlog.mirror.state.intents import IntentKind

MOST_ROWS: Final = 1000
MOST_TOPICS: Final = 50
LONGEST_REASON: Final = 500
LEAST_RATE: Final = DEFINITIONS["twinlog.max.bytes.per.second"].low or 1
MOST_RATE: Final = (1 << 63) - 1

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


def _whole(value: object) -> object:
    """Convert a float such as 5000.0 to an integer, because JSON has only one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sendable(value: object) -> object:
    """Escape lone surrogates, which UTF-8 cannot encode."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode()


Text = Annotated[str, BeforeValidator(_sendable)]
"""Text from outside this process: rows of the clusters, texts of operators and errors."""


class Value(BaseModel):
    """Base of all types: camelCase names in JSON, unknown names are rejected."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class Problem(Value):
    """Why a request failed."""

    code: str
    """Stable; `/api/v1/codes` explains each code."""
    what: str
    where: str
    do: str


class Loss(Value):
    """What would be lost if the source died now."""

    records: int | None
    ms: int | None
    """How long ago the target last had all records of the source."""
    unknown_partitions: int | None
    objective_ms: int | None
    """The value of twinlog.rpo.seconds."""
    excess: Text
    """How the objective is exceeded; empty if it is not."""


class Latency(Value):
    """Latency of the batches of the last minute, from the newest timestamp in each batch.

    Values are upper edges of histogram buckets: at least the true value, and at most 25 % more.
    """

    p50_ms: int
    """Median."""
    p99_ms: int
    """99th percentile."""


class Retention(Value):
    """How soon the source deletes records that wait to be copied."""

    kept_ms: int | None
    """The least time for which the source keeps the next record, over all partitions. null: no
    deletion is expected, as far as `kept_known` says."""
    kept_known: bool
    """Whether the time is known for every partition with a lag. It needs 20 seconds of
    measurements, and DESCRIBE_CONFIGS on the source's topics."""
    topic: Text | None
    """The topic with the least time."""
    near_deletion: list[Text]
    """Topics that would lose records at the current rates before they are copied. Only the first
    topics are listed."""


class Verified(Value):
    """How much of the copy its leader has compared with the source."""

    mode: Text
    """The value of twinlog.verify."""
    at_ms: int | None
    """Time of the last comparison; null if there was none."""
    records: int
    """Number of records that are equal on both sides."""
    differences: int
    """Number of ranges that differ."""
    is_complete: bool
    """All copied records were compared."""


class VerifyRun(Value):
    """The result of a `twinlog verify` run that finished."""

    began_ms: int
    """Both logs were compared up to their end at this time."""
    ended_ms: int
    who: Text
    answer: Text
    """identical, different or not compared."""
    is_whole: bool
    """The run covered all topics, from the start of their logs to the end."""
    topics: Text | None
    """A regular expression; null for all topics."""
    since: Text | None
    until: Text | None
    deep: bool
    partitions: int
    equal_records: int
    ranges: dict[Text, int]
    """Number of ranges that differ, by kind: missing, extra, different, reordered, shifted;
    `others` counts ranges beyond the number kept for each partition."""
    not_compared: int
    """Number of partitions that could not be compared, or only in part."""
    configs: int
    """Number of configs that differ."""
    groups: int
    """Number of group offsets that would skip records."""
    sha256: Text
    """SHA-256 of the flow's object in the report's `flows`, computed like the report's digest."""


class Wanted(Value):
    """A command in effect for a flow or one of its topics."""

    intent: IntentKind
    topic: Text | None
    bytes_per_second: int | None
    who: Text
    at_ms: int
    reason: Text


class Flow(Value):
    """One flow, as reported by its leader."""

    flow: str
    source: str
    target: str
    state: FlowState
    since_ms: int | None
    """Time at which the flow entered that state."""
    reason: Text
    code: Text
    guarantee: Text
    lanes: int | None
    generation: int | None
    records: int | None
    """Records copied by the leading process."""
    bytes: int | None
    partitions: int | None
    unusual_partitions: int | None
    """Number of partitions with a code or an unusual state; null if not reported."""
    lag: int | None
    """Records that wait to be copied; null also if the leader's release does not report it."""
    lag_unknown_partitions: int | None
    """Number of partitions that `lag` does not include."""
    loss: Loss
    latency: Latency | None
    """null if no batch came recently, the flow has no leader, or its leader runs an earlier
    release."""
    retention: Retention | None
    """null if the flow has no leader, or its leader runs an earlier release."""
    verified: Verified | None
    """null if twinlog.verify is off, or the flow has no leader."""
    verify_runs: list[VerifyRun] | None
    """The last results of `twinlog verify`, for the whole flow and for a part of it, newest first.
    null if unknown; `problem` gives the reason."""
    wanted: list[Wanted] | None
    """null if unknown; `problem` gives the reason."""
    reported_by: Text
    """`here`, or the host and process that leads the flow or fails to set it up."""
    as_of_ms: int | None
    """Time of these numbers, by the clock of the reporting process."""
    age_ms: int | None
    problem: Text
    """Why a part of the answer is old or missing; empty if none is."""


class Flows(Value):
    """All flows of this process's configuration."""

    flows: list[Flow]


class HistoryRow(Value):
    """A flow at one moment of the last hour."""

    at_ms: int
    state: FlowState
    generation: int
    lag: int | None
    loss_records: int | None
    loss_ms: int | None
    records: int
    """Records copied by this process since it leads the flow."""
    bytes: int
    p50_ms: int | None
    p99_ms: int | None


class History(Value):
    """The last hour of a flow, one row every ten seconds, oldest first. Only the process that leads
    the flow has rows, and keeps them in memory.
    """

    flow: str
    rows: list[HistoryRow]


class Partition(Value):
    """One partition of a flow."""

    topic: Text
    partition: int
    target_topic: Text
    state: PartitionState
    since_ms: int | None
    lag: int | None
    lag_ms: int | None
    loss_records: int | None
    loss_ms: int | None
    records: int
    bytes: int
    next_offset: int | None
    """The next source offset to copy."""
    lane: int | None
    """Lane number within the flow's lease; null if no lane has the partition, or if another process
    leads the flow."""
    kept_ms: int | None
    """The least time for which the source keeps the next record. null: no deletion is expected, if
    `kept_known` is true."""
    kept_known: bool
    """Only the leader of the flow measures it."""
    catches_up_ms: int | None
    is_near_deletion: bool
    code: Text
    message: Text


class Page(Value):
    """A page of rows of a flow."""

    flow: str
    total: int
    """Number of matching rows; the answer begins with the row at `offset`."""
    offset: int
    reported_by: Literal["here", "clusters"]
    """`here` if this process leads the flow; otherwise both clusters are queried."""
    as_of_ms: int
    age_ms: int


class PartitionPage(Page):
    """A page of a flow's partitions."""

    partitions: list[Partition]


class PartitionQuery(Value):
    """Filter and order of partitions."""

    topic: str = Field(default="", description="Only topics whose name contains this text.")
    of_topic: str = Field(default="", description="Only partitions of exactly this topic.")
    state: PartitionState | None = Field(default=None, description="Only partitions in this state.")
    code: str = Field(default="", description="Only partitions with this code.")
    sort: Literal[
        "topic", "-topic", "lag", "-lag", "lossRecords", "-lossRecords", "lossMs", "-lossMs",
        "keptMs", "-keptMs", "records", "-records", "sinceMs", "-sinceMs",
    ] = Field(default="topic", description="Sort column; a minus reverses it.")  # fmt: skip
    offset: int = Field(default=0, ge=0, le=10_000_000)
    limit: int = Field(default=100, ge=1, le=MOST_ROWS)


class Log(Value):
    """Offsets and replicas of one partition on one cluster."""

    topic: Text
    start: int | None
    last_stable: int | None
    """Last stable offset: consumers with read_committed read up to it."""
    end: int | None
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    in_sync: list[int]
    problem: Text
    """Why a part is unknown; empty if none is."""


class PartitionLogs(Value):
    """Both logs of a partition, and its copy position."""

    partition: int
    next_offset: int | None
    lane: int | None
    source: Log
    target: Log | None
    """The log of the same partition number. If records are partitioned by key, they may be in other
    partitions. null if unknown."""


class Logs(Value):
    """Both logs of some partitions of a topic, in the order of the request."""

    flow: str
    topic: str
    partitions: list[PartitionLogs]
    as_of_ms: int


class LogsQuery(Value):
    """Selection of partitions."""

    topic: Name
    partitions: str = Field(
        max_length=1000,
        pattern=r"^[0-9]{1,9}(,[0-9]{1,9}){0,99}$",
        description="Partition numbers separated by commas; at most 100.",
    )


class Groups(Value):
    """Groups of a flow's source, and whether they are ready to move."""

    flow: str
    groups: list[dict[str, Any]]
    """The groups as in `twinlog groups ready --format json`."""
    left_out: int
    notes: list[str]


class GroupQuery(Value):
    """Selection of groups."""

    group: str = Field(default="", description="Only this group.")


class Event(Value):
    """A log line of this process, or of a process that leads another flow."""

    number: int
    """Sequence number within this process."""
    time: str
    level: str
    flow: Text
    topic: Text | None
    """Source topic; null if the event concerns none or several."""
    partition: int | None
    code: Text
    message: Text
    who: Text
    """Host and process that logged it."""
    person: Text | None
    """The user whose command caused it, if any."""


class Events(Value):
    """The newest events of this process, and unusual events of flows led elsewhere; oldest
    first."""

    events: list[Event]
    last: int
    """Pass it as `since` to get only later events."""


class EventQuery(Value):
    """Selection of events."""

    since: int = Field(default=0, ge=0, le=MOST_RATE, description="Only events after this number.")
    flow: str = Field(default="", description="Only events of this flow.")
    limit: int = Field(default=100, ge=1, le=MOST_ROWS, description="Maximum number; the newest.")


class Code(Value):
    """The meaning of a code, and advice."""

    code: str
    meaning: str
    advice: str
    retry: Retry


class State(Value):
    """The meaning of a state of a flow or partition."""

    state: str
    meaning: str
    severity: Severity
    """good: normal; warn: worth knowing; bad: needs action."""


class Codes(Value):
    """The catalogue of codes and states."""

    codes: list[Code]
    flow_states: list[State]
    partition_states: list[State]


class Cluster(Value):
    """One cluster of the configuration."""

    alias: str
    bootstrap_servers: list[str]
    source_of: list[str]
    target_of: list[str]


class Clusters(Value):
    """All clusters of the configuration."""

    clusters: list[Cluster]


class Diff(Value):
    """Differences between the two clusters of a flow, as in `twinlog diff --format json`."""

    flow: str
    is_equal: bool
    totals: dict[str, Any]
    deviations: list[dict[str, Any]]
    notes: list[str]


class DiffQuery(Value):
    """Scope of a comparison."""

    topics: str | None = Field(
        default=None, max_length=1000, description="A regular expression for whole source topics."
    )
    all: bool = Field(default=False, description="Include what the flow ignores, and why.")


class Doctor(Value):
    """Why a flow is slow or has stopped, as in `twinlog doctor --format json`."""

    flow: str
    state: str
    lag: int
    lag_ms: int
    lanes: int
    bytes_per_second: int | None
    round_trips_ms: dict[str, dict[str, float]]
    notes: list[str]
    findings: list[dict[str, Any]]


class CutoverPlan(Value):
    """What a switchover or failover would do now, as in its `plan --format json`."""

    flow: str
    plan: dict[str, Any]


class Wish(Value):
    """A command, and its reason."""

    model_config = ConfigDict(strict=True)

    reason: str = Field(default="", max_length=LONGEST_REASON, description="Shown in the status.")
    dry_run: bool = Field(default=False, description="Return what would change, and write nothing.")


class LimitWish(Wish):
    """A rate limit for a flow."""

    bytes_per_second: (
        Annotated[int, Field(ge=LEAST_RATE, le=MOST_RATE), BeforeValidator(_whole)] | None
    ) = Field(description="null: use the configured limit.")


class TopicWish(Wish):
    """Topics of a flow."""

    topics: list[Name] = Field(
        min_length=1,
        max_length=MOST_TOPICS,
        description="Names or regular expressions, as in the key `topics`.",
    )


class Change(Value):
    """The effect of a command on one flow or topic."""

    flow: str
    topic: str | None
    intent: IntentKind
    is_set: bool
    bytes_per_second: int | None
    is_needed: bool
    """False if the command was already in effect."""
    before: dict[str, Any] | None


class Changes(Value):
    """Written to the flow's state topic; the leader applies them within 2 s."""

    dry_run: bool
    changes: list[Change]
