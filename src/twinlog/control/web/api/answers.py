"""The types of `/api/v1`: what is asked and what is answered. The OpenAPI document is made of them.

Times are milliseconds since 1970, ages and durations milliseconds, rates bytes per second. What is
not known is null.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from twinlog.codes import FlowState, PartitionState
from twinlog.codes.condition import Retry
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
    """JSON knows one kind of number: 5000.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sendable(value: object) -> object:
    """Halves of surrogate pairs, which no answer can hold, are written out."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode()


Text = Annotated[str, BeforeValidator(_sendable)]
"""Written by somebody else: rows of the clusters, what operators and errors say."""


class Value(BaseModel):
    """Names are camelCase in JSON; nothing that is not known is taken or given."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class Problem(Value):
    """Why a request is not answered."""

    code: str
    """Stable; `/api/v1/codes` explains each."""
    what: str
    where: str
    do: str


class Loss(Value):
    """What would be lost if the source died now."""

    records: int | None
    ms: int | None
    """How long ago everything that the source had was last on the target."""
    unknown_partitions: int | None
    objective_ms: int | None
    """twinlog.rpo.seconds"""
    excess: Text
    """Why the objective is not kept; empty where it is."""


class Latency(Value):
    """How long the batches of the last minute were on their way, by the newest timestamp of each.

    The edges of buckets: never less than it was, and a quarter more at most.
    """

    p50_ms: int
    """Half of them."""
    p99_ms: int
    """99 of 100."""


class Retention(Value):
    """How soon the source deletes what waits to be copied."""

    kept_ms: int | None
    """For how long at least the next record is kept where that is shortest; null: no end is in
    sight, as far as `kept_known` says."""
    kept_known: bool
    """Whether it is known of every partition that is behind: it takes 20 seconds, and
    DESCRIBE_CONFIGS on the source's topics."""
    topic: Text | None
    """Where that is."""
    near_deletion: list[Text]
    """Topics of which records will be deleted before they are copied, as things are; the first of
    them."""


class Verified(Value):
    """What of a copy its leader has compared with the source."""

    mode: Text
    """twinlog.verify"""
    at_ms: int | None
    """When last; null: nothing yet."""
    records: int
    """That are equal on both sides."""
    differences: int
    """Ranges that differ."""
    is_complete: bool
    """All that was copied was compared."""


class VerifyRun(Value):
    """What a `twinlog verify` that came to its end found."""

    began_ms: int
    """Both logs were compared up to where they ended then."""
    ended_ms: int
    who: Text
    answer: Text
    """identical, different or not compared."""
    is_whole: bool
    """All topics, from the beginning of their logs to the end."""
    topics: Text | None
    """A regular expression; null: all."""
    since: Text | None
    until: Text | None
    deep: bool
    partitions: int
    equal_records: int
    ranges: dict[Text, int]
    """That differ, by kind: missing, extra, different, reordered, shifted; `others` are behind
    those that are kept of a partition."""
    not_compared: int
    """Partitions, of which all or a part could not be asked."""
    configs: int
    """That differ."""
    groups: int
    """Offsets of groups that would skip records."""
    sha256: Text
    """Of the flow's object in `flows` of the report, as the report's own digest is made."""


class Wanted(Value):
    """What somebody wants of a flow, or of one of its topics."""

    intent: IntentKind
    topic: Text | None
    bytes_per_second: int | None
    who: Text
    at_ms: int
    reason: Text


class Flow(Value):
    """One flow, by whoever leads it."""

    flow: str
    source: str
    target: str
    state: FlowState
    since_ms: int | None
    """When that state began."""
    reason: Text
    code: Text
    guarantee: Text
    lanes: int | None
    generation: int | None
    records: int | None
    """Copied by the process that leads it."""
    bytes: int | None
    partitions: int | None
    unusual_partitions: int | None
    """That are not simply copied; null where not reported."""
    lag: int | None
    """Records that wait; null too where the leader is of a release that does not report it."""
    lag_unknown_partitions: int | None
    """Of which `lag` knows nothing."""
    loss: Loss
    latency: Latency | None
    """null: nothing came lately, nobody leads the flow, or its leader is of an earlier release."""
    retention: Retention | None
    """null: nobody leads the flow, or its leader is of an earlier release."""
    verified: Verified | None
    """null: twinlog.verify is off, or nobody leads the flow."""
    verify_runs: list[VerifyRun] | None
    """What `twinlog verify` found last, of all and of a part of the flow, the newest first; null:
    not known, `problem` says why."""
    wanted: list[Wanted] | None
    """null: not known, `problem` says why."""
    reported_by: Text
    """`here`, or the host and process that leads it, or cannot set it up."""
    as_of_ms: int | None
    """When these numbers were taken, by the clock of who reports them."""
    age_ms: int | None
    problem: Text
    """Why something of it is old or missing; empty where nothing is."""


class Flows(Value):
    """All flows of this process's configuration."""

    flows: list[Flow]


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
    """Of the source: the next to be copied."""
    lane: int | None
    """Of the flow's lease; null: no lane has it, or another process knows which."""
    kept_ms: int | None
    """For how long at least the source keeps the next record; null: no end is in sight, if
    `kept_known`."""
    kept_known: bool
    """Who leads the flow alone follows it."""
    catches_up_ms: int | None
    is_near_deletion: bool
    code: Text
    message: Text


class Page(Value):
    """Some rows of a flow."""

    flow: str
    total: int
    """That match; here are those from `offset` on."""
    offset: int
    reported_by: Literal["here", "clusters"]
    """Who leads the flow knows all; elsewhere both clusters are asked."""
    as_of_ms: int
    age_ms: int


class PartitionPage(Page):
    """Some partitions of a flow."""

    partitions: list[Partition]


class PartitionQuery(Value):
    """Which partitions, and in which order."""

    topic: str = Field(default="", description="Only topics whose name contains it.")
    of_topic: str = Field(default="", description="Only those of exactly this topic.")
    state: PartitionState | None = Field(default=None, description="Only those in this state.")
    code: str = Field(default="", description="Only those with this code.")
    sort: Literal[
        "topic", "-topic", "lag", "-lag", "lossRecords", "-lossRecords", "lossMs", "-lossMs",
        "keptMs", "-keptMs", "records", "-records", "sinceMs", "-sinceMs",
    ] = Field(default="topic", description="The column; a minus turns it round.")  # fmt: skip
    offset: int = Field(default=0, ge=0, le=10_000_000)
    limit: int = Field(default=100, ge=1, le=MOST_ROWS)


class Log(Value):
    """One log, in offsets."""

    topic: Text
    start: int | None
    last_stable: int | None
    """A reader of committed records comes so far."""
    end: int | None
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    in_sync: list[int]
    problem: Text
    """Why not all is known."""


class PartitionLogs(Value):
    """Both logs of a partition, and how far it is copied."""

    partition: int
    next_offset: int | None
    lane: int | None
    source: Log
    target: Log | None
    """Of the same number: records that are placed by key may be in others. null: none is known."""


class Logs(Value):
    """Both logs of some partitions of a topic, in the order that was asked for."""

    flow: str
    topic: str
    partitions: list[PartitionLogs]
    as_of_ms: int


class LogsQuery(Value):
    """Which partitions."""

    topic: Name
    partitions: str = Field(
        max_length=1000,
        pattern=r"^[0-9]{1,9}(,[0-9]{1,9}){0,99}$",
        description="Their numbers, with commas between; up to 100.",
    )


class Groups(Value):
    """Groups of a flow's source, and whether they may move."""

    flow: str
    groups: list[dict[str, Any]]
    """As `twinlog groups ready --format json` has them."""
    left_out: int
    notes: list[str]


class GroupQuery(Value):
    """Which groups."""

    group: str = Field(default="", description="Only this one.")


class Event(Value):
    """A line of the log of this process, or of one that leads a flow elsewhere."""

    number: int
    """Of this process's answers."""
    time: str
    level: str
    flow: Text
    topic: Text | None
    """On the source; null: it is about none, or about several."""
    partition: int | None
    code: Text
    message: Text
    who: Text
    """The host and process whose log has it."""
    person: Text | None
    """Who wanted it, where somebody did."""


class Events(Value):
    """The newest of this process, and what is not normal of flows led elsewhere; oldest first."""

    events: list[Event]
    last: int
    """Give it as `since` to get those that come later."""


class EventQuery(Value):
    """Which events."""

    since: int = Field(default=0, ge=0, le=MOST_RATE, description="Only those behind this number.")
    flow: str = Field(default="", description="Only those of this flow.")
    limit: int = Field(default=100, ge=1, le=MOST_ROWS, description="The newest of them.")


class Code(Value):
    """What a code means, and what to do."""

    code: str
    meaning: str
    advice: str
    retry: Retry


class State(Value):
    """What a state of a flow or partition means."""

    state: str
    meaning: str
    severity: Severity
    """good: as it should be; warn: to know of; bad: somebody has to act."""


class Codes(Value):
    """The whole catalogue."""

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
    """What differs between the two clusters of a flow, as `twinlog diff --format json` has it."""

    flow: str
    is_equal: bool
    totals: dict[str, Any]
    deviations: list[dict[str, Any]]
    notes: list[str]


class DiffQuery(Value):
    """What is compared."""

    topics: str | None = Field(
        default=None, max_length=1000, description="A regular expression for whole source topics."
    )
    all: bool = Field(default=False, description="Also what the flow leaves alone, and why.")


class Doctor(Value):
    """Why a flow is slow or has stopped, as `twinlog doctor --format json` has it."""

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
    """What a switchover or failover would do now, as its `plan --format json` has it."""

    flow: str
    plan: dict[str, Any]


class Wish(Value):
    """What is wanted, and why."""

    model_config = ConfigDict(strict=True)

    reason: str = Field(
        default="", max_length=LONGEST_REASON, description="For those who see it in the status."
    )
    dry_run: bool = Field(default=False, description="Say what would change, and write nothing.")


class LimitWish(Wish):
    """The most that a flow copies in a second."""

    bytes_per_second: (
        Annotated[int, Field(ge=LEAST_RATE, le=MOST_RATE), BeforeValidator(_whole)] | None
    ) = Field(description="null: as the configuration says.")


class TopicWish(Wish):
    """Topics of a flow."""

    topics: list[Name] = Field(
        min_length=1,
        max_length=MOST_TOPICS,
        description="Names or regular expressions, as the key `topics` takes them.",
    )


class Change(Value):
    """What becomes of one flow or topic."""

    flow: str
    topic: str | None
    intent: IntentKind
    is_set: bool
    bytes_per_second: int | None
    is_needed: bool
    """It was not so already."""
    before: dict[str, Any] | None


class Changes(Value):
    """Written to the flow's state; whoever leads the flow follows within 2 s."""

    dry_run: bool
    changes: list[Change]
