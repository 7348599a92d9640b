"""The state of a flow at one moment: the values behind `status`, progress bars and the final
report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final

from twinlog.cluster.net.settings import ClusterSettings
from twinlog.codes import FlowState, PartitionState
from twinlog.control.watch.groups_report import CheckpointTiming
from twinlog.control.watch.spread import LatencyHistogram, Quantiles
from twinlog.control.watch.timing_window import TimingView
from twinlog.control.watch.verified import Verified
from twinlog.errors import TwinlogError
from twinlog.lane.messages import LaneLoad
from twinlog.mirror.skips import Poison
from twinlog.quantities import duration


@dataclass(slots=True, kw_only=True)
class PartitionSnapshot:
    """One partition now. Lag is in records; -1 while the source end is unknown.

    Never modified, but not `frozen`, which took a third of the time to make a snapshot of 100,000.
    """

    topic: str
    partition: int
    target_topic: str = ""
    state: PartitionState
    lag: int = -1
    lag_ms: int = -1
    """While records wait: the age of the last copied record, or the time since no record waited,
    whichever is less. 0 without lag.
    """
    records: int = 0
    bytes: int = 0
    code: str = ""
    message: str = ""
    since_ms: int = 0
    """Time at which its problem began or, without a problem, its state; 0 if unknown."""
    loss_records: int = -1
    """Source offsets that are not on the target, including open transactions; -1 if unknown."""
    loss_ms: int = -1
    """How long ago the target last had all records of the source; -1 if unknown."""
    left_ms: int = -1
    """While records wait: the minimum time for which the source keeps the next one, or -1 if no
    deletion is expected.
    """
    is_left_known: bool = True
    """If False, a `left_ms` of -1 means unknown."""
    needs_ms: int = -1
    """Time the copy needs to catch up, 0 while unknown; -1 if it is not catching up."""
    is_near_deletion: bool = False
    """Whether records will be deleted before they are copied, at the current rates."""
    newest_ms: int = -1
    """Timestamp of the newest record on the target, if the source is unreachable."""
    batches: int = 0
    """Number of batches that the current lane has read, without skipped ones."""
    recoded: int = 0
    """Number of these batches that were decoded, or compressed with another codec."""
    poison: Poison | None = None
    """The record that blocks the partition, if it is known exactly and can be skipped."""
    upstream: int = -1
    """The next upstream offset; -1 while unknown."""
    lane: int = -1
    """Lane number within the lease; -1 if no lane has it, or if unknown in this process."""
    copied: int = -1
    """Number of records of the copy, by all processes, or -1 while unknown. `records` counts only
    those of this process.
    """
    age: TimingView | None = None
    """Age of batches when they were read; None before the first."""
    latency: TimingView | None = None
    """Age of batches when they were acknowledged."""

    @property
    def is_held_back(self) -> bool:
        """Return True if an open transaction at the source holds it back, which no lane can
        resolve."""
        return self.code == "OPEN_TRANSACTION"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """A group's position in one target partition; offsets are -1 if unknown."""

    group: str
    topic: str
    partition: int
    at: int
    """Its committed offset; -1 if it has none."""
    resumes_at: int
    """Offset of its newest checkpoint."""
    end: int
    """End of the copy."""
    why_not_exact: str
    """Why it would not resume at exactly the next record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSnapshot:
    """One flow now."""

    flow: str
    state: FlowState
    reason: str
    guarantee: str = ""
    generation: int = -1
    lanes: int = 0
    since_ms: int = 0
    """Time at which its state began. For a flow that does not run: when it last started, or 0."""
    partitions: tuple[PartitionSnapshot, ...] = ()
    code: str = ""
    """Code of the error that ended the flow, or keeps it from starting."""
    next_try_ms: int = 0
    """Time of the next attempt; 0 if one is in progress, or if the lanes retry."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Number of occurrences of each code in this process."""
    skipped_groups: Mapping[str, str] = field(default_factory=dict)
    """Groups whose offsets on the target are not changed, with the reason."""
    groups_without_checkpoint: Mapping[str, str] = field(default_factory=dict)
    """Selected groups that have no offset on the target to resume from, with the reason."""
    loss_records: int = -1
    """Source offsets that are not on the target, over partitions where that is known."""
    loss_ms: int = -1
    """How long ago the target last had all records of the source, for the partition where that is
    longest; -1 if unknown for all.
    """
    loss_unknown: int = 0
    """Number of partitions whose loss is unknown."""
    source_problem: str = ""
    """Why the source could not be queried, if only the target was."""
    groups: tuple[GroupPosition, ...] = ()
    """Positions of groups on the target, if the source could not be queried."""
    where: str = ""
    """Host and process that reported it, if not this one."""
    as_of_ms: int = 0
    """Time of that report, by the reporter's clock."""
    taken_ms: int = 0
    """When the snapshot was taken, by this host's clock; 0 means now."""
    rpo_ms: int = -1
    """The value of twinlog.rpo.seconds; -1 if not set."""
    rpo_excess: str = ""
    """How the RPO is exceeded; empty if it is not."""
    held_rate: int | None = None
    """Quota on the source in bytes per second for each user and broker; None if there is none."""
    latency: Quantiles | None = None
    """Latency of all batches of the last minute until their acknowledgement, from the newest
    timestamp in each; None without batches, or if this process does not lead the flow."""
    latencies: LatencyHistogram | None = field(default=None, repr=False)
    """Latency of all batches since this process leads the flow; only for `/metrics`."""
    lane_cpu_ms: int = 0
    """CPU time of its lanes, as they report it."""
    load: LaneLoad | None = field(default=None, repr=False)
    """The load of its lanes, with their traffic since this process leads; only for `/metrics`."""
    verified: Verified | None = None
    """How much of the copy was compared with the source during replication; None if
    twinlog.verify=off, or if this process does not lead the flow."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Records per second by topic, over the last seconds. Topics with an unknown rate
    are missing."""
    checkpoints: Callable[[], tuple[CheckpointTiming, ...]] = field(default=tuple, repr=False)
    """Latencies of checkpoints, computed only for `/metrics` because there may be many."""
    error: TwinlogError | None = field(default=None, repr=False)
    """The error with the code `code`, in the process in which it occurred."""
    clusters: Callable[[], tuple[ClusterSettings, ...]] = field(default=tuple, repr=False)
    """The connection settings of both clusters; a function, so that a written value contains no
    secrets.
    """

    def why(self, now_ms: int) -> str:
        """Return the reason, with the time of the next attempt."""
        return with_next_try(self.reason, self.next_try_ms, now_ms)

    def speaks_for(self, partition: PartitionSnapshot) -> bool:
        """Return True if the flow itself waits because of the partition's problem."""
        is_same = bool(partition.code) and partition.code == self.code
        return is_same and partition.message in self.reason

    @property
    def records(self) -> int:
        return sum(p.records for p in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.partitions)

    @property
    def lag(self) -> int:
        """Return the number of waiting records, over partitions for which it is known, or -1 if
        unknown for all."""
        known = [p.lag for p in self.partitions if p.lag >= 0]
        return sum(known) if known else -1

    @property
    def lag_unknown(self) -> int:
        """Return the number of partitions whose lag is unknown."""
        return sum(p.lag < 0 for p in self.partitions)

    def as_json(self) -> dict[str, Any]:
        return self.head_as_json() | {"partitions": [*self.partitions_as_json()]}

    def head_as_json(self) -> dict[str, Any]:
        """Return all fields but the partitions, of which there may be many."""
        value = asdict(replace(self, error=None, checkpoints=tuple, clusters=tuple, partitions=()))
        for name in ("error", "checkpoints", "clusters", "latencies", "load", "partitions"):
            del value[name]
        return value

    def partitions_as_json(self) -> Iterator[dict[str, Any]]:
        """Yield the partitions one by one; `asdict` would take ten times as long."""
        for part in self.partitions:
            value = dict(zip(_SHOWN, _shown_of(part), strict=True))
            if part.poison is not None:
                value["poison"] = asdict(part.poison)
            yield value


_SHOWN: Final = tuple(
    # timings are for `/metrics` only
    one.name
    for one in fields(PartitionSnapshot)
    if one.name not in ("age", "latency")
)
_shown_of: Final = attrgetter(*_SHOWN)


def known(value: int) -> int | None:
    """Return a value of a snapshot, or None if it is -1, which means unknown."""
    return value if value >= 0 else None


def with_next_try(reason: str, next_try_ms: int, now_ms: int) -> str:
    """Return a flow's reason, with the time until the next attempt if known."""
    if not next_try_ms:
        return reason
    return f"{reason}; next try in {duration(max(0, next_try_ms - now_ms) / 1000)}"
