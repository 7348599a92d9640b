"""What a cold start asks of the two clusters; the lane gives it the real ones.

Every call takes many partitions and answers per partition, so that a thousand cold starts cost a
handful of requests. A partition without an answer is simply missing from the result; its reason is
in `problems`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.model import Isolation, StartAt, TopicId, TopicPartition

T = TypeVar("T")

READ_BYTES: Final = 1 << 20
"""What a look reads at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The three offsets of a log, and its leader epoch (-1 when unknown)."""

    log_start: int
    high_watermark: int
    log_end: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTail:
    """What the target remembers of our producer id in one partition."""

    last_sequence: int
    last_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecords:
    """Batches as fetched, with what the broker said beside them."""

    records: memoryview
    high_watermark: int
    """Consumers read below it only: an empty answer says nothing of what lies above."""


class LogView(Protocol):
    """One cluster's logs, to be read."""

    problems: dict[TopicPartition, TwinlogError]

    def topic_ids(self, topics: set[str]) -> Mapping[str, TopicId]:
        """Ids of the topics that exist (the zero id where the broker has none)."""

    def ends(self, tps: set[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        """Log start, high watermark and log end (OffsetForLeaderEpoch with the current epoch)."""

    def begins(
        self, starts: Mapping[TopicPartition, StartAt], *, isolation: Isolation
    ) -> Mapping[TopicPartition, int]:
        """Where a reader would begin (ListOffsets): at the end where no record is so new."""

    def read(
        self, offsets: Mapping[TopicPartition, int], *, size: int = READ_BYTES
    ) -> Mapping[TopicPartition, RawRecords]:
        """About `size` bytes of whole batches from each offset on, transactions ignored."""

    def producers(
        self, tps: set[TopicPartition], producer_id: int
    ) -> Mapping[TopicPartition, ProducerTail] | None:
        """Our state where the broker lists it; None when it may not be asked (no right, no such
        API).
        """


def answer_of(
    answers: Mapping[TopicPartition, T],
    tp: TopicPartition,
    view: LogView,
    missing: str = "its leader does not answer for it",
) -> T:
    """The partition's answer. Raises why there is none: NO_LEADER where nothing else is known."""
    found = answers.get(tp)
    if found is not None:
        return found
    raise view.problems.get(tp) or PartitionError(
        f"{tp}: {missing}", code="NO_LEADER", fate=Fate.RETRIABLE
    )
