"""Records are unchanged after encoding and decoding, with all sizes, offsets, timestamps and
nulls.
"""

from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.records import CODECS, NOW_MS, RECORDS, SAMPLE
from twinlog.errors import CorruptData, PartitionError
from twinlog.wire.record_batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    Codec,
    read_header,
    verify_crc,
)
from twinlog.wire.records import (
    ControlType,
    Record,
    control_type,
    decode_batch,
    encode_batch,
    encode_sized,
    fingerprint,
    first_record,
    rows_of,
)


@settings(deadline=None)
@given(RECORDS, CODECS, st.integers(0, 2**50))
def test_round_trip(records: list[Record], codec: Codec, base_offset: int) -> None:
    batch = memoryview(encode_batch(records, codec=codec, base_offset=base_offset))
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert header.is_dense
    assert header.codec is codec
    assert header.max_timestamp == max(record.timestamp for record in records)
    moved = [record._replace(offset=base_offset + record.offset) for record in records]
    assert decode_batch(batch) == moved
    assert first_record(batch) == moved[0]


def test_producer_fields_are_in_the_header() -> None:
    batch = encode_batch(
        SAMPLE, codec=Codec.NONE, producer_id=9, producer_epoch=2, base_sequence=70
    )
    header = read_header(memoryview(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 70)


def test_offsets_become_contiguous() -> None:
    thinned = [record._replace(offset=record.offset * 10 + 1000) for record in SAMPLE]
    decoded = decode_batch(memoryview(encode_batch(thinned, codec=Codec.NONE)))
    assert [record.offset for record in decoded] == [0, 1, 2, 3, 4]


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([], codec=Codec.NONE)


def test_log_append_time_applies_to_all_records() -> None:
    batch = encode_batch(SAMPLE, codec=Codec.LZ4)
    batch[22] |= LOG_APPEND_TIME_BIT
    assert {record.timestamp for record in decode_batch(memoryview(batch))} == {NOW_MS + 90_000}


def test_timestamps_are_relative_to_a_delete_horizon_too() -> None:
    # KIP-534: the cleaner writes its delete horizon as the base timestamp, and recalculates the
    # deltas
    batch = encode_batch(SAMPLE, codec=Codec.NONE)
    batch[22] |= DELETE_HORIZON_BIT
    assert decode_batch(memoryview(batch)) == SAMPLE


def test_many_empty_records() -> None:
    records = [Record(offset, NOW_MS, None, None) for offset in range(100_000)]
    batch = memoryview(encode_batch(records, codec=Codec.ZSTD))
    assert len(decode_batch(batch)) == 100_000


# ---- batches from which a cleaner has removed records


def thinned_batch(offsets: list[int], last_offset_delta: int) -> memoryview:
    """Return a batch with base offset 100 that has records only at these offsets."""
    payload = bytearray()
    for offset in offsets:
        body = struct.pack("6B", 0, 0, offset * 2, 1, 2, ord("v")) + b"\x00"
        payload += bytes([len(body) * 2]) + body
    batch = bytearray(encode_batch(SAMPLE[:1], codec=Codec.NONE, base_offset=100)[:HEADER_BYTES])
    batch += payload
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, last_offset_delta)
    struct.pack_into(">i", batch, 57, len(offsets))
    return memoryview(batch)


def test_a_thinned_batch_keeps_its_offsets() -> None:
    batch = thinned_batch([1, 4, 5], last_offset_delta=9)
    assert [record.offset for record in decode_batch(batch)] == [101, 104, 105]
    assert first_record(batch).offset == 101
    header = read_header(batch)
    assert not header.is_dense
    assert header.next_offset == 110


def test_an_emptied_batch_has_no_records() -> None:
    batch = thinned_batch([], last_offset_delta=9)
    batch[22] |= Codec.GZIP  # the bits may remain although nothing is left to decompress
    assert decode_batch(batch) == []
    with pytest.raises(CorruptData, match="contains no record"):
        first_record(batch)


@pytest.mark.parametrize("offsets", [[1, 1], [4, 3], [3, 10]])
def test_decreasing_or_excessive_offsets_are_corrupt(offsets: list[int]) -> None:
    with pytest.raises(CorruptData, match="offset delta"):
        decode_batch(thinned_batch(offsets, last_offset_delta=9))


# ---- control batches


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (b"\x00\x00\x00\x00", "abort"),
        (b"\x00\x00\x00\x01", "commit"),
        (b"\x00\x00\x00\x02", "other"),
        (b"\x00\x05\x00\x01\xff", "commit"),
    ],
)
def test_control_types(key: bytes, kind: str) -> None:
    batch = encode_batch([Record(0, NOW_MS, key, bytes(6))], codec=Codec.NONE)
    batch[22] |= CONTROL_BIT
    assert control_type(memoryview(batch)) == kind


def test_a_cleaned_marker_is_neither_commit_nor_abort() -> None:
    assert control_type(thinned_batch([], last_offset_delta=0)) is ControlType.OTHER


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_a_control_record_without_a_type_is_corrupt(key: bytes | None) -> None:
    batch = encode_batch([Record(0, NOW_MS, key, None)], codec=Codec.NONE)
    with pytest.raises(CorruptData, match="too short"):
        control_type(memoryview(batch))


# ---- batches of a limited size


def sized(records: list[Record], *, codec: Codec, limit_bytes: int) -> list[bytearray]:
    encoded = encode_sized(rows_of(records), codec=codec, limit_bytes=limit_bytes)
    return [one.data for one in encoded]


@settings(deadline=None, max_examples=60)
@given(RECORDS, CODECS, st.integers(20_300, 60_000))
def test_sized_batches_have_all_records_in_order(
    records: list[Record], codec: Codec, limit: int
) -> None:
    small = [record for record in records if len(encode_batch([record], codec=Codec.NONE)) <= limit]
    batches = sized(small, codec=codec, limit_bytes=limit)
    assert all(len(batch) <= limit for batch in batches)
    decoded = [record for batch in batches for record in decode_batch(memoryview(batch))]
    assert [record[1:] for record in decoded] == [record[1:] for record in small]


@pytest.mark.parametrize("codec", Codec)
def test_splitting_wastes_little(codec: Codec) -> None:
    records = [Record(at, NOW_MS + at, b"key", os.urandom(500)) for at in range(1000)]
    batches = sized(records, codec=codec, limit_bytes=50_000)
    assert len(batches) <= 13  # 11 batches would be optimal
    assert max(map(len, batches)) <= 50_000


def test_unequal_records_are_split_until_all_fit() -> None:
    records = [
        Record(at, NOW_MS, None, os.urandom(4000) if at % 10 == 0 else b"x" * 4000)
        for at in range(100)
    ]
    batches = sized(records, codec=Codec.ZSTD, limit_bytes=9000)
    assert max(map(len, batches)) <= 9000
    assert sum(read_header(memoryview(batch)).count for batch in batches) == 100


def test_no_records_make_no_batch() -> None:
    assert sized([], codec=Codec.ZSTD, limit_bytes=100) == []


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("neighbours", [0, 3])
def test_a_record_over_the_limit_stops_its_partition(codec: Codec, neighbours: int) -> None:
    records = [Record(at, NOW_MS, None, b"small") for at in range(neighbours)]
    records.append(Record(4711, NOW_MS, None, os.urandom(5000)))
    with pytest.raises(
        PartitionError, match=r"offset 4711 .* accepts at most 1000: raise"
    ) as caught:
        sized(records, codec=codec, limit_bytes=1000)
    assert caught.value.code == "RECORD_TOO_LARGE"


def test_a_record_that_only_fits_uncompressed_is_sent_uncompressed() -> None:
    record = Record(0, NOW_MS, None, os.urandom(900))
    limit = len(encode_batch([record], codec=Codec.NONE))
    assert len(encode_batch([record], codec=Codec.GZIP)) > limit
    (batch,) = sized([record], codec=Codec.GZIP, limit_bytes=limit)
    assert read_header(memoryview(batch)).codec is Codec.NONE


# ---- fingerprints


def test_fingerprints_differ_between_records() -> None:
    variants = [
        Record(0, NOW_MS, key, value)
        for key in (None, b"", b"a", b"ab", b"\xff\xff\xff\xff")
        for value in (None, b"", b"a", b"b", b"\xff\xff\xff\xff")
    ]
    variants += [Record(0, NOW_MS + 1, b"a", b"b"), Record(0, -1, b"a", b"b")]
    assert len({fingerprint(record) for record in variants}) == len(variants)


def test_fingerprints_ignore_offset_and_headers() -> None:
    one = Record(0, NOW_MS, b"a", b"b")
    assert fingerprint(one) == fingerprint(Record(77, NOW_MS, b"a", b"b", (("h", None),)))


def test_fingerprints_are_stable() -> None:
    # rows of the offset map are read by later processes, so fingerprints must not change
    assert fingerprint(Record(0, 1_700_000_000_000, b"key", None)) == 3545249138
