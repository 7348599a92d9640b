"""One partition that a flow mirrors: its source and target, and the rules that apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.mirror.map.offset_map import PartitionKey
from twinlog.model import TopicId, TopicPartition

FOREVER: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a partition without a row in the offset map must not begin as a new one."""

    code: str
    message: str
    is_retriable: bool
    """Whether a later topic discovery may find that the cause is gone."""


@dataclass(frozen=True, slots=True)
class PartitionPair:
    """A source partition and the target partition to which it is copied, identified by topic IDs: a
    re-created topic is another log.
    """

    source: TopicPartition
    target: TopicPartition
    source_topic_id: TopicId
    target_topic_id: TopicId

    @property
    def map_key(self) -> PartitionKey:
        """Key of its rows in the offset map; for a keyed topic, its branches' common part."""
        return PartitionKey(self.source_topic_id, self.target_topic_id, self.source.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan(PartitionPair):
    """A partition to be mirrored, as topic discovery found it."""

    limit_bytes: int
    stamps_own_time: bool | None = False
    """Whether the target topic has LogAppendTime; None if its configs may not be read."""
    is_picky: bool = False
    """Whether the target topic may reject single records for another reason than their size."""
    compresses: bool = False
    """Whether the target recompresses batches, and may then reject them as too large."""
    targets: int = 0
    """Number of target partitions for records by key; 0: all records go to `target`."""
    producer_id: int = -1
    """Producer ID of a keyed topic's source partition, which no other one uses."""
    transform: str = ""
    """Digest of the topic's transforms, in hex; empty: its records are copied unchanged."""
    end: int = FOREVER
    is_new: bool = False
    """Whether it was created while this process ran the flow."""
    had_row: bool = False
    """Whether the state topic has a record that this copy had a row in the offset map
    (`mirror.state.copies`).
    """
    begin_at: int = -1
    """Upstream offset at which a partition begins that was never copied; -1: as configured."""
    refusal: Refusal | None = None
    """Why its copy must not begin if the offset map has no row of it: a MirrorMaker 2 copied it
    before (`control.adopt.adoption`).
    """

    @property
    def may_pass(self) -> bool:
        """Whether a later topic discovery may permit the copy to begin."""
        return self.refusal is not None and self.refusal.is_retriable
