"""The lanes of an in-memory flow, and their requests in flight."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tests.support.memory_log import Answer
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.map.offset_map import ChunkRow, Run

__all__ = ["Lane", "Late", "LivingLane"]


@dataclass(slots=True)
class Lane:
    """The partition's current lane. Its requests arrive at the target in order."""

    copy: PartitionCopy
    requests: deque[bytes] = field(default_factory=deque)
    answers: deque[Answer] = field(default_factory=deque)
    rows: list[tuple[ChunkRow, Run]] = field(default_factory=list)
    """Map rows in flight, each with its last run."""


@dataclass(slots=True)
class Late:
    """Requests of a broken connection. They may still arrive, in order."""

    until_ms: int
    requests: deque[bytes]
    rows: list[ChunkRow]
    is_of_living: bool = False


@dataclass(slots=True)
class LivingLane:
    """A lane that the driver considers dead. It copies until it stops by itself."""

    lane: Lane
    until_ms: int
