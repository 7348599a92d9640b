"""Read access to a cluster's logs for cold starts, implemented by the lane (`lane.sides.log_view`).

Every call queries many partitions, so that a thousand cold starts (`mirror.start`) cost a handful
of requests. The returned mapping lacks the partitions whose query failed, and `problems` has the
reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.model import Isolation, StartAt, TopicId, TopicPartition

T = TypeVar("T")

READ_BYTES: Final = 1 << 20
"""Approximate number of bytes per fetch of a cold start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The bounds of a partition's log, and the partition's leader epoch (-1 if unknown)."""

    log_start: int
    high_watermark: int
    log_end: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTail:
    """The leader's state of this flow's producer ID in one target partition."""

    last_sequence: int
    last_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecords:
    """Fetched batches, and the high watermark in the Fetch response."""

    records: memoryview
    high_watermark: int
    """Fetches return only records below the high watermark. So an empty response does not mean that
    the log has no records above it.
    """


class LogReader(Protocol):
    """What the search of one partition reads after its log ends are known."""

    problems: dict[TopicPartition, TwinlogError]

    def begins(
        self, starts: Mapping[TopicPartition, StartAt], *, isolation: Isolation
    ) -> Mapping[TopicPartition, int]:
        """Resolve starts by ListOffsets. A time after all records is resolved to the log's end."""

    def read(
        self, offsets: Mapping[TopicPartition, int], *, size: int = READ_BYTES
    ) -> Mapping[TopicPartition, RawRecords]:
        """Return about `size` bytes of whole batches from each offset on, including batches of open
        and aborted transactions.
        """


class LogView(LogReader, Protocol):
    """Read access to one cluster's logs."""

    def topic_ids(self, topics: set[str]) -> Mapping[str, TopicId]:
        """Return the IDs of existing topics. A broker without topic IDs has the zero ID for all."""

    def ends(self, tps: set[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        """Return each log's start and high watermark, and its end by OffsetForLeaderEpoch."""

    def producers(
        self, tps: set[TopicPartition], producer_id: int
    ) -> Mapping[TopicPartition, ProducerTail] | None:
        """Return the leader's state of a producer ID by partition. Partitions whose leader does not
        list the ID are left out. Return None if a missing permission or an old broker prevents the
        query.
        """


def answer_of(
    answers: Mapping[TopicPartition, T],
    tp: TopicPartition,
    view: LogReader,
    missing: str = "the partition's leader returned no result",
) -> T:
    """Return the result for `tp`. If it has none, raise its error in `view.problems` or, without
    one, a PartitionError (NO_LEADER) with the text `missing`.
    """
    answer = answers.get(tp)
    if answer is not None:
        return answer
    raise view.problems.get(tp) or PartitionError(
        f"{tp}: {missing}", code="NO_LEADER", fate=Fate.RETRIABLE
    )
