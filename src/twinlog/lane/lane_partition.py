"""The state of one partition in a lane, from its Take to Released or Troubled, and the events that
the parts of a lane report about it. `assignments` reacts to them.

Its state on the two clusters is in separate classes: `SourceState` and `TargetState`.
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
    """Called in the lane's own thread, immediately and without a queue."""

    def on_started(self, take: TakePartition, result: StartResult) -> None:
        """The start point was found, or the reason why there is none."""

    def on_arrived(self, copy: Copy) -> None:
        """More records of the source were read, or the end of its log has moved."""

    def on_jumped(self, tp: TopicPartition, jumps: Iterable[tuple[int, int]]) -> None:
        """The source returned no records for these offsets: [first, next)."""

    def on_durable(self, copy: PartitionCopy) -> None:
        """A row of the copy's map is on the target."""

    def on_answered(self, copy: PartitionCopy) -> None:
        """The target has responded to a batch of the copy, or will never respond to it."""

    def on_writer_known(self, copy: PartitionCopy) -> None:
        """The writer of the foreign records before the copy's last batch is known, so the copy may
        send again.
        """

    def on_troubled(self, tp: TopicPartition, error: TwinlogError) -> None:
        """The source partition cannot be read any further."""

    def on_map_failed(self, copy: PartitionCopy, error: PartitionError) -> None:
        """A row of the map was rejected permanently, or could not be written for some seconds."""

    def on_expiry_changed(self, expiry_ms: int) -> None:
        """The time after which the target forgets a producer ID has changed, for all partitions."""


class StartPhase(Enum):
    """The phases of a partition until its start point is known."""

    __hash__ = object.__hash__  # faster than Enum's: the members are keys on every turn

    LEADERLESS = auto()
    """The partition has no leader. It is given back at `until`."""
    WAITING = auto()
    """It waits until a search can begin."""
    SEARCHED = auto()
    """A search is running."""
    DELAYED = auto()
    """It is searched again at `until`, because late requests may change the result."""
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
    """When the phase ends, for phases with a time limit."""
    late_until: float = 0.0
    """End of the time in which requests of the partition's earlier holder may arrive."""
    lane_until: float = 0.0
    """End of the time in which the lane that held the partition may send, if it is alive."""
    searched_at: float | None = None
    """When the last search began, or None. The search may have missed what was written since."""
    is_long: bool = False
    """Whether the search needs more reads than a common search may make (`LongSearch`)."""

    @property
    def may_have_missed(self) -> bool:
        """Whether late requests may arrive after the last search began, or after the hand-over."""
        return self.late_until > (self.searched_at or 0.0)

    @property
    def has_old_lane(self) -> bool:
        """Whether an earlier lane that is alive may have sent something since the last search."""
        return self.lane_until > (self.searched_at or 0.0)

    @property
    def next_end(self) -> float:
        """When the next of the two waits ends: first the lane's, then that of its requests."""
        return self.lane_until or self.late_until


@dataclass(slots=True)
class LanePartition:
    start: ColdStart
    copy: Copy | None = None
    """The running copy, or None until the start point is found."""
    is_done: bool = False
    """Whether the partition leaves because its end (`--once`) is reached."""
    reported: PartitionProgress | None = None
    """The last progress reported to the driver."""
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges that the source had deleted before the start point, until they are reported."""

    @property
    def take(self) -> TakePartition:
        return self.start.take
