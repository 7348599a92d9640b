"""Kafka's compression codecs for whole payloads, with a limit on the decompressed size, and
`Recompression`, which changes the codec of a batch without decoding its records.

Kafka's data differs from the plain formats in three ways:

- snappy data has the frame of a Java library: a magic and two version numbers, then blocks of raw
  snappy, each preceded by its length. Some clients write one raw block without a frame. Readers
  accept both.
- lz4 frames must have independent blocks, because Kafka's reader rejects linked ones, which lz4
  libraries write by default. So the frame is written here, with the same header bytes as Kafka's
  own writer.
- lz4 frames in messages of magic 0 have a header checksum of the wrong bytes (KAFKA-3160).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import Any, Final

import cramjam

from twinlog.errors import CorruptData
from twinlog.wire.record_batch import HEADER_BYTES, BatchHeader, Buffer, Codec, with_payload

DECOMPRESSED_LIMIT_BYTES = 256 << 20
"""Maximum size of decompressed data. It is far above any normal batch, because brokers accept 1 MiB
by default. The limit stops a decompression bomb before the process's memory is used up.
"""

ZSTD_LEVEL = 3  # Kafka's default; the default of the library, 11, is ten times slower
GZIP_LEVEL = 6

_LEAST_GUESS_BYTES = 64 << 10
_GUESSED_RATIO = 8
_LARGE_BYTES = 1 << 20
"""Buffers of at least this size are mapped, so that only written pages use memory."""
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_SMALL_BYTES = 1 << 10
_LEAST_OF_SMALL_BYTES = 4 << 10
"""Size of the first output buffer for small data, enough for one or two records. Clearing a larger
buffer would take longer than decompressing these.
"""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_LENGTH = struct.Struct(">i")

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# the bytes mean: version 1, independent blocks, no checksums; blocks of 64 KiB; checksum of both
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_STORED_BIT = 1 << 31
_LZ4_END = bytes(4)
_LITTLE_LENGTH = struct.Struct("<I")

_STREAMS: Final[dict[Codec, Any]] = {
    Codec.GZIP: cramjam.gzip,
    Codec.LZ4: cramjam.lz4,
    Codec.ZSTD: cramjam.zstd,
}


def compress(codec: Codec, data: Buffer) -> Buffer:
    """Return the compressed data, in a form that brokers and all clients can decompress."""
    if codec is Codec.NONE:
        return data
    if codec is Codec.SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec is Codec.LZ4:
        return _compress_lz4(memoryview(data))
    if codec is Codec.GZIP:
        return memoryview(cramjam.gzip.compress(data, level=GZIP_LEVEL))
    return memoryview(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(
    codec: Codec,
    data: Buffer,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> Buffer:
    """Return decompressed data. Raises CorruptData if it is damaged or exceeds `limit_bytes`."""
    if codec is Codec.NONE:
        if len(data) > limit_bytes:
            raise _too_large_error(codec, limit_bytes)
        return data
    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), limit_bytes)
    return _decompress_stream(codec, data, limit_bytes)


def repair_lz4_header(data: bytes | memoryview) -> bytes:
    """Return an lz4 frame of magic 0 with the correct header checksum (KAFKA-3160)."""
    frame = bytearray(data)
    if len(frame) < len(_LZ4_HEADER) or not frame.startswith(_LZ4_MAGIC):
        raise CorruptData("the data is not an lz4 frame")
    flags = frame[4]
    descriptor = 2 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if len(frame) <= 4 + descriptor:
        raise CorruptData("an lz4 frame ends inside its header")
    frame[4 + descriptor] = _xxh32(frame[4 : 4 + descriptor]) >> 8 & 0xFF
    return bytes(frame)


def _too_large_error(codec: Codec, limit_bytes: int) -> CorruptData:
    return CorruptData(f"{codec.name.lower()} data decompresses to more than {limit_bytes} bytes")


def _decompress_stream(codec: Codec, data: Buffer, limit_bytes: int) -> memoryview:
    """Decompress with growing buffers, because the formats need not state the decompressed size.

    The library raises the same error for a full buffer and for damaged data, with different texts.
    So after any error a larger buffer is tried, up to the limit. Damaged data is rare, because
    callers check the CRC first.
    """
    into = _STREAMS[codec].decompress_into
    least = _LEAST_GUESS_BYTES if len(data) > _SMALL_BYTES else _LEAST_OF_SMALL_BYTES
    room = max(least, _GUESSED_RATIO * len(data))
    while True:
        room = min(room, limit_bytes)
        output = bytearray(room) if room < _LARGE_BYTES else _mapped(room)
        try:
            return memoryview(output)[: into(data, output)]
        except cramjam.DecompressionError as error:
            if room >= limit_bytes:
                raise CorruptData(
                    f"{codec.name.lower()} data of {len(data)} bytes is damaged or decompresses to "
                    f"more than {limit_bytes} bytes: {error}"
                ) from None
            room *= _GUESSED_RATIO if room < _LARGE_BYTES else 2


def _mapped(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, _PRIVATE)
    except OSError as error:  # the process has reached its limit of memory or mappings
        raise MemoryError(str(error)) from None


def _compress_snappy(data: memoryview) -> bytearray:
    out = bytearray(_XERIAL_HEADER)
    for index in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(data[index : index + _XERIAL_BLOCK_BYTES]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return out


def _decompress_snappy(data: memoryview, limit_bytes: int) -> bytes | bytearray:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit_bytes, limit_bytes)
    out = bytearray()
    position = 0
    while position < len(data):
        # each concatenated stream begins with the magic, whose first bit shows that it is no length
        if bytes(data[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > len(data):
                raise CorruptData("snappy data ends inside its header")
            continue
        if len(data) - position < _BLOCK_LENGTH.size:
            raise CorruptData("snappy data ends inside the length of a block")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(data) - position:
            left = len(data) - position
            raise CorruptData(f"a snappy block has the length {length}, expected 0 to {left}")
        out += _snappy_block(
            data[position : position + length], limit_bytes - len(out), limit_bytes
        )
        position += length
    return out


def _snappy_block(block: memoryview, room: int, limit_bytes: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > room:
            raise _too_large_error(Codec.SNAPPY, limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptData(f"a snappy block of {len(block)} bytes is damaged: {error}") from None


def _compress_lz4(data: memoryview) -> bytearray:
    out = bytearray(_LZ4_HEADER)
    for index in range(0, len(data), _LZ4_BLOCK_BYTES):
        raw = data[index : index + _LZ4_BLOCK_BYTES]
        block = memoryview(cramjam.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            out += _LITTLE_LENGTH.pack(len(block))
            out += block
        else:
            out += _LITTLE_LENGTH.pack(len(raw) | _LZ4_STORED_BIT)
            out += raw
    out += _LZ4_END
    return out


def _xxh32(data: bytes | bytearray) -> int:
    """Return the xxHash32 (seed 0) of fewer than 16 bytes, which is enough for a frame header."""
    mask = 0xFFFFFFFF
    value = 374761393 + len(data)
    words = len(data) // 4 * 4
    for index in range(0, words, 4):
        value = value + int.from_bytes(data[index : index + 4], "little") * 3266489917 & mask
        value = (value << 17 | value >> 15) * 668265263 & mask
    for byte in data[words:]:
        value = value + byte * 374761393 & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompression:
    """The codec for uncompressed batches, and for all batches if `every` is True."""

    codec: Codec
    every: bool = False

    def of(self, header: BatchHeader, batch: memoryview, limit_bytes: int) -> memoryview:
        """Return the batch with this codec, or the same object if it is not recompressed.

        A batch that would exceed `limit_bytes` is not recompressed. The CRC is not set, because
        `rewrite_header` does that.
        """
        if header.codec is self.codec or (header.codec is not Codec.NONE and not self.every):
            return batch
        payload = compress(self.codec, decompress(header.codec, batch[HEADER_BYTES:]))
        if HEADER_BYTES + len(payload) > limit_bytes:
            return batch
        return memoryview(with_payload(batch, self.codec, payload))
