"""The OpenAPI types of what `/api/v1` answers by itself; `reports.py` has those of what commands
print.

Names in JSON are camelCase. Times are milliseconds since 1970, ages and durations are milliseconds,
rates are bytes per second. Unknown values are null. Answers may get further fields, so clients must
ignore unknown ones. Tests compare the answers with these types.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from twinlog.codes import FlowState, PartitionState
from twinlog.mirror.state.intents import IntentKind

Text = str
"""Text from outside this process: rows of the clusters, texts of operators and errors."""


class Value(BaseModel):
    """Base of all types."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class Problem(Value):
    """Why a request failed: problem details of RFC 9457, with further members."""

    type: str
    """The code's address on this server, relative to the server's address."""
    title: str
    """What the code means."""
    status: int
    """The status of the response."""
    detail: str
    """What is wrong with this request."""
    instance: str
    """The path of the request, percent-encoded."""
    code: str
    """A code that never changes its meaning; `/api/v1/codes` explains each."""
    what: str
    """The same as `detail`."""
    where: str
    """The path of the request, decoded."""
    do: str
    """What to do; empty if `what` says it."""


class Loss(Value):
    """What would be lost if the source died now."""

    records: int | None
    """Number of records that are only on the source."""
    ms: int | None
    """How long ago the target last had all records of the source."""
    unknown_partitions: int | None
    """Number of partitions whose loss is unknown."""
    objective_ms: int | None
    """The value of twinlog.rpo.seconds; null if it is not set."""
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
    deletion is expected, as far as `keptKnown` says."""
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
    """Time of the last comparison."""
    who: Text
    """The user who ran it, and the host."""
    answer: Text
    """identical, different or not compared."""
    is_whole: bool
    """The run covered all topics, from the start of their logs to the end."""
    topics: Text | None
    """A regular expression; null for all topics."""
    since: Text | None
    """The first time of the records, as the user wrote it; null for the start of the logs."""
    until: Text | None
    """The last time of the records, as the user wrote it; null for the end of the logs."""
    deep: bool
    """Every record was decoded."""
    partitions: int
    """Number of partitions."""
    equal_records: int
    """Number of records that are equal on both sides."""
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
    """The kind of command."""
    topic: Text | None
    """Source topic; null for the whole flow."""
    bytes_per_second: int | None
    """The rate of a limit; null for other commands."""
    who: Text
    """The user and host that wrote it."""
    at_ms: int
    """When it was written."""
    reason: Text
    """The user's reason."""


class Flow(Value):
    """One flow, as reported by its leader."""

    flow: str
    """Its name: SOURCE->TARGET."""
    source: str
    """Alias of the source cluster."""
    target: str
    """Alias of the target cluster."""
    state: FlowState
    """What it does now; `/api/v1/codes` explains the states."""
    since_ms: int | None
    """Time at which the flow entered that state."""
    reason: Text
    """Why it is in that state; empty if that is obvious."""
    code: Text
    """The code of the reason; empty if it has none."""
    guarantee: Text
    """What holds for every record, such as `exact`."""
    lanes: int | None
    """Number of lanes, which copy partitions in parallel."""
    generation: int | None
    """Number of its leadership, which grows with every new leader."""
    records: int | None
    """Records copied by the leading process."""
    bytes: int | None
    """Bytes copied by the leading process."""
    partitions: int | None
    """Number of partitions."""
    unusual_partitions: int | None
    """Number of partitions with a code or an unusual state; null if not reported."""
    lag: int | None
    """Records that wait to be copied; null also if the leader's release does not report it."""
    lag_unknown_partitions: int | None
    """Number of partitions that `lag` does not include."""
    loss: Loss
    """The possible loss of records."""
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
    """The commands in effect. null if unknown; `problem` gives the reason."""
    reported_by: Text
    """`here`, or the host and process that leads the flow or fails to set it up."""
    as_of_ms: int | None
    """Time of these numbers, by the clock of the reporting process."""
    age_ms: int | None
    """Age of these numbers."""
    problem: Text
    """Why a part of the answer is old or missing; empty if none is."""


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
    """Remote topic; empty if unknown."""
    state: PartitionState
    """What it does now; `/api/v1/codes` explains the states."""
    since_ms: int | None
    """Begin of its problem, or of its state if it has none."""
    lag: int | None
    """Records that wait to be copied."""
    lag_ms: int | None
    """How long records have waited; 0 without a lag."""
    loss_records: int | None
    """Records that are only on the source."""
    loss_ms: int | None
    """How long ago the target last had all records of the source."""
    records: int
    """Records copied by the reporting process."""
    bytes: int
    """Bytes copied by the reporting process."""
    next_offset: int | None
    """The next source offset to copy."""
    lane: int | None
    """Lane number within the flow's lease; null if no lane has the partition, or if another process
    leads the flow."""
    kept_ms: int | None
    """The least time for which the source keeps the next record. null: no deletion is expected, if
    `keptKnown` is true."""
    kept_known: bool
    """Only the leader of the flow measures it."""
    catches_up_ms: int | None
    """Time until it has caught up, 0 while that is unknown; null if it is not catching up."""
    is_near_deletion: bool
    """At the current rates the source deletes records before they are copied."""
    code: Text
    """The code of its problem; empty if it has none."""
    message: Text
    """Its problem; empty if it has none."""


class Page(Value):
    """A page of rows of a flow."""

    flow: str
    """Name of the flow."""
    total: int
    """Number of matching rows; the answer begins with the row at `offset`."""
    offset: int
    """Number of matching rows before this page."""
    next: str | None
    """Path and query of the next page; null on the last page."""
    reported_by: Literal["here", "clusters"]
    """`here` if this process leads the flow; otherwise both clusters are queried."""
    as_of_ms: int
    """Time of these numbers."""
    age_ms: int
    """Age of these numbers."""


class PartitionPage(Page):
    """A page of a flow's partitions."""

    partitions: list[Partition]
    """The rows of this page."""


class Topic(Value):
    """One topic of a flow. Totals leave out partitions whose value is unknown."""

    topic: Text
    """Source topic."""
    target_topic: Text
    """Remote topic; empty if unknown."""
    partitions: int
    """Number of partitions."""
    state: PartitionState
    """The worst state of its partitions."""
    unusual_partitions: int
    """Number of partitions with a code or an unusual state."""
    codes: list[Text]
    """The codes of its partitions."""
    lag: int | None
    """Records that wait to be copied."""
    lag_ms: int | None
    """The largest of its partitions."""
    lag_unknown_partitions: int
    """Number of partitions that `lag` does not include."""
    loss_records: int | None
    """Records that are only on the source."""
    loss_ms: int | None
    """The largest of its partitions."""
    loss_unknown_partitions: int
    """Number of partitions that `lossRecords` does not include."""
    records: int
    """Records copied by the reporting process."""
    bytes: int
    """Bytes copied by the reporting process."""
    kept_ms: int | None
    """The least time for which the source keeps the next record, over its partitions. null: no
    deletion is expected, as far as `keptKnown` says."""
    kept_known: bool
    """Whether the time is known for every partition."""
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
    """Name of the flow; empty if it concerns none."""
    topic: Text | None
    """Source topic; null if the event concerns none or several."""
    partition: int | None
    """Number of the partition; null if the event concerns none or several."""
    code: Text
    """Its code; empty if it has none."""
    message: Text
    """The line's text."""
    who: Text
    """Host and process that logged it."""
    person: Text | None
    """The user whose command caused it, if any."""


class Events(Value):
    """The newest events of this process, and unusual events of flows led elsewhere; oldest
    first."""

    events: list[Event]
    """The events."""
    last: int
    """Pass it as `since` to get only later events."""
