"""Chooses a record's target partition if the target topic has another number of partitions.

Keyed records are placed as by Kafka's Java producer, which MirrorMaker 1 used. For a record without
a key, Java's producer alternates between partitions. Here the partition follows from the record's
source offset, so that every lane that copies the record, after a crash or concurrently, chooses the
same one.

`Rows.partitioned` applies the same rule to many records at once.
"""

from __future__ import annotations

from typing import Final

from twinlog.wire.kernels.murmur import murmur2
from twinlog.wire.record import Record

_POSITIVE: Final = 0x7FFFFFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Java's `BuiltInPartitioner.partitionForKey` does."""
    return (murmur2(key) & _POSITIVE) % partitions


def partition_of(record: Record, partitions: int) -> int:
    """Return the target partition of a source record."""
    key = record.key
    if key is None:
        # the offset modulo the partition count would not do: with transaction markers only every
        # other offset is a record, so some partitions would get none
        key = record.offset.to_bytes(8, "big")
    return partition_for_key(key, partitions)
