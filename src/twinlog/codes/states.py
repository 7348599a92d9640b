"""The states of flows and partitions, and the delivery guarantees of a flow."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class FlowState(StrEnum):
    """State of a flow, as in `/metrics` and in the JSON of `status`."""

    STARTING = "STARTING"
    WAITING_FOR_SPARK = "WAITING_FOR_SPARK"
    RUNNING = "RUNNING"
    PARTLY_FAILED = "PARTLY_FAILED"
    STANDBY = "STANDBY"
    DEGRADED = "DEGRADED"
    THROTTLED = "THROTTLED"
    PAUSED = "PAUSED"
    FENCED = "FENCED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    NOT_RUNNING = "NOT_RUNNING"
    UNKNOWN = "UNKNOWN"


class PartitionState(StrEnum):
    """State of a partition."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    COPYING = "COPYING"
    AT_END = "AT_END"
    DRAINING = "DRAINING"
    PAUSED = "PAUSED"
    DONE = "DONE"
    RETRYING = "RETRYING"
    FAILED = "FAILED"
    TAKEN_OVER = "TAKEN_OVER"
    RELEASED = "RELEASED"
    PROMOTED = "PROMOTED"
    SOURCE_DELETED = "SOURCE_DELETED"
    SOURCE_AWAY = "SOURCE_AWAY"
    NEW = "NEW"
    BEHIND = "BEHIND"


NOT_MIRRORED: Final = frozenset(
    {PartitionState.RELEASED, PartitionState.PROMOTED, PartitionState.SOURCE_DELETED}
)
"""States of partitions that the flow no longer copies."""


class Guarantee(StrEnum):
    """Delivery guarantee of a flow; it depends on the target's brokers."""

    EXACT = "exact"
    EXACT_WHILE_KNOWN = "exact while known"
    AT_LEAST_ONCE = "at least once"


class Severity(StrEnum):
    """Severity of a state: GOOD is normal, WARN is worth knowing, BAD requires action."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


_GOOD: Final = frozenset(
    (
        *(FlowState.RUNNING, FlowState.STANDBY),
        *(PartitionState.COPYING, PartitionState.AT_END, PartitionState.DRAINING),
        PartitionState.DONE,
    )
)
_BAD: Final = frozenset(
    (
        # flows that are stopped or not running are not red, because red means an error
        *(FlowState.FAILED, FlowState.PARTLY_FAILED),
        *(PartitionState.FAILED, PartitionState.TAKEN_OVER),
    )
)


def severity_of(state: str) -> Severity:
    """Return the severity of a flow or partition state: WARN for states of other releases."""
    if state in _GOOD:
        return Severity.GOOD
    return Severity.BAD if state in _BAD else Severity.WARN


FLOW_STATES: Final = {
    FlowState.STARTING: "the flow reads both clusters, and Spark starts",
    FlowState.WAITING_FOR_SPARK: (
        "the Spark cluster of `--master` runs no executor for the flow; the reason quotes Spark. "
        "The process waits, and copies as soon as there is one"
    ),
    FlowState.RUNNING: "its lanes copy records",
    FlowState.PARTLY_FAILED: "some partitions have stopped with a code, the others are copied",
    FlowState.STANDBY: (
        "another process leads the flow (the reason names it); this one takes over within 15 s "
        "after that process ends"
    ),
    FlowState.DEGRADED: (
        "a cluster cannot be reached and is retried indefinitely; or losing the source now would "
        "lose more than `twinlog.rpo.seconds` allows; or the source's retention will delete "
        "records before they are copied. The reason says which"
    ),
    FlowState.THROTTLED: (
        "`twinlog.max.bytes.per.second` or a quota of the source's or target's brokers limits the "
        "flow; the reason says which"
    ),
    FlowState.PAUSED: (
        "`twinlog flow pause` was run: nothing is copied or synced until `flow resume`"
    ),
    FlowState.FENCED: (
        "the flow was promoted, so its remote topics are now the originals. Nothing is copied or "
        "synced, not even after a restart; the reason says who promoted it, when and why"
    ),
    FlowState.STOPPING: (
        "the process received a signal, `--once` is complete, or the flow was promoted, changed or "
        "handed over; its lanes wait for the batches in flight"
    ),
    FlowState.STOPPED: "it has shut down cleanly",
    FlowState.FAILED: (
        "the flow could not start and waiting does not help; the reason says what to do. A mirror "
        "without `--once` retries within 30 s"
    ),
    FlowState.NOT_RUNNING: "`status FILE` queried the clusters: no process runs the flow",
    FlowState.UNKNOWN: (
        "`status FILE` could not query a cluster, or cannot determine whether the flow runs; the "
        "reason says why"
    ),
}

PARTITION_STATES: Final = {
    PartitionState.PENDING: "it waits for a lane",
    PartitionState.STARTING: "a lane determines the offset to resume at",
    PartitionState.COPYING: "it is copied",
    PartitionState.AT_END: "all records are copied",
    PartitionState.DRAINING: "it is being handed to the next lease",
    PartitionState.PAUSED: "its topic or its flow is paused",
    PartitionState.DONE: "`--once`: it is copied up to its end",
    PartitionState.RETRYING: "a temporary error occurred, and it is retried",
    PartitionState.FAILED: "it has stopped with a code and is retried within 30 s",
    PartitionState.TAKEN_OVER: (
        "identity policy: other clients write to the topic now, and the copy has ended"
    ),
    PartitionState.RELEASED: "its topic is no longer selected, or was released",
    PartitionState.PROMOTED: (
        "its topic was promoted by name, so the remote topic is now the original and no records "
        "are copied to it. The message says who promoted it, when and why"
    ),
    PartitionState.SOURCE_DELETED: (
        "its topic was deleted on the source, or the mirror's user lost DESCRIBE permission; "
        "brokers report both in the same way. The copy is kept, and nothing is copied to it"
    ),
    PartitionState.SOURCE_AWAY: (
        "`status FILE`: the source does not respond. The target's log and the time until which "
        "records were copied are shown; the number of waiting records is unknown"
    ),
    PartitionState.NEW: "`status FILE`: none of its records have been copied yet",
    PartitionState.BEHIND: "`status FILE`: records wait to be copied",
}

GUARANTEES: Final = {
    Guarantee.EXACT: "every record arrives exactly once, even if processes or brokers crash",
    Guarantee.EXACT_WHILE_KNOWN: (
        "as `exact` while the target's brokers remember the flow's producer IDs. Clients cannot "
        "query whether they do, so for a minute after any error only one batch is sent at a time"
    ),
    Guarantee.AT_LEAST_ONCE: "a record may arrive twice after a crash or a lost response",
}
