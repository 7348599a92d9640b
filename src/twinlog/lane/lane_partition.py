"""The state of one partition in a lane, from the message Take to Released or Troubled, and the
events of partitions, to which `assignments` reacts.

The state of the partition on the two clusters is in separate classes, `SourceState` and
`TargetState`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from twinlog.errors import PartitionError, TwinlogError
from twinlog.lane.messages import PartitionProgress, TakePartition
from twinlog.mirror.copy.fan_out import Copy
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.start.fan_start import FanStart
from twinlog.mirror.start_point import StartPoint
from twinlog.model import TopicPartition

StartResult = StartPoint | FanStart | TwinlogError


class LaneEvents(Protocol):
    """Events of partitions, called in the lane's own thread, immediately and without a queue."""

    def on_started(self, take: TakePartition, result: StartResult) -> None:
        """The search has ended with a start point, or with the error that prevents the start."""

    def on_arrived(self, copy: Copy) -> None:
        """More source records were read, or the end of the source's log has moved."""

    def on_jumped(self, tp: TopicPartition, jumps: Iterable[tuple[int, int]]) -> None:
        """The source returned no records for these upstream ranges [first, next)."""

    def on_durable(self, copy: PartitionCopy) -> None:
        """A row of the copy's map is on the target."""

    def on_answered(self, copy: PartitionCopy) -> None:
        """The target has responded to a batch of the copy, or will never respond to it."""

    def on_writer_known(self, copy: PartitionCopy) -> None:
        """The writer of the foreign records before the copy's last batch is known, so the copy can
        send again.
        """

    def on_troubled(self, tp: TopicPartition, error: TwinlogError) -> None:
        """The source partition cannot be read from the copy's position on."""

    def on_map_failed(self, copy: PartitionCopy, error: PartitionError) -> None:
        """A row of the map was rejected permanently, or could not be written for some seconds."""

    def on_expiry_changed(self, expiry_ms: int) -> None:
        """The time after which the target forgets a producer ID has changed, for all partitions."""


class StartPhase(Enum):
    """The phases of a partition until its start point is known."""

    __hash__ = object.__hash__  # faster than Enum's hash; the members are dict keys on every turn

    LEADERLESS = auto()
    """The partition has no leader, and is given back to the driver if it has none until `until`."""
    WAITING = auto()
    """The partition waits until a search can begin."""
    SEARCHED = auto()
    """The partition's start point is being searched."""
    DELAYED = auto()
    """The start point is searched again at `until`, because late requests may change it."""
    FOUND = auto()
    """The start point was found, or was handed over."""
    ABANDONED = auto()
    """The partition has left the lane."""


@dataclass(slots=True)
class ColdStart:
    """The state of a partition's start. Times are monotonic, in seconds."""

    take: TakePartition
    phase: StartPhase = StartPhase.FOUND
    until: float = 0.0
    """When the phase ends, if the phase has a time limit."""
    late_until: float = 0.0
    """Time until which requests of the partition's earlier lane may arrive; 0 if none can."""
    lane_until: float = 0.0
    """Time until which the partition's earlier lane, if alive, may send; 0 if it cannot."""
    searched_at: float | None = None
    """When the last search began, or None. The search may have missed records written later."""
    is_long: bool = False
    """True if the partition needs a search of its own, with many reads (`LongSearch`)."""

    @property
    def may_have_missed(self) -> bool:
        """True if the last search, or the hand-over, may have missed late requests."""
        return self.late_until > (self.searched_at or 0.0)

    @property
    def has_old_lane(self) -> bool:
        """True if an earlier lane that is still alive may have sent after the last search began."""
        return self.lane_until > (self.searched_at or 0.0)

    @property
    def next_end(self) -> float:
        """When the next wait ends: `lane_until`, or `late_until` once `lane_until` is over."""
        return self.lane_until or self.late_until


@dataclass(slots=True)
class LanePartition:
    start: ColdStart
    copy: Copy | None = None
    """The running copy, or None until the start point is found."""
    is_done: bool = False
    """True if the partition leaves the lane because its end (`--once`) is reached."""
    reported: PartitionProgress | None = None
    """The last progress reported to the driver."""
    lost: tuple[tuple[int, int], ...] = ()
    """Upstream ranges before the start point that were deleted uncopied; cleared once reported."""

    @property
    def take(self) -> TakePartition:
        return self.start.take
