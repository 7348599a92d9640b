"""Which partition a record goes to where the target has another number of them: as Kafka's Java
producer places it, which is what MirrorMaker 1 did.

A record without a key has no such place (Java's producer takes turns): here it follows from its
offset at the source, so that whoever copies it again, after a crash or beside us, comes to the same
partition.
"""

from __future__ import annotations

from typing import Final

from twinlog.wire.record import Record

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_INT: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """`Utils.murmur2` of Kafka's clients, as an unsigned number."""
    whole = len(data) & ~3
    value = _SEED ^ len(data)
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _M & _INT
        part = (part ^ part >> _R) * _M & _INT
        value = value * _M & _INT ^ part
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _INT
    value = (value ^ value >> 13) * _M & _INT
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """`BuiltInPartitioner.partitionForKey`."""
    return (murmur2(key) & _POSITIVE) % partitions


def partition_of(record: Record, partitions: int) -> int:
    """Where a record of a source goes among so many target partitions."""
    key = record.key
    if key is None:
        # the offset itself is no good: markers of transactions leave only every other one
        key = record.offset.to_bytes(8, "big")
    return partition_for_key(key, partitions)
