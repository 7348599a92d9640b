"""Events that the parts of a lane report about a partition. `assignments` reacts to them."""

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
        """More records of the source were read, or the end of its log has moved."""

    def jumped(self, tp: TopicPartition, jumps: Iterable[tuple[int, int]]) -> None:
        """The source returned no records for these offsets: [first, next)."""

    def durable(self, copy: PartitionCopy) -> None:
        """A row of the copy's map is on the target."""

    def answered(self, copy: PartitionCopy) -> None:
        """The target has responded to a batch of the copy, or will never respond to it."""

    def known(self, copy: PartitionCopy) -> None:
        """The writer of the foreign records before the copy's last batch is known, so the copy may
        send again.
        """

    def troubled(self, tp: TopicPartition, error: TwinlogError) -> None:
        """The source partition cannot be read any further."""

    def map_failed(self, copy: PartitionCopy, error: PartitionError) -> None:
        """A row of the map was rejected permanently, or could not be written for some seconds."""

    def expiry_changed(self, expiry_ms: int) -> None:
        """The time after which the target forgets a producer ID has changed, for all partitions."""
