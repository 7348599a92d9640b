"""Who copies the partition of a flow in memory, and what of theirs is still on its way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tests.support.memory_log import Answer
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.map.offset_map import ChunkRow, Run

__all__ = ["Lane", "Late", "LivingLane"]


@dataclass(slots=True)
class Lane:
    """Who copies the partition now; what it has sent arrives in order."""

    copy: PartitionCopy
    requests: deque[bytes] = field(default_factory=deque)
    answers: deque[Answer] = field(default_factory=deque)
    rows: list[tuple[ChunkRow, Run]] = field(default_factory=list)
    """One round of the map, on its way."""


@dataclass(slots=True)
class Late:
    """What a connection that is gone had sent: it may still arrive, in its order."""

    until_ms: int
    requests: deque[bytes]
    rows: list[ChunkRow]
    is_of_living: bool = False


@dataclass(slots=True)
class LivingLane:
    """One that the driver thinks dead: it copies until it stops by itself."""

    lane: Lane
    until_ms: int
