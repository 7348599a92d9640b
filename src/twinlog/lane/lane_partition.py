"""The state of one partition in a lane, from the message Take to Released or Troubled, and the
events of partitions, to which `assignments` reacts.

How the partition is read and written is in separate classes, `sides.source_side.SourceState` and
`sides.target_side.TargetState`.
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
from twinlog.mirror.start_point import StartPoint
from twinlog.model import TopicPartition

Start = StartPoint | tuple[StartPoint, ...]
"""The start point of a partition, or those of all branches of a fan, in the order of `Fan`."""
StartResult = Start | TwinlogError


class LaneEvents(Protocol):
    """Events of partitions, called in the lane's own thread, immediately and without a queue."""

    def on_started(self, take: TakePartition, result: StartResult) -> None:
        """The search has ended with a start point, or with the error that prevents the start."""

    def on_arrived(self, copy: Copy) -> None:
        """More source records were read, or the end of the source's log has moved."""

    def on_jumped(self, tp: TopicPartition, jumps: Iterable[tuple[int, int]]) -> None:
        """The source returned no records for these upstream ranges [first, next)."""

    def on_durable(self, copy: PartitionCopy) -> None:
        """A row that the copy announced to the offset map is durable."""

    def on_answered(self, copy: PartitionCopy) -> None:
        """The target has responded to a batch of the copy, or will never respond to it."""

    def on_writer_known(self, copy: PartitionCopy) -> None:
        """It is known who wrote the foreign records before the copy's last batch, so the copy can
        send again.
        """

    def on_troubled(self, tp: TopicPartition, error: TwinlogError) -> None:
        """The source partition cannot be read from the copy's position on."""

    def on_map_failed(self, copy: PartitionCopy, error: PartitionError) -> None:
        """A row of the map was rejected permanently, or could not be written for some seconds."""

    def on_expiry_changed(self, expiry_ms: int) -> None:
        """The target's `producer.id.expiration.ms` has changed, which concerns all partitions."""


class StartPhase(Enum):
    """The phases of a partition until its start point is known."""

    __hash__ = object.__hash__  # faster than Enum's hash; the members are dict keys on every turn

    LEADERLESS = auto()
    """The partition has no leader. If it still has none at `until`, it is given back to the
    driver.
    """
    WAITING = auto()
    """The partition waits until a search can begin."""
    SEARCHED = auto()
    """The partition's start point is being searched."""
    DELAYED = auto()
    """The start point is searched again at `until`, because late requests of an earlier lane may
    change it.
    """
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
    """Time at which the phase ends; only for phases with a time limit."""
    late_until: float = 0.0
    """Time until which requests of the partition's earlier lane may arrive; 0 if none can
    arrive.
    """
    lane_until: float = 0.0
    """Time until which the partition's earlier lane, if it is still alive, may send; 0 if it has
    certainly stopped.
    """
    searched_at: float | None = None
    """Time at which the last search began, or None without a search. The search may have missed
    records that were written after this time.
    """
    is_long: bool = False
    """True if the partition needs a search of its own, with many reads (`LongSearch`)."""

    @property
    def may_have_missed(self) -> bool:
        """True if late requests may arrive after the last search began or, without a search, after
        the hand-over.
        """
        return self.late_until > (self.searched_at or 0.0)

    @property
    def has_old_lane(self) -> bool:
        """True if an earlier lane that is still alive may have sent after the last search began."""
        return self.lane_until > (self.searched_at or 0.0)

    @property
    def next_end(self) -> float:
        """Time at which the next wait ends: `lane_until` until it has passed, then `late_until`."""
        return self.lane_until or self.late_until


@dataclass(slots=True)
class LanePartition:
    start: ColdStart
    copy: Copy | None = None
    """The running copy, or None until the start point is found."""
    is_done: bool = False
    """True if the partition leaves the lane because the copy has reached its end (`--once`)."""
    reported: PartitionProgress | None = None
    """The last progress reported to the driver."""
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges [first, next) of upstream offsets before the start point that the source deleted
    before they were copied. Empty after they were reported to the driver.
    """

    @property
    def take(self) -> TakePartition:
        return self.start.take
