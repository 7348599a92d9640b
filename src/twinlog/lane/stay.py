"""The state of one partition in a lane, from its Take to Released or Troubled.

Its state on the two clusters is in separate values: `SourceState` and `TargetState`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from twinlog.lane.messages import PartitionProgress, TakePartition
from twinlog.mirror.copy.fan_out import Copy


class StartPhase(Enum):
    """The phases of a partition on the way to a start point."""

    LEADERLESS = auto()
    """It has no leader. It is given back at `until`."""
    WAITING = auto()
    """It waits for a free search."""
    SEARCHED = auto()
    """A search is running."""
    DELAYED = auto()
    """It is searched again at `until`: late requests may move the result."""
    FOUND = auto()
    """Found, or handed over with its start point."""
    LEFT = auto()
    """The lane does not have it any more."""


@dataclass(slots=True)
class ColdStart:
    """The state of a partition's start. Times are monotonic, in seconds."""

    take: TakePartition
    phase: StartPhase = StartPhase.FOUND
    until: float = 0.0
    """When the phase ends, for phases with a time limit."""
    late_until: float = 0.0
    """Until when requests of an earlier holder may arrive."""
    lane_until: float = 0.0
    """Until when its lane may send, if it is alive."""
    searched_at: float | None = None
    """When the last search began. It may have missed later writes."""
    is_long: bool = False
    """Whether its search turned out to be long."""

    @property
    def may_have_missed(self) -> bool:
        """Whether late requests may arrive after its search began, or after it was handed over."""
        return self.late_until > (self.searched_at or 0.0)

    @property
    def has_old_lane(self) -> bool:
        """Whether an earlier lane, if alive, may have sent something after its search began."""
        return self.lane_until > (self.searched_at or 0.0)

    @property
    def next_end(self) -> float:
        """When the first of the two waits that still last ends."""
        return self.lane_until or self.late_until


@dataclass(slots=True)
class Stay:
    """One partition, started or not."""

    start: ColdStart
    copy: Copy | None = None
    """None: its start point is not found yet."""
    is_done: bool = False
    """Whether it leaves because it has reached its end."""
    reported: PartitionProgress | None = None
    """The last progress reported to the driver."""
    lost: tuple[tuple[int, int], ...] = ()
    """Records that the source had lost before the start point, until they are reported."""

    @property
    def take(self) -> TakePartition:
        return self.start.take
