"""Events that the parts of a lane report about a partition. `assignments` decides what follows."""

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
    """Called in the lane's own thread, immediately and without a queue."""

    def started(self, take: TakePartition, found: Found) -> None:
        """The start point was found, or the reason why there is none."""

    def arrived(self, copy: Copy) -> None:
        """More records of the source were read, or its end has moved."""

    def jumped(self, tp: TopicPartition, jumps: Iterable[tuple[int, int]]) -> None:
        """A response of the source continued after these missing offsets: [first, next)."""

    def durable(self, copy: PartitionCopy) -> None:
        """A row of its map is on the target."""

    def answered(self, copy: PartitionCopy) -> None:
        """The target has answered a batch of it, or never will."""

    def known(self, copy: PartitionCopy) -> None:
        """The writer of the records before its last batch is known: it may send again."""

    def troubled(self, tp: TopicPartition, error: TwinlogError) -> None:
        """No more of its source can be read."""

    def map_failed(self, copy: PartitionCopy, error: PartitionError) -> None:
        """A row was rejected permanently, or could not be written for some seconds."""

    def expiry_changed(self, expiry_ms: int) -> None:
        """The time after which the target forgets a producer has changed, for all partitions."""
