"""The OpenAPI types of responses of `/api/v1`. `reports.py` has the types of responses that are
also the output of commands.

Names in JSON are camelCase. Times are milliseconds since 1970, ages and durations are milliseconds,
rates are bytes per second. Unknown values are null. Later releases may add fields, so clients must
ignore unknown fields. Tests compare responses with these types.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from twinlog.codes import FlowState, PartitionState
from twinlog.mirror.state.intents import IntentKind

Text = str
"""Text from outside this process, such as rows of a cluster's topics, texts of operators, and
errors."""


class Value(BaseModel):
    """Base class of all types."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class Problem(Value):
    """Why a request failed: problem details of RFC 9457, with further members."""

    type: str
    """The URL of the code's explanation on this server, relative to the server's address."""
    title: str
    """The meaning of the code."""
    status: int
    """The HTTP status of the response."""
    detail: str
    """What is wrong with this request."""
    instance: str
    """The path of the request, percent-encoded."""
    code: str
    """A code that never changes its meaning. `/api/v1/codes` explains each code."""
    what: str
    """Same text as `detail`."""
    where: str
    """The path of the request, decoded."""
    do: str
    """What to do. Empty if `what` contains it."""


class Loss(Value):
    """The records that would be lost if the source died now."""

    records: int | None
    """Number of records that are only on the source."""
    ms: int | None
    """Time since the target last had all records of the source."""
    unknown_partitions: int | None
    """Number of partitions whose loss is unknown."""
    objective_ms: int | None
    """The value of twinlog.rpo.seconds. null if it is not set."""
    excess: Text
    """How the objective is exceeded. Empty if it is not exceeded."""


class Latency(Value):
    """Latency of the batches of the last minute, from the newest timestamp in each batch.

    Values are upper edges of histogram buckets, so they are at least the true value and at most 25
    % more."""

    p50_ms: int
    """Median."""
    p99_ms: int
    """99th percentile."""


class Retention(Value):
    """When the source will delete records that wait to be copied."""

    kept_ms: int | None
    """Minimum time for which the source keeps the next record to copy of any partition. null if no
    deletion is expected, provided that `keptKnown` is true."""
    kept_known: bool
    """True if the time is known for every partition with a lag. This needs 20 seconds of
    measurements, and DESCRIBE_CONFIGS on the source's topics."""
    topic: Text | None
    """The topic with the minimum time."""
    near_deletion: list[Text]
    """Topics from which, at the current rates, the source will delete records before they are
    copied. Only the first few topics are listed."""


class Verified(Value):
    """How much of the copy the flow's leader has compared with the source."""

    mode: Text
    """The value of twinlog.verify."""
    at_ms: int | None
    """Time of the last comparison. null if there was none."""
    records: int
    """Number of records that are equal on both sides."""
    differences: int
    """Number of ranges that differ."""
    is_complete: bool
    """True if all copied records were compared."""


class VerifyRun(Value):
    """The result of a `twinlog verify` run that finished."""

    began_ms: int
    """Time of the start. Both logs were compared up to their end at this time."""
    ended_ms: int
    """Time of the last comparison."""
    who: Text
    """The user who ran the comparison, and the host."""
    answer: Text
    """The result: identical, different or not compared."""
    is_whole: bool
    """True if all topics were compared, from the start of their logs to the end."""
    topics: Text | None
    """Regular expression that selected topics. null for all topics."""
    since: Text | None
    """The user's start time of the records to compare. null for the start of the logs."""
    until: Text | None
    """The user's end time of the records to compare. null for the end of the logs."""
    deep: bool
    """True if every record was decoded."""
    partitions: int
    """Number of partitions."""
    equal_records: int
    """Number of records that are equal on both sides."""
    ranges: dict[Text, int]
    """Number of ranges that differ, by kind: missing, extra, different, reordered, shifted;
    `others` counts ranges beyond the number kept for each partition."""
    not_compared: int
    """Number of partitions that could not be compared, or were compared only in part."""
    configs: int
    """Number of configs that differ."""
    groups: int
    """Number of group offsets on the target at which a group would skip records."""
    sha256: Text
    """SHA-256 of the flow's object in the report's `flows`, computed like the report's digest."""


class Wanted(Value):
    """A command in effect for a flow or one of its topics."""

    intent: IntentKind
    """The kind of command."""
    topic: Text | None
    """Source topic. null for the whole flow."""
    bytes_per_second: int | None
    """The rate of a limit. null for other commands."""
    who: Text
    """The user and host that wrote the command."""
    at_ms: int
    """When the command was written."""
    reason: Text
    """The user's reason."""


class Flow(Value):
    """One flow, as its leader reports it."""

    flow: str
    """Name of the flow: SOURCE->TARGET."""
    source: str
    """Alias of the source cluster."""
    target: str
    """Alias of the target cluster."""
    state: FlowState
    """Current state. `/api/v1/codes` explains the states."""
    since_ms: int | None
    """Time at which the flow entered that state."""
    reason: Text
    """Why the flow is in this state. Empty if the state needs no reason."""
    code: Text
    """The code of the reason. Empty if the reason has none."""
    guarantee: Text
    """The delivery guarantee for every record, such as `exact`."""
    lanes: int | None
    """Number of lanes, which copy partitions in parallel."""
    generation: int | None
    """Generation of the flow: a number that grows with every new leader."""
    records: int | None
    """Number of records that the leading process has copied."""
    bytes: int | None
    """Number of bytes that the leading process has copied."""
    partitions: int | None
    """Number of partitions."""
    unusual_partitions: int | None
    """Number of partitions with a code or an unusual state. null if not reported."""
    lag: int | None
    """Number of records that wait to be copied. null also if the leader's release does not report
    it."""
    lag_unknown_partitions: int | None
    """Number of partitions that `lag` does not include."""
    loss: Loss
    """The possible loss of records."""
    latency: Latency | None
    """Latency of recent batches. null if no batch was copied recently, if the flow has no leader,
    or if its leader runs an earlier release."""
    retention: Retention | None
    """When the source deletes waiting records. null if the flow has no leader, or if its leader
    runs an earlier release."""
    verified: Verified | None
    """How much of the copy was compared. null if twinlog.verify is off, or if the flow has no
    leader."""
    verify_runs: list[VerifyRun] | None
    """The last result of `twinlog verify` for the whole flow, and the last one for a part of it,
    newest first. null if unknown, for the reason in `problem`."""
    wanted: list[Wanted] | None
    """The commands in effect. null if unknown, for the reason in `problem`."""
    reported_by: Text
    """`here` for this process, or else host and process that lead the flow or fail to set it up."""
    as_of_ms: int | None
    """Time of the values in this object, by the clock of the reporting process."""
    age_ms: int | None
    """Age of the values in this object."""
    problem: Text
    """Why a part of the response is old or missing. Empty if no part is."""


class Flows(Value):
    """All flows of this process's configuration."""

    flows: list[Flow]
    """The flows, in the order of the configuration."""


class Partition(Value):
    """One partition of a flow."""

    topic: Text
    """Source topic."""
    partition: int
    """Number of the partition."""
    target_topic: Text
    """Remote topic. Empty if unknown."""
    state: PartitionState
    """Current state. `/api/v1/codes` explains the states."""
    since_ms: int | None
    """Begin of the partition's problem, or of its state if it has no problem."""
    lag: int | None
    """Number of records that wait to be copied."""
    lag_ms: int | None
    """How long records have waited. 0 without a lag."""
    loss_records: int | None
    """Number of records that are only on the source."""
    loss_ms: int | None
    """Time since the target last had all records of the source."""
    records: int
    """Number of records that the reporting process has copied."""
    bytes: int
    """Number of bytes that the reporting process has copied."""
    next_offset: int | None
    """The next source offset to copy."""
    lane: int | None
    """Number of the lane within the flow's lease. null if no lane owns the partition, or if another
    process leads the flow."""
    kept_ms: int | None
    """Minimum time for which the source keeps the next record to copy. null if no deletion is
    expected, provided that `keptKnown` is true."""
    kept_known: bool
    """True if the time is known. Only the leader of the flow measures it."""
    catches_up_ms: int | None
    """Time until the lag is 0, or 0 if this time is unknown. null if the partition is not catching
    up."""
    is_near_deletion: bool
    """At the current rates the source deletes records before they are copied."""
    code: Text
    """The code of the partition's problem. Empty if it has none."""
    message: Text
    """The partition's problem. Empty if it has none."""


class Page(Value):
    """A page of a list of a flow's topics or partitions."""

    flow: str
    """Name of the flow."""
    total: int
    """Total number of matching rows. This page begins with the row at `offset`."""
    offset: int
    """Number of matching rows before this page."""
    next: str | None
    """Path and query of the next page. null on the last page."""
    reported_by: Literal["here", "clusters"]
    """`here` if this process leads the flow. `clusters` if both clusters were queried instead."""
    as_of_ms: int
    """Time of the values in this object."""
    age_ms: int
    """Age of the values in this object."""


class PartitionPage(Page):
    """A page of a flow's partitions."""

    partitions: list[Partition]
    """The rows of this page."""


class Topic(Value):
    """One topic of a flow. Totals do not include partitions whose value is unknown."""

    topic: Text
    """Source topic."""
    target_topic: Text
    """Remote topic. Empty if unknown."""
    partitions: int
    """Number of partitions."""
    state: PartitionState
    """The worst state of the topic's partitions."""
    unusual_partitions: int
    """Number of partitions with a code or an unusual state."""
    codes: list[Text]
    """The codes of the topic's partitions."""
    lag: int | None
    """Number of records that wait to be copied."""
    lag_ms: int | None
    """Maximum over the topic's partitions."""
    lag_unknown_partitions: int
    """Number of partitions that `lag` does not include."""
    loss_records: int | None
    """Number of records that are only on the source."""
    loss_ms: int | None
    """Maximum over the topic's partitions."""
    loss_unknown_partitions: int
    """Number of partitions that `lossRecords` does not include."""
    records: int
    """Number of records that the reporting process has copied."""
    bytes: int
    """Number of bytes that the reporting process has copied."""
    kept_ms: int | None
    """Minimum time for which the source keeps the next record to copy of any partition. null if no
    deletion is expected, provided that `keptKnown` is true."""
    kept_known: bool
    """True if the time is known for every partition."""
    is_near_deletion: bool
    """At the current rates the source deletes records before they are copied."""


class TopicPage(Page):
    """A page of a flow's topics."""

    topics: list[Topic]
    """The rows of this page."""


class Event(Value):
    """A log line of this process, or of a process that leads another flow."""

    number: int
    """Sequence number within this process."""
    at_ms: int
    """When it was logged, by the clock of the process that logged it."""
    level: str
    """INFO, WARNING or ERROR."""
    flow: Text
    """Name of the flow. Empty if the event is about no single flow."""
    topic: Text | None
    """Source topic. null if the event is about no topic or several topics."""
    partition: int | None
    """Number of the partition. null if the event is about no partition or several partitions."""
    code: Text
    """The code of the event. Empty if it has none."""
    message: Text
    """The text of the log line."""
    who: Text
    """Host and process that logged the event."""
    person: Text | None
    """The user whose command caused the event. null if none did."""


class Events(Value):
    """The newest events of this process, and unusual events of flows that other processes lead,
    oldest first."""

    events: list[Event]
    """The events, oldest first."""
    last: int
    """Number of the last event. Pass it as `since` to get only later events."""
