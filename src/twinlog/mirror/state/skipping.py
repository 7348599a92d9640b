"""Records to skip, as rows of the state topic.

A skip is an intent (`intents`) for one record, and cannot be revoked.

    key    ["flow", FLOW, "intent", "skip", TOPIC, TOPIC_ID, PARTITION, FIRST]
    value  {"v": 1, "next": ..., "is_batch": ..., "code": ..., "who": ..., "at_ms": ..., ...}

The key is the position, with the topic's ID: nothing of a re-created topic is skipped. Writing a
row twice has no effect, and two people who skip the same record want the same. The row stays as
long as the state topic exists: every later reader of that part of the source (a new leader, a new
remote topic, a rebuild of the map) skips the same records.

A release that does not know such rows starts nothing new (`STATE_CORRUPT`): it would stop at the
record, or copy it where another record has its ordinal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from twinlog.errors import CorruptData
from twinlog.mirror.skips import Skip
from twinlog.mirror.state.generations import encode_row, of_type
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

SKIP: Final = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSkip:
    """One skip of records."""

    flow: str
    topic: str
    """Name on the source."""
    topic_id: TopicId
    partition: int
    skip: Skip
    code: str
    """Code with which the partition had stopped there."""
    who: str
    at_ms: int
    reason: str = ""

    def encode(self) -> tuple[bytes, bytes]:
        """Return (key, value)."""
        key = ["flow", self.flow, "intent", SKIP, *self.record_key]
        value = {
            "next": self.skip.next,
            "is_batch": self.skip.is_batch,
            "code": self.code,
            "who": self.who,
            "at_ms": self.at_ms,
            "reason": self.reason,
        }
        return encode_row(key, value)

    @property
    def record_key(self) -> tuple[str, str, int, int]:
        return self.topic, str(self.topic_id), self.partition, self.skip.first

    def is_of(self, tp: TopicPartition, topic_id: str) -> bool:
        """Return whether it is for a record of this partition."""
        known = NO_TOPIC_ID in (self.topic_id, topic_id) or self.topic_id == topic_id
        return known and tp == (self.topic, self.partition)

    def __str__(self) -> str:
        said = f": {self.reason}" if self.reason else ""
        return f"{self.topic}-{self.partition} {self.skip} [{self.code}] by {self.who}{said}"


def wanted_skip(parts: list[Any], fields: dict[str, Any]) -> WantedSkip:
    """Return the skip for the parts of a key and the fields of its value. Raises CorruptData if
    they are invalid.
    """
    try:
        _, flow, _, _, topic, topic_id, partition, first = parts
        return WantedSkip(
            flow=of_type(str, flow),
            topic=of_type(str, topic),
            topic_id=TopicId(of_type(str, topic_id)),
            partition=of_type(int, partition),
            skip=_range(first, fields["next"], fields["is_batch"]),
            code=of_type(str, fields["code"]),
            who=of_type(str, fields["who"]),
            at_ms=of_type(int, fields["at_ms"]),
            reason=of_type(str, fields["reason"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(
            f"a row of skipped records in the state topic cannot be read: {error!r}",
            code="STATE_CORRUPT",
        ) from error


def _range(first: object, following: object, is_batch: object) -> Skip:
    begin, end = of_type(int, first), of_type(int, following)
    if not 0 <= begin < end:
        raise ValueError("its offsets are not a valid range")
    return Skip(first=begin, next=end, is_batch=of_type(bool, is_batch))
