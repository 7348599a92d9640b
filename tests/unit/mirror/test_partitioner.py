"""Records with a key are partitioned as by Java's producer, and records without a key by their
offset.
"""

from __future__ import annotations

import pytest

from twinlog.mirror.copy.fan_out import partition_for_key, partition_of
from twinlog.wire.kernels.twin import murmur2
from twinlog.wire.records import Record


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # from Kafka's own UtilsTest
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_is_that_of_java(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % (1 << 32)


def test_a_negative_hash_gives_a_partition() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


def test_records_without_a_key_are_placed_by_their_offset() -> None:
    def partition_at(offset: int) -> int:
        return partition_of(Record(offset, 0, None, b"v"), 4)

    assert [partition_at(offset) for offset in range(50)] == [
        partition_at(offset) for offset in range(50)
    ]
    for step in (1, 2, 4):  # also if markers are between the records
        counts = [[partition_at(at * step) for at in range(1000)].count(each) for each in range(4)]
        assert min(counts) > 200, (step, counts)


def test_an_empty_key_is_a_key() -> None:
    assert len({partition_of(Record(at, 0, b"", b"v"), 16) for at in range(100)}) == 1
