"""Records to skip, as rows of the state topic.

A skip is an intent (`intents`) for one record, and cannot be revoked.

    key    ["flow", FLOW, "intent", "skip", TOPIC, TOPIC_ID, PARTITION, FIRST]
    value  {"v": 1, "next": ..., "is_batch": ..., "code": ..., "who": ..., "at_ms": ..., ...}

The key is the position, with the topic's ID: nothing of a re-created topic is skipped. Writing a
row twice has no effect, and two operators who skip the same record want the same. The row stays as
long as the state topic exists: every later reader of that part of the source (a new leader, a new
remote topic, a rebuild of the map) skips the same records.

A release that does not know such rows starts nothing new (`STATE_CORRUPT`): it would stop at the
record, or copy it, and another record would have its ordinal.
"""

from __future__ import annotations

from typing import Final

from twinlog.mirror.skips import Skip
from twinlog.mirror.state.state_row import StateRow, row
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

SKIP: Final = "skip"


@row("intent", SKIP, key=("topic", "topic_id", "partition", "first"))
class WantedSkip(StateRow, frozen=True, kw_only=True):
    """One skip of records, as an operator requested it."""

    topic: str
    """Name of the topic on the source."""
    topic_id: TopicId
    partition: int
    first: int
    next: int
    is_batch: bool
    code: str
    """Code with which the partition had stopped there."""
    who: str
    at_ms: int
    reason: str

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.next:
            raise ValueError("its offsets are not a valid range")

    @property
    def skip(self) -> Skip:
        return Skip(first=self.first, next=self.next, is_batch=self.is_batch)

    @property
    def record_key(self) -> tuple[str, str, int, int]:
        return self.topic, str(self.topic_id), self.partition, self.first

    def is_of(self, tp: TopicPartition, topic_id: str) -> bool:
        """Return whether it is for a record of this partition."""
        known = NO_TOPIC_ID in (self.topic_id, topic_id) or self.topic_id == topic_id
        return known and tp == (self.topic, self.partition)

    def __str__(self) -> str:
        suffix = f": {self.reason}" if self.reason else ""
        return f"{self.topic}-{self.partition} {self.skip} [{self.code}] by {self.who}{suffix}"
