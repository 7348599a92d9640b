"""The headers of batches are read, checked and rewritten as KIP-98 specifies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.records import CODECS, RECORDS, SAMPLE, flipped, message, prefixes, with_bits
from twinlog.errors import CorruptData
from twinlog.wire.record_batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    read_header,
    read_headers,
    rewrite_header,
    verify_crc,
)
from twinlog.wire.records import Record, decode_batch, decode_legacy, encode_batch

# One record (timestamp 1000, key "k", value "v") in the format of KIP-98. The CRC32C covers the
# bytes from the attributes on.
KNOWN = bytes.fromhex(
    "0000000000000007"  # base offset 7
    "0000003a"  # 58 bytes follow
    "00000003"  # leader epoch 3
    "02"  # magic
    "716a6189"  # crc
    "0000"  # attributes
    "00000000"  # last offset delta
    "00000000000003e8"  # base timestamp
    "00000000000003e8"  # max timestamp
    "ffffffffffffffff"  # producer id
    "ffff"  # producer epoch
    "ffffffff"  # base sequence
    "00000001"  # one record
    "10" "00" "00" "00" "02" "6b" "02" "76" "00"  # 8 bytes: attributes, deltas, key, value, headers
)  # fmt: skip


def sample_batch(codec: Codec = Codec.NONE, base_offset: int = 0) -> bytes:
    return bytes(encode_batch(SAMPLE, codec=codec, base_offset=base_offset))


def test_known_bytes() -> None:
    header = read_header(memoryview(KNOWN))
    assert header == BatchHeader(
        base_offset=7,
        length=len(KNOWN),
        leader_epoch=3,
        magic=2,
        crc=0x716A6189,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=1000,
        max_timestamp=1000,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=1,
    )
    verify_crc(memoryview(KNOWN), 0, header)
    assert decode_batch(memoryview(KNOWN)) == [Record(7, 1000, b"k", b"v")]


def test_derived_values() -> None:
    header = read_header(memoryview(sample_batch(Codec.LZ4, base_offset=100)))
    assert (header.last_offset, header.next_offset) == (104, 105)
    assert header.codec is Codec.LZ4
    assert header.is_dense
    assert not header._replace(count=4).is_dense
    assert not header.is_control
    assert header._replace(attributes=CONTROL_BIT).is_control
    assert header._replace(attributes=TRANSACTIONAL_BIT).is_transactional
    assert header._replace(attributes=LOG_APPEND_TIME_BIT).is_log_append_time


def test_an_unknown_codec_is_corrupt() -> None:
    header = read_header(memoryview(sample_batch()))._replace(attributes=5)
    with pytest.raises(CorruptData, match="5 is not a compression codec"):
        _ = header.codec


def test_batches_follow_each_other_and_a_partial_one_is_dropped() -> None:
    first, second = sample_batch(base_offset=10), sample_batch(Codec.ZSTD, base_offset=20)
    for tail in (b"", *prefixes(second)):
        found = list(read_headers(memoryview(first + second + tail)))
        assert [(header.base_offset, position) for header, position in found] == [
            (10, 0),
            (20, len(first)),
        ]


def test_reading_starts_at_the_given_position() -> None:
    first, second = sample_batch(base_offset=10), sample_batch(base_offset=20)
    ((header, position),) = read_headers(memoryview(first + second), len(first))
    assert (header.base_offset, position) == (20, len(first))


def test_old_messages_and_batches_may_be_mixed() -> None:
    old = message(magic=0, offset=5, key=b"k", value=b"v")
    middle = message(magic=1, offset=6, key=None, value=b"v", timestamp=77)
    packed = message(magic=1, offset=9, key=None, value=b"?", timestamp=88, attributes=1)
    found = list(read_headers(memoryview(old + middle + packed + sample_batch(base_offset=10))))
    assert [
        (header.magic, header.base_offset, header.next_offset, header.max_timestamp, header.count)
        for header, _ in found
    ] == [
        (0, 5, 6, -1, 1),
        (1, 6, 7, 77, 1),
        (1, 9, 10, 88, -1),
        (2, 10, 15, found[3][0].max_timestamp, 5),
    ]
    assert [header.length for header, _ in found[:3]] == [len(old), len(middle), len(packed)]
    assert not found[2][0].is_dense


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_have_a_crc_too(magic: int) -> None:
    raw = message(magic=magic, offset=5, key=b"k", value=b"v", timestamp=1)
    verify_crc(memoryview(raw), 0, read_header(memoryview(raw)))
    damaged = memoryview(flipped(raw, len(raw) - 1, 1))
    with pytest.raises(CorruptData, match="offset 5 "):
        verify_crc(damaged, 0, read_header(damaged))


@pytest.mark.parametrize(
    ("position", "field"),
    [
        (8, b"\xff\xff\xff\xff"),  # length -1
        (8, b"\x00\x00\x00\x00"),
        (8, b"\x00\x00\x00\x30"),  # one byte less than an empty batch
        (8, b"\x80\x00\x00\x00"),
        (0, b"\xff"),  # negative offset
        (16, b"\x03"),  # an unknown magic
        (16, b"\xff"),
        (23, b"\xff"),  # last offset delta
        (57, b"\xff"),  # count
        (57, b"\x00\x00\x00\x06"),  # more records than the batch has offsets
    ],
)
def test_invalid_headers_are_corrupt(position: int, field: bytes) -> None:
    batch = bytearray(sample_batch())
    batch[position : position + len(field)] = field
    with pytest.raises(CorruptData):
        list(read_headers(memoryview(batch)))
    with pytest.raises(CorruptData):
        list(read_headers(memoryview(sample_batch() + batch)))


def test_an_invalid_prefix_at_the_end_is_corrupt() -> None:
    with pytest.raises(CorruptData):
        list(read_headers(memoryview(sample_batch() + bytes(12))))


def test_read_header_needs_a_whole_batch() -> None:
    with pytest.raises(CorruptData, match="is truncated"):
        read_header(memoryview(sample_batch()[:-1]))
    with pytest.raises(CorruptData, match="is truncated"):
        read_header(memoryview(b""))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_flipped_byte_is_found(data: st.DataObject) -> None:
    batch = sample_batch(data.draw(CODECS))
    position = data.draw(st.integers(0, 600).filter(lambda at: at < len(batch)))
    damaged = memoryview(flipped(batch, position, data.draw(st.integers(1, 255))))
    try:
        found = list(read_headers(damaged))
        for header, at in found:
            verify_crc(damaged, at, header)
    except CorruptData:
        return
    # The CRC does not cover the base offset and the leader epoch. A longer length makes the batch
    # partial.
    assert position in range(8) or position in range(12, 16) or not found


def test_a_batch_cut_after_its_header_was_read_is_corrupt() -> None:
    batch = sample_batch()
    with pytest.raises(CorruptData, match="is truncated"):
        verify_crc(memoryview(batch)[:-1], 0, read_header(memoryview(batch)))


@given(st.binary(max_size=300))
def test_random_bytes_raise_only_corrupt_data(data: bytes) -> None:
    try:
        for header, position in read_headers(memoryview(data)):
            verify_crc(memoryview(data), position, header)
    except CorruptData:
        pass


@settings(deadline=None)
@given(
    RECORDS,
    CODECS,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
)
def test_rewriting_changes_only_the_documented_fields(
    records: list[Record], codec: Codec, producer_id: int, epoch: int, sequence: int
) -> None:
    made = encode_batch(records, codec=codec, base_offset=99)
    original = memoryview(with_bits(made, TRANSACTIONAL_BIT | DELETE_HORIZON_BIT))
    before = read_header(original)
    batch = memoryview(bytearray(original))
    rewrite_header(batch, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    after = read_header(batch)
    verify_crc(batch, 0, after)
    assert after == before._replace(
        base_offset=0,
        attributes=int(codec),
        crc=after.crc,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    assert batch[HEADER_BYTES:] == original[HEADER_BYTES:]
    assert [record._replace(offset=record.offset + 99) for record in decode_batch(batch)] == (
        decode_batch(original)
    )


def test_rewriting_keeps_the_log_append_time_bit() -> None:
    batch = memoryview(with_bits(sample_batch(), LOG_APPEND_TIME_BIT))
    rewrite_header(batch, producer_id=1, producer_epoch=0, base_sequence=0)
    assert read_header(batch).is_log_append_time


@pytest.mark.parametrize(
    "batch",
    [
        memoryview(bytearray(sample_batch()[:-1])),
        memoryview(bytearray(sample_batch() + b"\x00")),
        memoryview(with_bits(sample_batch(), CONTROL_BIT)),
        memoryview(bytearray(message(magic=1, offset=0, key=None, value=b"v" * 100))),
    ],
    ids=["cut", "longer", "control", "magic 1"],
)
def test_only_a_whole_data_batch_is_rewritten(batch: memoryview) -> None:
    before = bytes(batch)
    with pytest.raises(ValueError, match="whole data batch"):
        rewrite_header(batch, producer_id=1, producer_epoch=0, base_sequence=0)
    assert bytes(batch) == before


def test_the_header_struct_has_the_size_of_the_header() -> None:
    assert HEADER.size == HEADER_BYTES


@pytest.mark.parametrize("magic", [0, 1])
def test_message_of_an_old_format_is_no_marker_whatever_its_attributes_say(magic: int) -> None:
    raw = message(magic=magic, offset=7, key=b"k", value=b"v", timestamp=50, attributes=CONTROL_BIT)
    header = read_header(memoryview(raw))
    assert header.attributes == CONTROL_BIT
    assert not header.is_control
    assert [record.value for record in decode_legacy(memoryview(raw))] == [b"v"]
