"""Accepted foreign records of a remote topic, as rows of the state topic.

An acceptance is an intent (`intents`) for one log, and cannot be revoked.

    key    ["flow", FLOW, "intent", "accept", TOPIC, TOPIC_ID, PARTITION, FIRST]
    value  {"v": 1, "ranges": [first, next, ...], "k": ..., "digest": ..., "who": ..., ...}

Topic and ID are those of the target: a re-created topic has different records. Writing a row twice
has no effect. An acceptance of more records of the same log from the same first record replaces it.
A release that does not know such rows starts nothing new (`STATE_CORRUPT`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from twinlog.errors import CorruptData
from twinlog.mirror.accepted import Accepted
from twinlog.mirror.state.generations import encode_row, of_type
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

ACCEPT: Final = "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedAcceptance:
    """One acceptance of foreign records."""

    flow: str
    topic: str
    """Name on the target."""
    topic_id: TopicId
    partition: int
    accepted: Accepted
    who: str
    at_ms: int
    reason: str = ""

    def encode(self) -> tuple[bytes, bytes]:
        """Return (key, value)."""
        key = ["flow", self.flow, "intent", ACCEPT, *self.record_key]
        value = {
            "ranges": [offset for one in self.accepted.ranges for offset in one],
            "k": self.accepted.k,
            "digest": self.accepted.digest,
            "who": self.who,
            "at_ms": self.at_ms,
            "reason": self.reason,
        }
        return encode_row(key, value)

    @property
    def record_key(self) -> tuple[str, str, int, int]:
        return self.topic, str(self.topic_id), self.partition, self.accepted.first

    def is_of(self, tp: TopicPartition, topic_id: str) -> bool:
        """Return whether it is for this log. Always False if brokers have no topic IDs."""
        known = self.topic_id != NO_TOPIC_ID and self.topic_id == topic_id
        return known and tp == (self.topic, self.partition)

    def __str__(self) -> str:
        said = f": {self.reason}" if self.reason else ""
        return f"{self.topic}-{self.partition} {self.accepted} by {self.who}{said}"


def wanted_acceptance(parts: list[Any], fields: dict[str, Any]) -> WantedAcceptance:
    """Return the acceptance for the parts of a key and the fields of its value. Raises CorruptData
    if they are invalid.
    """
    try:
        _, flow, _, _, topic, topic_id, partition, first = parts
        offsets = [of_type(int, offset) for offset in fields["ranges"]]
        rises = all(before < after for before, after in pairwise(offsets))
        if not offsets or len(offsets) % 2 or not rises or offsets[0] != first or first < 0:
            raise ValueError("its offsets are not valid ranges")
        return WantedAcceptance(
            flow=of_type(str, flow),
            topic=of_type(str, topic),
            topic_id=TopicId(of_type(str, topic_id)),
            partition=of_type(int, partition),
            accepted=Accepted(
                ranges=tuple(zip(offsets[::2], offsets[1::2], strict=True)),
                k=of_type(int, fields["k"]),
                digest=of_type(int, fields["digest"]),
            ),
            who=of_type(str, fields["who"]),
            at_ms=of_type(int, fields["at_ms"]),
            reason=of_type(str, fields["reason"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(
            f"a row of accepted records in the state topic cannot be read: {error!r}",
            code="STATE_CORRUPT",
        ) from error
