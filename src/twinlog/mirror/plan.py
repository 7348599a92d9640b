"""One partition that a flow mirrors: its source and target, and the settings of its copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.mirror.map.offset_map import PartitionKey
from twinlog.model import TopicId, TopicPartition

FOREVER: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why the copy of a partition without a row in the offset map must not begin."""

    code: str
    message: str
    is_retriable: bool
    """Whether the cause can disappear, so that a later topic discovery may permit the copy."""


@dataclass(frozen=True, slots=True)
class PartitionPair:
    """A source partition and the target partition to which it is copied, identified by topic IDs,
    because a re-created topic is a different log.
    """

    source: TopicPartition
    target: TopicPartition
    source_topic_id: TopicId
    target_topic_id: TopicId

    @property
    def map_key(self) -> PartitionKey:
        """Key of this pair's rows in the offset map; for a keyed topic, without the branch."""
        return PartitionKey(self.source_topic_id, self.target_topic_id, self.source.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan(PartitionPair):
    """A partition to be mirrored, as topic discovery found it."""

    limit_bytes: int
    has_log_append_time: bool | None = False
    """Whether the target topic has LogAppendTime, or None if its configs could not be read."""
    may_reject_records: bool = False
    """Whether the target topic may reject single records for a reason other than their size."""
    compresses: bool = False
    """Whether the target's brokers recompress batches, which may make a batch too large."""
    targets: int = 0
    """Number of target partitions for distribution by key, or 0 if all records go to `target`."""
    producer_id: int = -1
    """Producer ID that only this source partition of a keyed topic uses, or -1 for other topics."""
    transform: str = ""
    """Digest of the topic's transforms, in hex, or empty if its records are copied unchanged."""
    end: int = FOREVER
    is_new: bool = False
    """Whether the partition was created after the flow's first topic discovery
    (`survey.newcomers`).
    """
    had_row: bool = False
    """Whether a row of the state topic shows that the offset map once had a row of this copy
    (`mirror.state.copies`).
    """
    begin_at: int = -1
    """Upstream offset where the copy begins if the map has no row of it, or -1 to begin as
    configured.
    """
    refusal: Refusal | None = None
    """The reason why the copy must not begin if the offset map has no row of it, or None. For
    example, MirrorMaker 2 copied the partition before this flow (`control.adopt.adoption`).
    """

    @property
    def may_begin_later(self) -> bool:
        """Whether the copy is refused now, but a later topic discovery may permit it."""
        return self.refusal is not None and self.refusal.is_retriable
