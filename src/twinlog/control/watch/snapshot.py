"""The state of a flow at one moment: the values of `status`, progress bars and the final report.

`StateSince` stores the time at which a state began. `FlowSince` stores these times for a flow and
for its topics that cannot be mirrored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec import Struct, convert, field

from twinlog.cluster.net.settings import ClusterSettings
from twinlog.codes import FlowState, PartitionState
from twinlog.control.watch.latency import CheckpointTiming, LatencyHistogram, Quantiles, TimingView
from twinlog.control.watch.verified import Verified
from twinlog.errors import TwinlogError
from twinlog.lane.messages import LaneLoad
from twinlog.mirror.skips import Poison
from twinlog.mirror.state.state_row import Bounded
from twinlog.quantities import duration, total


@dataclass(slots=True)
class StateSince:
    """Stores the last state, and the time at which it was first observed."""

    _state: str = ""
    _since_ms: int = 0

    def began_ms(self, state: str, now_ms: int) -> int:
        """Return the wall clock time (ms) at which `state`, the current state, began."""
        if state != self._state:
            self._state, self._since_ms = state, now_ms
        return self._since_ms


@dataclass(slots=True)
class FlowSince:
    """When a flow's current states began (wall clock), also before its current run."""

    flow: StateSince = dataclasses.field(default_factory=StateSince)
    _topics: dict[str, StateSince] = dataclasses.field(default_factory=dict)

    def see_topic(self, topic: str, code: str, now_ms: int) -> int:
        """Return the wall clock time (ms) since when a topic cannot be mirrored for this reason."""
        return self._topics.setdefault(topic, StateSince()).began_ms(code, now_ms)

    def keep_only(self, topics: Iterable[str]) -> None:
        """Forget all other topics, because only these cannot be mirrored now."""
        for topic in self._topics.keys() - set(topics):
            del self._topics[topic]


class PartitionStatus(Struct, frozen=True, kw_only=True):
    """One partition now. Unknown values are None."""

    topic: str
    partition: int
    target_topic: str = ""
    state: PartitionState
    lag: int | None = None
    """Number of source records that wait for their copy."""
    lag_ms: Bounded | None = None
    """While records wait: the age of the last copied record, or the time since no record waited,
    whichever is less. 0 without lag.
    """
    records: int = 0
    bytes: int = 0
    code: str = ""
    message: str = ""
    since_ms: Bounded = 0
    """Time at which the partition's problem began, or its state without one; 0 if unknown."""
    loss_records: int | None = None
    """Number of source offsets that are not on the target, including those in open transactions."""
    loss_ms: Bounded | None = None
    """How long ago the target last had all records of the source."""
    left_ms: Bounded | None = None
    """While records wait: the minimum time for which the source keeps the next one. None: no
    deletion is expected.
    """
    is_left_known: bool = True
    """If False, a `left_ms` of None means unknown."""
    needs_ms: Bounded | None = None
    """Time the copy needs to catch up, 0 while unknown. None: it is not catching up."""
    is_near_deletion: bool = False
    """Whether records will be deleted before they are copied, at the current rates."""
    newest_ms: Bounded | None = None
    """Timestamp of the newest record on the target, if the source is unreachable."""
    batches: int = 0
    """Number of batches that the current lane has read and not skipped."""
    recoded: int = 0
    """Number of `batches` that were decoded, or compressed with another codec."""
    poison: Poison | None = None
    """The record that blocks the partition, if it is known exactly and can be skipped."""
    upstream: int | None = None
    """The next upstream offset to copy."""
    lane: int | None = None
    """Lane number within the lease. None: no lane has it, or it is unknown in this process."""
    copied: int | None = None
    """Number of records of the copy, by all processes. `records` counts those of this process."""

    @property
    def is_held_back(self) -> bool:
        """Return True if an open transaction at the source, which no lane can end, holds the
        partition back.
        """
        return self.code == "OPEN_TRANSACTION"


class PartitionSnapshot(PartitionStatus, frozen=True, kw_only=True):
    """One partition now, with the values that only `/metrics` shows."""

    age: TimingView | None = None
    """Age of batches when they were read; None before the first batch."""
    latency: TimingView | None = None
    """Age of batches when they were acknowledged; None before the first batch."""


class GroupPosition(Struct, frozen=True, kw_only=True):
    """A group's position in one target partition; unknown offsets are None."""

    group: str
    topic: str
    partition: int
    at: int | None
    """The group's committed offset; None if it is unknown, or if there is none."""
    resumes_at: int | None
    """Offset of the group's newest checkpoint."""
    end: int | None
    """Target offset at which the copy ends."""
    why_not_exact: str
    """Why the group would not resume at exactly the next record."""


class FlowStatus(Struct, frozen=True, kw_only=True):
    """One flow now, as it is written to the status file and printed for programs."""

    flow: str
    state: FlowState
    reason: str
    guarantee: str = ""
    generation: int | None = None
    """The flow's generation, or None if this process is not the leader and knows no leader."""
    lanes: int = 0
    since_ms: Bounded = 0
    """Time at which the flow's state began. If the flow does not run: its last start, or 0."""
    partitions: tuple[PartitionStatus, ...] = ()
    code: str = ""
    """Code of the error that ended the flow, or keeps it from starting."""
    next_try_ms: Bounded = 0
    """Time of the next set-up attempt; 0 if one is in progress, or if the lanes retry."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Number of occurrences of each code in this process."""
    skipped_groups: Mapping[str, str] = field(default_factory=dict)
    """Groups whose offsets on the target are not changed, with the reason."""
    groups_without_checkpoint: Mapping[str, str] = field(default_factory=dict)
    """Selected groups that have no offset on the target to resume from, with the reason."""
    loss_records: int | None = None
    """Number of source offsets that are not on the target, in partitions where it is known."""
    loss_ms: Bounded | None = None
    """How long ago the target last had all records of the source: the longest of all partitions."""
    loss_unknown: int = 0
    """Number of partitions whose loss is unknown."""
    source_problem: str = ""
    """Why the source could not be queried, if all values were read from the target alone."""
    groups: tuple[GroupPosition, ...] = ()
    """Positions of groups on the target, if the source could not be queried."""
    where: str = ""
    """Host and process that reported these values, if not this process."""
    as_of_ms: Bounded = 0
    """Time at which `where` reported these values, by the clock of that host."""
    taken_ms: Bounded = 0
    """When the snapshot was taken, by this host's clock; 0 means now."""
    rpo_ms: Bounded | None = None
    """The value of twinlog.rpo.seconds; None if it is not set."""
    rpo_excess: str = ""
    """How the RPO is exceeded; empty if it is not."""
    held_rate: int | None = None
    """Quota on the source in bytes per second for each user and broker; None if there is none."""
    latency: Quantiles | None = None
    """Latency of all batches of the last minute, from the newest timestamp of a batch to its
    acknowledgement. None without batches, or if this process does not lead the flow.
    """
    lane_cpu_ms: Bounded = 0
    """CPU time of the flow's lanes, as reported by the lanes."""
    verified: Verified | None = None
    """How much of the copy was compared with the source during replication; None if
    twinlog.verify=off, or if this process does not lead the flow.
    """
    rates: Mapping[str, float] = field(default_factory=dict)
    """Records per second by topic, over the last seconds. Unknown rates are missing."""

    def why(self, now_ms: int) -> str:
        """Return the reason, with the time of the next attempt."""
        if not self.next_try_ms:
            return self.reason
        left_s = max(0, self.next_try_ms - now_ms) / 1000
        return f"{self.reason}; next try in {duration(left_s)}"

    def shows_problem(self, code: str, message: str) -> bool:
        """Return True if the flow itself waits because of this problem of a partition."""
        return bool(code) and code == self.code and message in self.reason

    @property
    def records(self) -> int:
        return sum(p.records for p in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.partitions)

    @property
    def lag(self) -> int | None:
        """Return the number of waiting records, over partitions for which it is known."""
        return total(part.lag for part in self.partitions)

    @property
    def lag_unknown(self) -> int:
        """Return the number of partitions whose lag is unknown."""
        return sum(part.lag is None for part in self.partitions)


class FlowSnapshot(FlowStatus, frozen=True, kw_only=True):
    """One flow now, with the values that stay in this process."""

    partitions: tuple[PartitionSnapshot, ...] = ()
    load: LaneLoad | None = None
    """The load of the flow's lanes, with their traffic in this generation; for `/metrics`."""
    latencies: LatencyHistogram | None = None
    """Latency of all batches since this process leads the flow; only for `/metrics`."""
    checkpoints: Callable[[], tuple[CheckpointTiming, ...]] = tuple
    """Latencies of checkpoints, computed only for `/metrics` because there may be many."""
    error: TwinlogError | None = None
    """The error that has the code `code`. Only in the process in which the error occurred."""
    clusters: Callable[[], tuple[ClusterSettings, ...]] = tuple
    """The connection settings of both clusters, as a function, so that secrets are not written."""

    def __repr__(self) -> str:
        return repr(self.status)

    @property
    def is_led_here(self) -> bool:
        """Return True if this process leads the flow and so has the most complete data."""
        return self.generation is not None and self.state is not FlowState.STANDBY

    @property
    def status(self) -> FlowStatus:
        """Return the values that are written to the status file."""
        return convert(self, FlowStatus, from_attributes=True)
