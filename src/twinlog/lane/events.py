"""What the parts of a lane say of a partition; `assignments` decides what follows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from twinlog.errors import PartitionError, TwinlogError
from twinlog.lane.messages import TakePartition
from twinlog.mirror.copy.fan_out import Copy
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.start.fan_start import FanStart
from twinlog.mirror.start_point import StartPoint
from twinlog.model import TopicPartition

Found = StartPoint | FanStart | TwinlogError


class LaneEvents(Protocol):
    """All in the lane's own thread, and each at once: nobody queues them."""

    def started(self, take: TakePartition, found: Found) -> None:
        """Its start point was found, or why there is none."""

    def arrived(self, copy: Copy) -> None:
        """More of its source was read, or how far it goes."""

    def jumped(self, tp: TopicPartition, jumps: Iterable[tuple[int, int]]) -> None:
        """An answer of its source continued behind these offsets: [first, next)."""

    def durable(self, copy: PartitionCopy) -> None:
        """A row of its map is on the target."""

    def answered(self, copy: PartitionCopy) -> None:
        """The target has answered a batch of it, or will not."""

    def known(self, copy: PartitionCopy) -> None:
        """Whose the records before its last batch are: it may send again."""

    def troubled(self, tp: TopicPartition, error: TwinlogError) -> None:
        """Nothing more of its source can be read."""

    def map_failed(self, copy: PartitionCopy, error: PartitionError) -> None:
        """A row was refused for good, or cannot be written for some seconds."""

    def expiry_changed(self, expiry_ms: int) -> None:
        """For all: after so long the target forgets a producer now."""
