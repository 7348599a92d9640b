"""Which partition a record goes to where the target has another number of them: as Kafka's Java
producer places it, which is what MirrorMaker 1 did.

A record without a key has no such place (Java's producer takes turns): here it follows from its
offset at the source, so that whoever copies it again, after a crash or beside us, comes to the same
partition.

Many records at once are partitioned by `Rows.partitioned`, by the same rule.
"""

from __future__ import annotations

from typing import Final

from twinlog.wire.kernels.murmur import murmur2
from twinlog.wire.record import Record

_POSITIVE: Final = 0x7FFFFFFF


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
