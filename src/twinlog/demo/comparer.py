"""Compares two logs record by record while both grow, in bounded memory.

For each partition, the records of both sides are paired in order of arrival. They must be equal in
key, value, headers (with order, duplicates and null values) and timestamp. So lost, duplicated and
reordered records all show as a difference at that place. Records that only one side has so far wait
in a short queue; a side with a full queue must not be read further (`has_room`).

It does not use Kafka or the mirror's code, so that it cannot share a bug with the code it checks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

QUEUE_RECORDS: Final = 20_000
"""Per partition: some seconds of the demo's stream; about 20 MB when full."""

KEPT_DIFFERENCES: Final = 10


class LogSide(StrEnum):
    """The two logs."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRecord:
    """A record as a consumer sees it; offsets may differ and are only used in messages."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The first difference between the two logs of a partition."""

    topic: str
    partition: int
    source_offset: int
    target_offset: int
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: source offset {self.source_offset} and target offset "
            f"{self.target_offset} differ in {', '.join(self.fields)}"
        )


@dataclass(slots=True)
class _Pair:
    """One partition: at most one of the queues has records."""

    waiting: dict[LogSide, deque[SeenRecord]] = field(
        default_factory=lambda: {side: deque() for side in LogSide}
    )
    compared: int = 0
    differs: bool = False


class Comparer:
    """Pairs the records of both sides, partition by partition."""

    def __init__(self, *, queue_records: int = QUEUE_RECORDS) -> None:
        self._pairs: dict[tuple[str, int], _Pair] = {}
        self._queue_records = queue_records
        self.differences: list[FirstDifference] = []
        self.compared = 0
        self.equal = 0

    def see(self, side: LogSide, topic: str, partition: int, record: SeenRecord) -> None:
        """Add the next record of one side; `topic` is the source's name for both sides."""
        pair = self._pairs.setdefault((topic, partition), _Pair())
        other = pair.waiting[LogSide.TARGET if side is LogSide.SOURCE else LogSide.SOURCE]
        if not other:
            pair.waiting[side].append(record)
            return
        source, target = (record, other.popleft())
        if side is LogSide.TARGET:
            source, target = target, source
        self._compare(pair, topic, partition, source, target)

    def has_room(self, side: LogSide, topic: str, partition: int) -> bool:
        """Return whether more of this side may be read before the other side catches up."""
        pair = self._pairs.get((topic, partition))
        return pair is None or len(pair.waiting[side]) < self._queue_records

    def waiting(self, side: LogSide) -> int:
        """Return the number of records of one side that the other side does not have yet."""
        return sum(len(pair.waiting[side]) for pair in self._pairs.values())

    @property
    def is_identical(self) -> bool:
        """True if there is no difference so far. At the end, no record may wait either
        (`is_complete`).
        """
        return not self.differences

    @property
    def is_complete(self) -> bool:
        """True if every record of either side has an equal counterpart."""
        return self.is_identical and not any(self.waiting(side) for side in LogSide)

    def _compare(
        self, pair: _Pair, topic: str, partition: int, source: SeenRecord, target: SeenRecord
    ) -> None:
        pair.compared += 1
        self.compared += 1
        fields = differing_fields(source, target)
        if not fields:
            self.equal += 1
            return
        # after one lost record all later ones differ as well, so only the first place helps
        if not pair.differs and len(self.differences) < KEPT_DIFFERENCES:
            self.differences.append(
                FirstDifference(
                    topic=topic,
                    partition=partition,
                    source_offset=source.offset,
                    target_offset=target.offset,
                    fields=fields,
                )
            )
        pair.differs = True


def differing_fields(source: SeenRecord, target: SeenRecord) -> tuple[str, ...]:
    """Return the names of the fields that differ."""
    names = ("key", "value", "headers", "timestamp", "timestamp_type")
    return tuple(name for name in names if getattr(source, name) != getattr(target, name))
