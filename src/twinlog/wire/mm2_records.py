"""MirrorMaker 2's three internal records, byte for byte: offset syncs, checkpoints, heartbeats.

Their fields are Kafka's protocol types, big-endian. A string is an int16 length and UTF-8. Values
of checkpoints and heartbeats begin with a version; keys have none.

    record      key                               value
    OffsetSync  topic of the source, partition    upstream offset, downstream offset
    Checkpoint  group, topic of the target,       version, upstream offset, downstream offset,
                partition                         metadata
    Heartbeat   source alias, target alias        version, timestamp in ms

Like Java's readers, these decoders read every version as version 0, and ignore bytes after the
fields. No tombstone is ever written, because Java's readers fail at one. Decoding a tombstone
raises CorruptData, and readers skip the record.

**Positions** of a MirrorMaker 2 source connector, in Kafka Connect's offset storage topic, are JSON
without schemas or spaces, as Connect's JsonConverter writes it:

    key    ["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"orders"}]
    value  {"offset":41}      the last record whose copy was acknowledged; the copy resumes at 42

Connect looks up a position by the bytes of its key, so the fields must be in the order in which a
Java HashMap iterates over these three names. It also reads a position only from the partition that
Java's default partitioner chooses (`mirror.copy.fan_out`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from msgspec import Struct

from twinlog.errors import CorruptData
from twinlog.model import TopicPartition
from twinlog.wire.records import Record

VERSION: Final = 0
_MAX_STRING_BYTES: Final = 32_767

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_OFFSETS = struct.Struct(">qq")
_VERSION_AND_OFFSETS = struct.Struct(">hqq")
_VERSION_AND_TIMESTAMP = struct.Struct(">hq")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSync:
    """The offset of a record on the source, and the offset of its copy on the target."""

    topic_partition: TopicPartition
    """The partition, with the topic name on the source."""
    upstream_offset: int
    downstream_offset: int

    def key(self) -> bytes:
        return _encode_topic_partition(self.topic_partition)

    def value(self) -> bytes:
        return _OFFSETS.pack(self.upstream_offset, self.downstream_offset)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> OffsetSync:
        """Decode an offset sync. Raises CorruptData."""
        fields = _Fields("offset sync", key)
        topic_partition = fields.topic_partition()
        upstream_offset, downstream_offset = _Fields("offset sync", value).unpack(_OFFSETS)
        return cls(
            topic_partition=topic_partition,
            upstream_offset=upstream_offset,
            downstream_offset=downstream_offset,
        )


class Checkpoint(Struct, frozen=True, kw_only=True, gc=False):
    """A group's committed offset on the source, and its translated offset on the target."""

    group: str
    topic_partition: TopicPartition
    """The partition, with the topic name on the target."""
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""
    """The metadata that the group committed with its offset, or empty."""

    def key(self) -> bytes:
        return _encode_string(self.group) + _encode_topic_partition(self.topic_partition)

    def value(self) -> bytes:
        offsets = _VERSION_AND_OFFSETS.pack(VERSION, self.upstream_offset, self.downstream_offset)
        return offsets + _encode_string(self.metadata)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Checkpoint:
        """Decode a checkpoint. Raises CorruptData."""
        of_key = _Fields("checkpoint", key)
        group = of_key.string()
        topic_partition = of_key.topic_partition()
        of_value = _Fields("checkpoint", value)
        _, upstream_offset, downstream_offset = of_value.unpack(_VERSION_AND_OFFSETS)
        return cls(
            group=group,
            topic_partition=topic_partition,
            upstream_offset=upstream_offset,
            downstream_offset=downstream_offset,
            metadata=of_value.string(),
        )

    @classmethod
    def decode_all(cls, records: Iterable[Record]) -> Iterator[Checkpoint]:
        """Yield all checkpoints that can be decoded. Others are skipped, as by Java's readers."""
        for record in records:
            with suppress(CorruptData):
                yield cls.decode(record.key, record.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A flow's heartbeat, which is written to its target. Other flows mirror it from there."""

    source_alias: str
    target_alias: str
    timestamp_ms: int

    def key(self) -> bytes:
        return _encode_string(self.source_alias) + _encode_string(self.target_alias)

    def value(self) -> bytes:
        return _VERSION_AND_TIMESTAMP.pack(VERSION, self.timestamp_ms)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Heartbeat:
        """Decode a heartbeat. Raises CorruptData."""
        of_key = _Fields("heartbeat", key)
        source_alias = of_key.string()
        target_alias = of_key.string()
        _, timestamp_ms = _Fields("heartbeat", value).unpack(_VERSION_AND_TIMESTAMP)
        return cls(source_alias=source_alias, target_alias=target_alias, timestamp_ms=timestamp_ms)


@lru_cache(4096)  # cached, as many groups have offsets in the same partitions
def _encode_topic_partition(tp: TopicPartition) -> bytes:
    return _encode_string(tp.topic) + _INT32.pack(tp.partition)


def _encode_string(text: str) -> bytes:
    encoded = text.encode("utf-8", "replace")  # as in Java, a lone surrogate becomes "?"
    if len(encoded) > _MAX_STRING_BYTES:
        raise CorruptData(
            f"{text[:40]!r}... has {len(encoded)} bytes, but a record of MirrorMaker 2 can hold "
            f"only {_MAX_STRING_BYTES}: shorten the name or the metadata",
            code="MM2_RECORD",
        )
    return _INT16.pack(len(encoded)) + encoded


class _Fields:
    """Reads the fields of a key or value in order."""

    def __init__(self, kind: str, encoded: bytes | None) -> None:
        self._kind = kind
        if encoded is None:
            raise self._error("lacks a key or value")
        self._encoded = encoded
        self._at = 0

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        self._require(layout.size)
        values = layout.unpack_from(self._encoded, self._at)
        self._at += layout.size
        return values

    def string(self) -> str:
        (length,) = self.unpack(_INT16)
        if length < 0:
            raise self._error(f"has a text of {length} bytes")
        self._require(length)
        text = self._encoded[self._at : self._at + length]
        self._at += length
        return text.decode("utf-8", "replace")

    def topic_partition(self) -> TopicPartition:
        topic = self.string()
        (partition,) = self.unpack(_INT32)
        return TopicPartition(topic, partition)

    def _require(self, size: int) -> None:
        if self._at + size > len(self._encoded):
            raise self._error(f"ends within a field, after {len(self._encoded)} bytes")

    def _error(self, what: str) -> CorruptData:
        return CorruptData(
            f"a {self._kind} of MirrorMaker 2 {what}; it is skipped", code="MM2_RECORD"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionKey:
    """The connector and the source partition of a position in Kafka Connect's offset storage."""

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
    """Encode a position in Kafka Connect's offset storage: the upstream offset of the last copied
    record.
    """
    return _json({"offset": offset})


def decode_position(value: bytes | None) -> int | None:
    """Return the offset of the last copied record, or None if the value is null (a reset) or
    ignored by MirrorMaker 2.
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
