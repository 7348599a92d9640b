"""One partition that a flow mirrors: which source partition goes where, and by which rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.mirror.map.offset_map import PartitionKey
from twinlog.model import TopicId, TopicPartition

FOREVER: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a partition that has no row in the offset map must not begin as a new one."""

    code: str
    message: str
    is_retriable: bool
    """It may pass: topics are looked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A source partition and the target partition that it is copied to, each of one topic of its
    name: whoever speaks of both is one.
    """

    source: TopicPartition
    target: TopicPartition
    source_topic_id: TopicId
    target_topic_id: TopicId

    @property
    def map_key(self) -> PartitionKey:
        """Its rows in the offset map; of a copy by key, those of all its branches."""
        return PartitionKey(self.source_topic_id, self.target_topic_id, self.source.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan(Pairing):
    """One partition that is to be mirrored, as topic discovery found it."""

    limit_bytes: int
    stamps_own_time: bool | None = False
    """The target topic says LogAppendTime; None when its configs may not be read."""
    is_picky: bool = False
    """The target topic may refuse single records for another reason than their size."""
    compresses: bool = False
    """The target recompresses what comes with another codec: it may find that too large."""
    targets: int = 0
    """Among how many target partitions its records go by key; 0: all go to `target`."""
    producer_id: int = -1
    """Under which they are written then: of this source partition alone."""
    end: int = FOREVER
    is_new: bool = False
    """It was made while this process ran the flow."""
    had_row: bool = False
    """The state topic knows that its copy had a row in the offset map (`mirror.state.mapped`)."""
    begin_at: int = -1
    """Upstream offset at which a partition starts that was never copied; -1: as configured."""
    refusal: Refusal | None = None
    """It was copied before, by a MirrorMaker 2 (`control.adopt.take_over`)."""

    @property
    def may_pass(self) -> bool:
        """A look for topics may find that it may begin."""
        return self.refusal is not None and self.refusal.is_retriable
