"""Chooses a record's partition if the target topic has a different partition count.

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
    """Same as Java's `BuiltInPartitioner.partitionForKey`."""
    return (murmur2(key) & _POSITIVE) % partitions


def partition_of(record: Record, partitions: int) -> int:
    """Return the target partition of a source record."""
    key = record.key
    if key is None:
        # the plain offset would not do: with transaction markers only every other offset is a
        # record
        key = record.offset.to_bytes(8, "big")
    return partition_for_key(key, partitions)
