"""What a cold start reads from both clusters. The lane implements it (`lane.sides.log_view`).

Every call is for many partitions and returns a result for each, so that a thousand cold starts cost
a handful of requests. A partition without a result is missing, and `problems` has the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.model import Isolation, StartAt, TopicId, TopicPartition

T = TypeVar("T")

READ_BYTES: Final = 1 << 20
"""Bytes per read of a start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The three offsets of a log, and its leader epoch (-1 if unknown)."""

    log_start: int
    high_watermark: int
    log_end: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTail:
    """The target's state of this flow's producer ID in one partition."""

    last_sequence: int
    last_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecords:
    """Fetched batches and the high watermark of the response."""

    records: memoryview
    high_watermark: int
    """Fetches return only records below it, so an empty response does not mean that the log is
    empty above it.
    """


class LogView(Protocol):
    """Read access to one cluster's logs."""

    problems: dict[TopicPartition, TwinlogError]

    def topic_ids(self, topics: set[str]) -> Mapping[str, TopicId]:
        """Return the IDs of the topics that exist (the zero ID if the broker has none)."""

    def ends(self, tps: set[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        """Return log start, high watermark and log end (OffsetForLeaderEpoch, current epoch)."""

    def begins(
        self, starts: Mapping[TopicPartition, StartAt], *, isolation: Isolation
    ) -> Mapping[TopicPartition, int]:
        """Return where a reader would begin (ListOffsets): the end if no record is as new."""

    def read(
        self, offsets: Mapping[TopicPartition, int], *, size: int = READ_BYTES
    ) -> Mapping[TopicPartition, RawRecords]:
        """Return about `size` bytes of whole batches from each offset on, whatever transactions
        they belong to.
        """

    def producers(
        self, tps: set[TopicPartition], producer_id: int
    ) -> Mapping[TopicPartition, ProducerTail] | None:
        """Return the producer states that the broker lists, or None if they cannot be queried (no
        permission, no such API).
        """


def answer_of(
    answers: Mapping[TopicPartition, T],
    tp: TopicPartition,
    view: LogView,
    missing: str = "its leader does not answer for it",
) -> T:
    """Return the partition's result. Raises its problem, or NO_LEADER if no problem is known."""
    answer = answers.get(tp)
    if answer is not None:
        return answer
    raise view.problems.get(tp) or PartitionError(
        f"{tp}: {missing}", code="NO_LEADER", fate=Fate.RETRIABLE
    )
