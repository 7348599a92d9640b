"""The states of flows and partitions, and what a flow guarantees, with what each means."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class FlowState(StrEnum):
    """What a flow is doing; `/metrics` and the JSON of `status` have these words."""

    STARTING = "STARTING"
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
    """What a partition is doing."""

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
"""States of a partition that the flow does not copy any more."""


class Guarantee(StrEnum):
    """What the target's brokers let a flow promise."""

    EXACT = "exact"
    EXACT_WHILE_KNOWN = "exact while known"
    AT_LEAST_ONCE = "at least once"


class Severity(StrEnum):
    """How much a state matters: as it should be, to know of, somebody has to act."""

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
        # not of flows that somebody ended or never began: red is for errors alone
        *(FlowState.FAILED, FlowState.PARTLY_FAILED),
        *(PartitionState.FAILED, PartitionState.TAKEN_OVER),
    )
)


def severity_of(state: str) -> Severity:
    """Of a state of a flow or partition; of one that only another release has, WARN."""
    if state in _GOOD:
        return Severity.GOOD
    return Severity.BAD if state in _BAD else Severity.WARN


FLOW_STATES: Final = {
    FlowState.STARTING: "it looks at both clusters, and Spark starts",
    FlowState.RUNNING: "its lanes copy",
    FlowState.PARTLY_FAILED: "some partitions have stopped with a code, the rest runs",
    FlowState.STANDBY: (
        "another process leads it, and the reason says which; this one takes over within 15 s of "
        "its end"
    ),
    FlowState.DEGRADED: (
        "a cluster cannot be reached and is retried indefinitely, more would be lost without the "
        "source than `twinlog.rpo.seconds` allows, or its retention takes records before they are "
        "copied; the reason says which"
    ),
    FlowState.THROTTLED: (
        "`twinlog.max.bytes.per.second`, or a quota of the source's or target's brokers, holds it "
        "back; the reason says which"
    ),
    FlowState.PAUSED: "`twinlog flow pause`: nothing is copied or synced until `flow resume`",
    FlowState.FENCED: (
        "it was promoted: its remote topics are the originals now. Nothing is copied or synced, "
        "whatever restarts; the reason says who wanted it, when and why"
    ),
    FlowState.STOPPING: (
        "a signal came, `--once` is done, or it was promoted, changed or handed over; its lanes "
        "finish what they sent"
    ),
    FlowState.STOPPED: "it has ended in order",
    FlowState.FAILED: (
        "it could not be started, and waiting does not help; the reason says what to do, and a "
        "mirror without `--once` tries again within 30 s"
    ),
    FlowState.NOT_RUNNING: "`status FILE` asked the clusters: nobody runs it",
    FlowState.UNKNOWN: (
        "`status FILE` could not ask a cluster, or cannot tell whether the flow runs; the reason "
        "says why"
    ),
}

PARTITION_STATES: Final = {
    PartitionState.PENDING: "it waits for a lane",
    PartitionState.STARTING: "a lane looks for the offset to resume at",
    PartitionState.COPYING: "it is copied",
    PartitionState.AT_END: "all records are copied",
    PartitionState.DRAINING: "it is being handed to the next lease",
    PartitionState.PAUSED: "its topic or its flow is paused",
    PartitionState.DONE: "`--once`: it has reached its end",
    PartitionState.RETRYING: "it had a passing trouble and is tried again",
    PartitionState.FAILED: "it has stopped with a code, and is tried again within 30 s",
    PartitionState.TAKEN_OVER: (
        "identity policy: others write to the topic now, and the copy has ended"
    ),
    PartitionState.RELEASED: "its topic is no longer selected, or was released",
    PartitionState.PROMOTED: (
        "its topic was promoted by name: the remote topic is the original now, and no records are "
        "copied to it. The message names who promoted it, when and why"
    ),
    PartitionState.SOURCE_DELETED: (
        "its topic was deleted at the source, or our user may not see it any more (DESCRIBE): both "
        "look the same. The copy is kept, and nothing is copied to it"
    ),
    PartitionState.SOURCE_AWAY: (
        "`status FILE`: its source does not answer. What is on the target is shown, and until when "
        "it was copied; what waits is known to nobody"
    ),
    PartitionState.NEW: "`status FILE`: nothing of it was copied yet",
    PartitionState.BEHIND: "`status FILE`: records wait to be copied",
}

GUARANTEES: Final = {
    Guarantee.EXACT: "every record arrives exactly once, whatever dies",
    Guarantee.EXACT_WHILE_KNOWN: (
        "the same while the target's brokers remember our producer ids; whether they do cannot be "
        "asked, so one batch is sent at a time for a minute after any trouble"
    ),
    Guarantee.AT_LEAST_ONCE: "a record may arrive twice after a crash or a lost answer",
}
