"""Catalog of the codes and states of flows, partitions, commands and requests.

A code is printed in brackets at the end of a message and is part of the interface. Read `Condition`
first (the fields of a code), then `codes.toml`: codes of partitions, flows, this process, commands,
DataFrames, HTTP requests and warnings; then the states. docs/codes.md is generated from all these.

A new code is one row with its meaning, advice, and where the cause is. The row also has the side at
risk, the traits that rules use, and whether Twinlog retries (set by the `Fate` of the error). Codes
are raised as plain strings (`twinlog.errors`); a test compares them with the tables. This package
imports no other part of Twinlog, and lanes do not load it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cache
from pathlib import Path
from typing import Any, Final


class Retry(StrEnum):
    """When Twinlog itself retries after an error."""

    SOON = "soon"
    """After a growing pause of at most 30 s, because the cause may be temporary."""
    LATER = "within 30 s"
    """Within 30 s after the cause is fixed."""
    NO = "no"
    """Never, because the command ends and has to be run again, or because nothing stopped."""


class Fault(StrEnum):
    """Where the cause of a condition usually is."""

    SOURCE = "source"
    TARGET = "target"
    CLUSTER = "cluster"
    """The source or the target; the message names it."""
    WRITER = "other writer"
    """Another program writes to a remote topic or an internal topic."""
    SETUP = "setup"
    """The configuration, permissions, or a command."""
    HOST = "host"
    """This machine, Spark, or the network between its processes."""
    TWINLOG = "Twinlog"
    NOBODY = "nobody"
    """The condition is part of normal operation, so nothing is at fault."""


class AtRisk(StrEnum):
    """The side that lacks records, or has the only copy of some. Save these records before deleting
    anything on this side.
    """

    NONE = ""
    SOURCE = "source"
    TARGET = "target"
    BOTH = "both"


class Trait(Enum):
    """Properties of codes on which decisions of the driver and of commands depend."""

    CAN_BE_SKIPPED = auto()
    """A single record or batch can cause the error, and `twinlog topic skip` can skip it."""
    ANOTHER_TOPIC = auto()
    """A topic was replaced, so the known position of the copy is no longer valid."""
    ANOTHER_SOURCE = auto()
    """The source no longer has the records that were copied."""
    STALE_PLAN = auto()
    """Topic discovery may resolve the problem, because it finds new topic IDs, max.message.bytes or
    LogAppendTime.
    """
    LOG_FINDING = auto()
    """A cold start may report the code wrongly if a log grows while the two logs are compared."""
    NO_OFFSETS = auto()
    """Offsets on the target must not be used."""
    NOT_OURS = auto()
    """The remote topic may belong to another writer or have the only copy of records, so Twinlog
    does not change it.
    """
    REPAIRABLE = auto()
    """The two logs differ, and an operator can accept the difference with `twinlog repair`."""
    AWAY = auto()
    """A cluster does not respond."""
    MAY_PASS = auto()
    """Users or lanes may resolve the problem, which only topic discovery detects."""


IMPLIED: Final = {
    Trait.ANOTHER_TOPIC: (Trait.ANOTHER_SOURCE, Trait.STALE_PLAN),
    Trait.LOG_FINDING: (Trait.NO_OFFSETS,),
    Trait.NO_OFFSETS: (Trait.NOT_OURS,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One row of docs/codes.md. Its texts are Markdown."""

    codes: tuple[str, ...]
    """The codes of the row: several if they share meaning and advice."""
    meaning: str
    advice: str = ""
    """What to do, or empty if the message itself says it."""
    retry: Retry = Retry.NO
    fault: Fault = Fault.SETUP
    at_risk: AtRisk = AtRisk.NONE
    traits: frozenset[Trait] = frozenset()
    """Traits of the codes, including implied traits."""
    status: int = 0
    """HTTP status of the response, or 0 if the error's class decides."""


def without_markdown(markdown: str) -> str:
    """Return the text without Markdown. A link is replaced by its text and the page's path."""
    return re.sub(r"\[([^]]+)\]\(([^)]+)\)", r"\1: docs/\2", markdown).replace("`", "")


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


def _closure(names: Iterable[str]) -> frozenset[Trait]:
    """Return the named traits and all that they imply."""
    traits = [Trait[name] for name in names]
    implied = (_closure(implied.name for implied in IMPLIED.get(trait, ())) for trait in traits)
    return frozenset(traits).union(*implied)


_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "codes": tuple,
    "meaning": _unwrapped,
    "advice": _unwrapped,
    "retry": Retry,
    "fault": Fault,
    "at_risk": AtRisk,
    "traits": _closure,
    "status": int,
}


@cache
def tables() -> Mapping[str, tuple[Condition, ...]]:
    """Return the rows by table. Tables are named for what stops: partition, flow, process, command,
    dataframe or request. The rows of the table for warnings stop nothing.

    The file is read by the first call, because most commands need no row.
    """
    import tomllib

    text = Path(__file__).with_name("codes.toml").read_text(encoding="utf-8")
    return {
        table: tuple(
            Condition(**{key: _READ[key](value) for key, value in row.items()}) for row in rows
        )
        for table, rows in tomllib.loads(text).items()
    }


@cache
def conditions() -> Mapping[str, Condition]:
    """Return all conditions by code."""
    return {code: row for rows in tables().values() for row in rows for code in row.codes}


def with_trait(trait: Trait) -> frozenset[str]:
    return frozenset(code for code, row in conditions().items() if trait in row.traits)


def has(code: str, trait: Trait) -> bool:
    """Return True if the code has the trait. An unknown code has none."""
    row = conditions().get(code)
    return row is not None and trait in row.traits


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
