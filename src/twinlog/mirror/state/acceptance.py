"""Accepted foreign records of a remote topic, as rows of the state topic.

An acceptance is an intent (`intents`) for one log, and cannot be revoked.

    key    ["flow", FLOW, "intent", "accept", TOPIC, TOPIC_ID, PARTITION, FIRST]
    value  {"v": 1, "ranges": [first, next, ...], "k": ..., "digest": ..., "who": ..., ...}

Topic and ID are those of the target: a re-created topic has different records. Writing a row twice
has no effect. An acceptance of more records of the same log from the same first record replaces it.
A release that does not know such rows starts nothing new (`STATE_CORRUPT`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from twinlog.mirror.accepted import Accepted
from twinlog.mirror.state.state_row import StateRow, row
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

ACCEPT: Final = "accept"


@row("intent", ACCEPT, key=("topic", "topic_id", "partition", "first"))
class WantedAcceptance(StateRow, frozen=True, kw_only=True):
    """One acceptance of foreign records, as an operator requested it."""

    topic: str
    """Name of the topic on the target."""
    topic_id: TopicId
    partition: int
    first: int
    ranges: tuple[int, ...]
    """First and next offset of each range."""
    k: int
    digest: int
    who: str
    at_ms: int
    reason: str

    def __post_init__(self) -> None:
        rises = all(before < after for before, after in pairwise(self.ranges))
        if len(self.ranges) % 2 or not rises or not 0 <= self.first == next(iter(self.ranges), -1):
            raise ValueError("its offsets are not valid ranges")

    @property
    def accepted(self) -> Accepted:
        ranges = tuple(zip(self.ranges[::2], self.ranges[1::2], strict=True))
        return Accepted(ranges=ranges, k=self.k, digest=self.digest)

    @property
    def record_key(self) -> tuple[str, str, int, int]:
        return self.topic, str(self.topic_id), self.partition, self.first

    def is_of(self, tp: TopicPartition, topic_id: str) -> bool:
        """Return whether it is for this log. Always False if brokers have no topic IDs."""
        known = self.topic_id != NO_TOPIC_ID and self.topic_id == topic_id
        return known and tp == (self.topic, self.partition)

    def __str__(self) -> str:
        suffix = f": {self.reason}" if self.reason else ""
        return f"{self.topic}-{self.partition} {self.accepted} by {self.who}{suffix}"
