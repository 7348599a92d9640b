"""Damaged batches raise CorruptData and no other error, and decoding them always ends."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.records import CODECS, NOW_MS, RECORDS, SAMPLE, flipped, prefixes
from twinlog.errors import CorruptData
from twinlog.wire.primitives import encode_varint
from twinlog.wire.record_batch import HEADER_BYTES, Codec
from twinlog.wire.records import Record, decode_batch, encode_batch, first_record

LIMIT = 1 << 20


def with_payload(payload: bytes, count: int = 1) -> memoryview:
    """Return a batch with this payload and a valid header for `count` records."""
    batch = bytearray(encode_batch(SAMPLE[:1], codec=Codec.NONE)[:HEADER_BYTES]) + payload
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    return memoryview(batch)


def with_body(body: bytes) -> memoryview:
    return with_payload(encode_varint(len(body)) + body)


@pytest.mark.parametrize("codec", Codec)
def test_every_prefix_is_corrupt(codec: Codec) -> None:
    for prefix in prefixes(bytes(encode_batch(SAMPLE, codec=codec))):
        with pytest.raises(CorruptData):
            decode_batch(memoryview(prefix))


def test_every_prefix_of_a_payload_with_a_valid_header_is_corrupt() -> None:
    payload = bytes(encode_batch(SAMPLE, codec=Codec.NONE)[HEADER_BYTES:])
    for prefix in prefixes(payload):
        with pytest.raises(CorruptData):
            decode_batch(with_payload(prefix, count=len(SAMPLE)))


@pytest.mark.parametrize("tail", [b"\x00", b"\x0c\x00\x00\x00\x01\x01\x00", bytes(100)])
def test_bytes_after_the_last_record_are_corrupt(tail: bytes) -> None:
    payload = bytes(encode_batch(SAMPLE, codec=Codec.NONE)[HEADER_BYTES:])
    with pytest.raises(CorruptData, match=f"{len(tail)} bytes are left after its 5 records"):
        decode_batch(with_payload(payload + tail, count=5))


def test_bytes_after_the_batch_are_corrupt() -> None:
    batch = encode_batch(SAMPLE, codec=Codec.NONE)
    for tail in (b"\x00", bytes(batch)):
        with pytest.raises(CorruptData, match="expected one batch of magic 2"):
            decode_batch(memoryview(batch + tail))


@settings(deadline=None, max_examples=400)
@given(RECORDS, CODECS, st.data())
def test_a_flipped_byte_raises_corrupt_data_or_decodes(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    # The CRC would detect the damage, but it is not checked here.
    batch = bytes(encode_batch(records, codec=codec))
    position = data.draw(st.integers(0, len(batch) - 1))
    damaged = flipped(batch, position, data.draw(st.integers(1, 255)))
    for decode in (decode_batch, first_record):
        try:
            decode(memoryview(damaged), LIMIT)
        except CorruptData:
            continue


def test_every_flipped_bit_of_a_sample() -> None:
    batch = bytes(encode_batch(SAMPLE[:3], codec=Codec.NONE))
    for position in range(len(batch)):
        for bit in range(8):
            try:
                decode_batch(memoryview(flipped(batch, position, 1 << bit)), LIMIT)
            except CorruptData:
                continue


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(1, 50))
def test_random_payloads_raise_only_corrupt_data(payload: bytes, count: int) -> None:
    try:
        records = decode_batch(with_payload(payload, count), LIMIT)
    except CorruptData:
        return
    assert len(records) == count


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x00\x00\x00\x01\x01\x01", "the number of headers is -1"),
        (b"\x00\x00\x00\x01\x01" + encode_varint(1000), "the number of headers is 1000"),
        (b"\x00\x00\x00\x01\x01\x02\x01\x01", "a header key has -1 bytes"),
        (b"\x00\x00\x00\x01\x01\x02" + encode_varint(50) + b"k", "a header key has 50 bytes"),
        (b"\x00\x00\x00\x01\x01\x02\x02k" + encode_varint(50) + b"v", "its fields end at byte"),
        (b"\x00\x00\x00" + encode_varint(2**31 - 1) + b"k", "the data ends inside the record"),
        (b"\x00\x00\x00\x01\x01\x00\x00", "its fields end at byte"),
        (b"\x00\x00\x00\x01\x01", "the data ends inside the record"),
        (b"\x00\x00" + b"\xff" * 9, "an integer at byte 3 is longer than 5 bytes"),
        (b"\x00" + b"\xff" * 12, "an integer at byte 2 is longer than 10 bytes"),
        (b"\x00\x00\x01\x01\x01\x00", "its offset delta is -1"),
        (b"\x00\x00\x02\x01\x01\x00", "its offset delta is 1"),
    ],
)
def test_the_corrupt_record_is_named(body: bytes, reason: str) -> None:
    with pytest.raises(CorruptData, match=f"batch at offset 0: record 0 of 1 is corrupt: {reason}"):
        decode_batch(with_body(body))


@pytest.mark.parametrize("length", [-1, -(2**31), 7, 2**31 - 1])
def test_a_length_outside_the_batch_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptData, match=f"its length is {length}, expected 0 to "):
        decode_batch(with_payload(encode_varint(length) + b"\x00\x00\x00\x01\x01\x00"))


@pytest.mark.parametrize("length", [-2, -100])
def test_any_negative_length_of_a_key_or_value_is_null_as_in_java(length: int) -> None:
    body = b"\x00\x00\x00" + encode_varint(length) + encode_varint(length) + b"\x00"
    assert decode_batch(with_body(body)) == [Record(0, NOW_MS, None, None)]


def test_a_wrong_count_allocates_no_memory() -> None:
    batch = with_payload(b"\x0c\x00\x00\x00\x01\x01\x00", count=2**31 - 1)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match="record 1 of 2147483647"):
            decode_batch(batch)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_decompression_bomb_is_corrupt() -> None:
    batch = encode_batch([Record(0, NOW_MS, None, bytes(8 << 20))], codec=Codec.ZSTD)
    assert len(decode_batch(memoryview(batch))) == 1
    with pytest.raises(CorruptData, match=f"more than {LIMIT} bytes"):
        decode_batch(memoryview(batch), LIMIT)
