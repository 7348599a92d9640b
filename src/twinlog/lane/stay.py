"""What a lane knows of one partition, from its Take to Released or Troubled.

Its two sides have a value each of their own beside it: `SourceState` and `TargetState`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from twinlog.lane.messages import PartitionProgress, TakePartition
from twinlog.mirror.copy.fan_out import Copy


class StartPhase(Enum):
    """Where a partition is on its way to a start point."""

    LEADERLESS = auto()
    """Nobody leads it; `until` it is given back."""
    WAITING = auto()
    """For a search that has room."""
    SEARCHED = auto()
    """A search is under way."""
    DELAYED = auto()
    """`until` it is searched again: late requests may move what was found."""
    FOUND = auto()
    """Or handed over with its start point."""
    LEFT = auto()
    """The lane does not have it any more."""


@dataclass(slots=True)
class ColdStart:
    """What is known of a partition's start; times are monotonic, in seconds."""

    take: TakePartition
    phase: StartPhase = StartPhase.FOUND
    until: float = 0.0
    """When a phase ends that time ends."""
    late_until: float = 0.0
    """Until then requests of an earlier holder may arrive."""
    lane_until: float = 0.0
    """Until then its lane may send, if it lives."""
    searched_at: float | None = None
    """When the last search began; what came since was perhaps not seen."""
    is_long: bool = False
    """Its search was found to be long."""

    @property
    def may_have_missed(self) -> bool:
        """Late requests may arrive after its search began, or after it was handed over."""
        return self.late_until > (self.searched_at or 0.0)

    @property
    def has_old_lane(self) -> bool:
        """An earlier lane may have sent something after its search began, if that lane lives."""
        return self.lane_until > (self.searched_at or 0.0)

    @property
    def next_end(self) -> float:
        """When the first of the two waits ends that still last."""
        return self.lane_until or self.late_until


@dataclass(slots=True)
class Stay:
    """One partition, started or not."""

    start: ColdStart
    copy: Copy | None = None
    """None: its start point is not found yet."""
    is_done: bool = False
    """It leaves because it has come to its end."""
    reported: PartitionProgress | None = None
    """What the driver heard last."""
    lost: tuple[tuple[int, int], ...] = ()
    """What the source had lost before the start point, as long as it is not reported."""

    @property
    def take(self) -> TakePartition:
        return self.start.take
