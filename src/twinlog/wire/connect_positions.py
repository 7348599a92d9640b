"""Positions of a MirrorMaker 2 source connector in Kafka Connect's offset storage topic.

JSON without schemas or spaces, as Connect's JsonConverter writes it:

    key    ["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"orders"}]
    value  {"offset":41}      the last record whose copy was acknowledged: it resumes at 42

Connect looks up a position by the bytes of its key, so the fields must be in the order in which a
Java HashMap iterates over these three names. It also reads a position only from the partition that
Java's default partitioner chooses (`mirror.copy.partitioner`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from twinlog.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionKey:
    """The connector and the source partition of a position."""

    connector: str
    cluster: str
    """The alias of the source cluster."""
    source: TopicPartition

    def encode(self) -> bytes:
        where = {
            "cluster": self.cluster,
            "partition": self.source.partition,
            "topic": self.source.topic,
        }
        return _json([self.connector, where])

    @classmethod
    def decode(cls, key: bytes | None) -> PositionKey | None:
        """Return the decoded key, or None for a key of another kind of connector."""
        match _loads(key):
            case [
                str(connector),
                {"cluster": str(cluster), "partition": int(partition), "topic": str(topic)},
            ]:
                return cls(
                    connector=connector,
                    cluster=cluster,
                    source=TopicPartition(topic, partition),
                )
        return None


def encode_position(offset: int) -> bytes:
    """Return the value that stores the upstream offset of the last copied record."""
    return _json({"offset": offset})


def decode_position(value: bytes | None) -> int | None:
    """Return the offset of the last copied record, or None for a reset or a value that
    MirrorMaker 2 ignores.
    """
    match _loads(value):
        case {"offset": int(offset)} if offset >= 0:
            return offset
    return None


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _loads(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return None
