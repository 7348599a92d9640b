"""Every codec: data is unchanged after compression and decompression in Kafka's frames, and limits
protect against decompression bombs.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import struct

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.records import CODECS, flipped, prefixes
from twinlog.errors import CorruptData
from twinlog.wire.compression import compress, decompress, repair_lz4_header
from twinlog.wire.record_batch import Codec

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"some text, " * 20_000 + os.urandom(70_000)
LIMIT = 1 << 20


@settings(deadline=None)
@given(CODECS, st.one_of(st.binary(max_size=300), st.integers(0, 200_000).map(lambda n: b"a" * n)))
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), LIMIT) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_all_kinds_of_buffers(codec: Codec, kind: type) -> None:
    packed = kind(bytes(compress(codec, kind(TEXT))))
    assert decompress(codec, packed, LIMIT) == TEXT


@pytest.mark.parametrize("codec", Codec)
def test_a_limit_is_exact(codec: Codec) -> None:
    packed = bytes(compress(codec, TEXT))
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(CorruptData, match=f"more than {len(TEXT) - 1} bytes"):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_stops_at_the_limit(codec: Codec) -> None:
    bomb = bytes(compress(codec, bytes(40 << 20)))
    assert len(bomb) < 3 << 20
    with pytest.raises(CorruptData, match=f"more than {LIMIT} bytes"):
        decompress(codec, bomb, LIMIT)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_thousandfold_ratio_is_no_bomb_below_the_limit(codec: Codec) -> None:
    assert decompress(codec, compress(codec, bytes(30 << 20)), 30 << 20) == bytes(30 << 20)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_truncated_data_is_never_accepted(codec: Codec) -> None:
    packed = bytes(compress(codec, TEXT))
    for prefix in prefixes(packed):
        try:
            got = decompress(codec, prefix, LIMIT)
        except CorruptData:
            continue
        # snappy frames have no end mark, so a truncated frame only has fewer records
        assert codec is Codec.SNAPPY
        assert len(got) < len(TEXT)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(COMPRESSING), st.data())
def test_damage_raises_only_corrupt_data(codec: Codec, data: st.DataObject) -> None:
    packed = bytes(compress(codec, TEXT[:3000] + TEXT[-500:]))
    position = data.draw(st.integers(0, len(packed) - 1))
    damaged = flipped(packed, position, data.draw(st.integers(1, 255)))
    with contextlib.suppress(CorruptData):
        assert len(decompress(codec, damaged, LIMIT)) <= LIMIT


@settings(deadline=None)
@given(st.sampled_from(COMPRESSING), st.binary(max_size=200))
def test_random_bytes_raise_only_corrupt_data(codec: Codec, data: bytes) -> None:
    for raw in (data, bytes(compress(codec, b"abc" * 50))[:20] + data):
        with contextlib.suppress(CorruptData):
            assert len(decompress(codec, raw, LIMIT)) <= LIMIT


def test_gzip_can_be_read_by_other_tools() -> None:
    assert gzip.decompress(bytes(compress(Codec.GZIP, TEXT))) == TEXT
    assert decompress(Codec.GZIP, gzip.compress(TEXT), LIMIT) == TEXT


def test_snappy_has_the_frame_of_the_java_library() -> None:
    packed = bytes(compress(Codec.SNAPPY, b"a" * 33_000))
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    (first,) = struct.unpack_from(">i", packed, 16)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32_768


def test_snappy_without_a_frame_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT) == TEXT


def test_snappy_streams_may_be_concatenated() -> None:
    two = bytes(compress(Codec.SNAPPY, b"one")) + bytes(compress(Codec.SNAPPY, b"two"))
    assert decompress(Codec.SNAPPY, two, LIMIT) == b"onetwo"


def test_a_wrong_snappy_length_allocates_no_memory() -> None:
    with pytest.raises(CorruptData):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x", LIMIT)


def test_lz4_has_independent_blocks_as_kafka_requires() -> None:
    packed = bytes(compress(Codec.LZ4, TEXT))
    assert packed[:7] == b"\x04\x22\x4d\x18\x60\x40\x82"
    assert packed[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(packed)) == TEXT


def test_lz4_with_linked_blocks_is_read() -> None:
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT)), LIMIT) == TEXT


def test_the_lz4_header_of_magic_0_is_repaired() -> None:
    whole = bytes(compress(Codec.LZ4, TEXT))
    broken = flipped(whole, 6, 0x55)  # the wrong header checksum that clients with KAFKA-3160 write
    with pytest.raises(CorruptData):
        decompress(Codec.LZ4, broken, LIMIT)
    assert repair_lz4_header(broken) == whole
    library = bytes(cramjam.lz4.compress(TEXT))
    assert repair_lz4_header(flipped(library, 6, 0x55)) == library


@pytest.mark.parametrize(
    "data", [b"", b"\x04\x22\x4d\x18\x60\x40", b"no frame", b"\x04\x22\x4d\x18\x69\x40\x00"]
)
def test_no_lz4_frame_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData):
        repair_lz4_header(data)
