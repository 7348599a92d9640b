"""Messages of magic 0 and 1, which the tests build field by field, are decoded to their records."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.records import NULLABLE, flipped, message, prefixes
from twinlog.errors import CorruptData
from twinlog.wire.compression import compress
from twinlog.wire.record_batch import LOG_APPEND_TIME_BIT, Codec
from twinlog.wire.records import Record, decode_legacy, encode_batch

OLD_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def wrapped(
    magic: int, codec: Codec, inner: bytes, offset: int, *, timestamp: int = 50, attributes: int = 0
) -> bytes:
    packed = bytes(compress(codec, inner))
    if magic == 0 and codec is Codec.LZ4:
        packed = flipped(packed, 6, 0x99)  # the wrong header checksum of KAFKA-3160
    return message(
        magic=magic,
        offset=offset,
        key=None,
        value=packed,
        timestamp=timestamp,
        attributes=codec | attributes,
    )


def inner_set(magic: int, offsets: list[int]) -> bytes:
    return b"".join(
        message(magic=magic, offset=offset, key=b"k", value=b"%d" % at, timestamp=10 + at)
        for at, offset in enumerate(offsets)
    )


def test_known_bytes_of_magic_0() -> None:
    # offset 5, size 16, CRC, magic 0, attributes 0, key "k", value "v"
    raw = bytes.fromhex("0000000000000005000000101fecd70a0000000000016b0000000176")
    assert decode_legacy(memoryview(raw)) == [Record(5, -1, b"k", b"v")]


@given(st.sampled_from([0, 1]), NULLABLE, NULLABLE, st.integers(0, 2**62))
def test_plain_messages(magic: int, key: bytes | None, value: bytes | None, offset: int) -> None:
    raw = message(magic=magic, offset=offset, key=key, value=value, timestamp=1234)
    expected = Record(offset, 1234 if magic else -1, key, value)
    assert decode_legacy(memoryview(raw)) == [expected]
    assert decode_legacy(memoryview(raw + raw[:-1])) == [expected]


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_offsets_inside_magic_0_are_absolute(codec: Codec) -> None:
    raw = wrapped(0, codec, inner_set(0, [7, 8, 9]), offset=9)
    assert decode_legacy(memoryview(raw)) == [
        Record(7, -1, b"k", b"0"),
        Record(8, -1, b"k", b"1"),
        Record(9, -1, b"k", b"2"),
    ]


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_offsets_inside_magic_1_are_relative_to_the_last(codec: Codec) -> None:
    raw = wrapped(1, codec, inner_set(1, [0, 1, 2]), offset=109)
    assert decode_legacy(memoryview(raw)) == [
        Record(107, 10, b"k", b"0"),
        Record(108, 11, b"k", b"1"),
        Record(109, 12, b"k", b"2"),
    ]


def test_a_compacted_wrapper_keeps_the_gaps() -> None:
    raw = wrapped(1, Codec.GZIP, inner_set(1, [1, 4]), offset=104)
    assert [record.offset for record in decode_legacy(memoryview(raw))] == [101, 104]


def test_a_wrapper_at_offset_0_keeps_the_inner_offsets() -> None:
    raw = wrapped(1, Codec.GZIP, inner_set(1, [0, 1, 2]), offset=0)
    assert [record.offset for record in decode_legacy(memoryview(raw))] == [0, 1, 2]


def test_log_append_time_of_a_wrapper_applies_to_all_inner_messages() -> None:
    raw = wrapped(
        1, Codec.GZIP, inner_set(1, [0, 1]), offset=1, timestamp=777, attributes=LOG_APPEND_TIME_BIT
    )
    assert [record.timestamp for record in decode_legacy(memoryview(raw))] == [777, 777]


def test_formats_may_be_mixed() -> None:
    raw = inner_set(0, [3]) + wrapped(1, Codec.LZ4, inner_set(1, [0, 1]), 5) + inner_set(1, [6])
    assert [record.offset for record in decode_legacy(memoryview(raw))] == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (wrapped(1, Codec.GZIP, b"", 5), "are not a whole message"),
        (wrapped(1, Codec.GZIP, inner_set(1, [0])[:-1], 5), "are not a whole message"),
        (wrapped(1, Codec.GZIP, inner_set(1, [0]) + b"\x00", 5), "are not a whole message"),
        (wrapped(1, Codec.GZIP, inner_set(1, [0, 9]), 5), "9 as its last relative offset"),
        (wrapped(1, Codec.GZIP, wrapped(1, Codec.GZIP, inner_set(1, [0]), 0), 5), "another"),
        (wrapped(1, Codec.GZIP, flipped(inner_set(1, [0]), 30, 1), 5), "CRC"),
        (wrapped(1, Codec.ZSTD, inner_set(1, [0]), 5), "has the codec zstd"),
        (message(magic=1, offset=5, key=None, value=None, attributes=Codec.GZIP), "has no value"),
        (
            wrapped(
                1, Codec.GZIP, bytes(encode_batch([Record(0, 1, None, b"")], codec=Codec.NONE)), 5
            ),
            "magic 2",
        ),
        (message(magic=1, offset=5, key=None, value=None, attributes=1), "no value"),
        (message(magic=1, offset=5, key=None, value=b"no gzip", attributes=1), "gzip data"),
        (message(magic=0, offset=5, key=None, value=b"no lz4", attributes=3), "lz4"),
        (message(magic=0, offset=5, key=None, value=b"?", attributes=6), "6 is not a compression"),
        (bytes(encode_batch([Record(0, 1, None, b"")], codec=Codec.NONE)), "magic 2, not 0 or 1"),
    ],
)
def test_invalid_messages_are_corrupt(raw: bytes, reason: str) -> None:
    with pytest.raises(CorruptData, match=reason):
        decode_legacy(memoryview(raw))


def with_lengths(key_length: int, value_length: int) -> bytes:
    """Return a message of magic 1 with the key "kk" and the value "vv", these length fields, and a
    valid CRC.
    """
    raw = message(magic=1, offset=5, key=b"kk", value=b"vv", timestamp=1)[26:]
    key, value = raw[4:6], raw[10:12]
    body = key_length.to_bytes(4, "big", signed=True) + key
    body += value_length.to_bytes(4, "big", signed=True) + value
    return resealed(body)


def resealed(body: bytes) -> bytes:
    shell = message(magic=1, offset=5, key=b"", value=b"x" * (len(body) - 8), timestamp=1)
    checked = shell[16:26] + body
    return shell[:12] + zlib.crc32(checked).to_bytes(4, "big") + checked


@pytest.mark.parametrize(
    ("key_length", "value_length", "reason"),
    [
        (3, 2, "ends outside"),
        (2**31 - 1, 2, "ends outside"),
        (2, 3, "ends outside"),
        (2, 1, "1 bytes are left after its value"),
        (2, -1, "2 bytes are left after its value"),
        (8, 0, "ends outside"),
    ],
)
def test_wrong_lengths_with_a_valid_crc_are_corrupt(
    key_length: int, value_length: int, reason: str
) -> None:
    assert decode_legacy(memoryview(with_lengths(2, 2))) == [Record(5, 1, b"kk", b"vv")]
    with pytest.raises(CorruptData, match=reason):
        decode_legacy(memoryview(with_lengths(key_length, value_length)))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, *OLD_CODECS])
def test_prefixes_have_no_records(magic: int, codec: Codec) -> None:
    plain = inner_set(magic, [0])
    raw = plain if codec is Codec.NONE else wrapped(magic, codec, plain, 4)
    for prefix in prefixes(raw):
        assert decode_legacy(memoryview(prefix)) == []


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([0, 1]), st.sampled_from([Codec.NONE, *OLD_CODECS]), st.data())
def test_every_flipped_byte_is_found(magic: int, codec: Codec, data: st.DataObject) -> None:
    plain = inner_set(magic, [0, 1, 2])
    raw = plain if codec is Codec.NONE else wrapped(magic, codec, plain, 9)
    position = data.draw(st.integers(0, len(raw) - 1))
    damaged = flipped(raw, position, data.draw(st.integers(1, 255)))
    try:
        records = decode_legacy(memoryview(damaged))
    except CorruptData:
        return
    # No CRC covers the offsets. A longer length makes the rest a partial message.
    before = [record._replace(offset=0) for record in decode_legacy(memoryview(raw))]
    assert [record._replace(offset=0) for record in records] == before[: len(records)]
