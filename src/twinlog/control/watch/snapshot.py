"""What a flow looks like at one moment: the values behind `status`, progress bars and the final
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
from twinlog.control.watch.spread import Quantiles
from twinlog.control.watch.timing_window import TimingView
from twinlog.control.watch.verified import Verified
from twinlog.errors import TwinlogError
from twinlog.mirror.skips import Poison
from twinlog.quantities import duration


@dataclass(slots=True, kw_only=True)
class PartitionSnapshot:
    """One partition now. Lag is in records; -1 while the source end is not known.

    Never changed; not `frozen`, which took a third of a snapshot of 100,000 of them.
    """

    topic: str
    partition: int
    target_topic: str
    state: PartitionState
    lag: int
    lag_ms: int
    """While records wait: the age of the last copied one, or the time since none waited, whichever
    is less; 0 without lag.
    """
    records: int
    bytes: int
    code: str = ""
    message: str = ""
    since_ms: int = 0
    """Since when its trouble lasts, or without one its state; 0 while it is not known."""
    loss_records: int = -1
    """Offsets of the source that are not on the target, open transactions included; -1: not known.
    """
    loss_ms: int = -1
    """How long ago everything that the source had was last on the target; -1: not known."""
    left_ms: int = -1
    """While records wait: for how long at least the source keeps the next; -1: no end is in sight.
    """
    is_left_known: bool = True
    """Or -1 says no more than that it is not known."""
    needs_ms: int = -1
    """How long the copy needs to catch up, 0 while that is not known; -1: it comes no nearer."""
    is_near_deletion: bool = False
    """Records will be deleted before they are copied, as things are."""
    newest_ms: int = -1
    """The timestamp of the newest record on the target, where the source cannot be asked."""
    batches: int = 0
    """Read by the lane that has it now, and not left out."""
    recoded: int = 0
    """Of those, how many were decoded, or packed with another codec."""
    poison: Poison | None = None
    """The record that holds it up, where that is known exactly and it can be left out."""
    upstream: int = -1
    """The next upstream offset; -1 while it is not known."""
    lane: int = -1
    """Of the lease; -1: none has it, or that is not known here."""
    copied: int = -1
    """Records of the copy, whichever processes wrote them; -1 while it is not known. `records`
    counts what this process copied.
    """
    age: TimingView | None = None
    """Of batches when they were read; None before the first."""
    latency: TimingView | None = None
    """Of batches when they were acknowledged."""

    @property
    def is_held_back(self) -> bool:
        """By a transaction at the source: no lane can do anything about it."""
        return self.code == "OPEN_TRANSACTION"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """A group in one partition of the target; offsets are -1 where they are not known."""

    group: str
    topic: str
    partition: int
    at: int
    """Where it stands; -1: it has committed nothing there."""
    resumes_at: int
    """By its newest checkpoint."""
    end: int
    """Of the copy."""
    why_not_exact: str
    """Why it would not resume at exactly the next record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSnapshot:
    """One flow now."""

    flow: str
    state: FlowState
    reason: str
    guarantee: str
    generation: int
    lanes: int
    since_ms: int
    """Since when its state holds; of one that does not run, when it last began, or 0."""
    partitions: tuple[PartitionSnapshot, ...]
    code: str = ""
    """Of the error that ended the flow, or keeps it from beginning."""
    next_try_ms: int = 0
    """When that is tried again; 0: it is tried now, or by its lanes."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """How often each code came up in this process."""
    skipped_groups: Mapping[str, str] = field(default_factory=dict)
    """Groups whose offsets on the target are left as they are, with the reason."""
    groups_without_checkpoint: Mapping[str, str] = field(default_factory=dict)
    """Selected groups that find nothing on the target to resume from, with the reason."""
    loss_records: int = -1
    """Offsets of the source that are not on the target, of partitions where that is known."""
    loss_ms: int = -1
    """How long ago everything that the source had was last on the target, of the partition where
    that is longest; -1: not known of any.
    """
    loss_unknown: int = 0
    """Partitions of which neither is known."""
    source_problem: str = ""
    """Why the source could not be asked, where the target alone was."""
    groups: tuple[GroupPosition, ...] = ()
    """Where groups stand on the target, where the source could not be asked."""
    where: str = ""
    """The host and process that reported it, where that is not this one."""
    as_of_ms: int = 0
    """When it did, by its clock."""
    taken_ms: int = 0
    """When it was taken, by this host's clock; 0: just now."""
    rpo_ms: int = -1
    """twinlog.rpo.seconds; -1: none is set."""
    rpo_excess: str = ""
    """Why it is not kept."""
    held_rate: int | None = None
    """Bytes per second that each user may write to each broker of the source; None: no quota."""
    latency: Quantiles | None = None
    """Of all batches of the last minute when they were acknowledged, by the newest timestamp in
    each; None: there was none, or nobody leads it here."""
    lane_cpu_ms: int = 0
    """CPU that its lanes have used, as they say."""
    verified: Verified | None = None
    """What of the copy was compared with the source while it was made; None: twinlog.verify=off, or
    nobody leads it here."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Records per second by topic, over the last seconds; of others it is not known."""
    checkpoints: Callable[[], tuple[CheckpointTiming, ...]] = field(default=tuple, repr=False)
    """How long they take, asked only for `/metrics`: there may be very many."""
    error: TwinlogError | None = field(default=None, repr=False)
    """What `code` is of, in the process that has met it."""
    clusters: Callable[[], tuple[ClusterSettings, ...]] = field(default=tuple, repr=False)
    """How its clients enter both clusters; a question, so that no secret is in a value that is
    written.
    """

    def why(self, now_ms: int) -> str:
        """The reason, with when what failed is tried again."""
        return with_next_try(self.reason, self.next_try_ms, now_ms)

    def speaks_for(self, partition: PartitionSnapshot) -> bool:
        """Whether the partition's trouble is what the flow itself waits for."""
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
        """Records that wait, of partitions where that is known; -1: of none."""
        known = [p.lag for p in self.partitions if p.lag >= 0]
        return sum(known) if known else -1

    @property
    def lag_unknown(self) -> int:
        """Partitions where it is not."""
        return sum(p.lag < 0 for p in self.partitions)

    def as_json(self) -> dict[str, Any]:
        return self.head_as_json() | {"partitions": [*self.partitions_as_json()]}

    def head_as_json(self) -> dict[str, Any]:
        """All but its partitions, which may be very many."""
        value = asdict(replace(self, error=None, checkpoints=tuple, clusters=tuple, partitions=()))
        del value["error"], value["checkpoints"], value["clusters"], value["partitions"]
        return value

    def partitions_as_json(self) -> Iterator[dict[str, Any]]:
        """One after the other; `asdict` would take ten times as long."""
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


def with_next_try(reason: str, next_try_ms: int, now_ms: int) -> str:
    """A flow's reason, with the time until it is tried again where that is known."""
    if not next_try_ms:
        return reason
    return f"{reason}; next try in {duration(max(0, next_try_ms - now_ms) / 1000)}"
