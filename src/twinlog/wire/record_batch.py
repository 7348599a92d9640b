"""Record batches as bytes: headers are read, checked and rewritten; records are not decoded.

This is the shallow path, and the reason why a copy is cheap: a batch of any size is copied by
changing a few of its first 61 bytes. A batch consists of this header and a payload (KIP-98,
"magic 2"):

    offset  field                                offset  field
    0       baseOffset int64                     27      baseTimestamp int64
    8       batchLength int32 (bytes after it)   35      maxTimestamp int64
    12      partitionLeaderEpoch int32           43      producerId int64
    16      magic int8                           51      producerEpoch int16
    17      crc uint32                           53      baseSequence int32
    21      attributes int16                     57      recordCount int32

The CRC32C covers byte 21 to the end. The broker sets baseOffset and partitionLeaderEpoch, so the
CRC does not protect these two. Older formats ("magic" 0 and 1, before Kafka 0.11) have offset,
length and magic at the same positions, so one loop reads a log that contains all of them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from twinlog.errors import CorruptData

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12  # baseOffset and batchLength, which are not included in batchLength
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21  # the CRC32C covers the bytes from here on
PRODUCER_POSITION = 43

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qi")
_LENGTH = struct.Struct(">i")
CRC = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")
_LEGACY_V0 = struct.Struct(">qiIbB")
_LEGACY_V1 = struct.Struct(">qiIbBq")

# least batchLength by magic: 0 and 1 have crc, magic, attributes, [timestamp,] and two lengths
_LEAST_LENGTH = {0: 14, 1: 22, 2: HEADER_BYTES - LENGTH_PREFIX_BYTES}
_LEAST_LENGTH_OF_ALL = 14

_KEPT_ATTRIBUTES = 0xFF & ~(TRANSACTIONAL_BIT | DELETE_HORIZON_BIT)
_ZERO_OFFSET = bytes(8)
_UNKNOWN_COUNT = -1


class Codec(IntEnum):
    """Compression codecs, by their numbers in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The header of one batch. It is a tuple because the copy loop creates one for every batch.

    With magic 0 and 1, each message is a batch. `base_offset` is then the message's offset (the
    LAST inner offset if the message is compressed), and `count` is 1, or -1 if the message is
    compressed.
    """

    base_offset: int
    length: int
    """The size of the whole batch, including the 12 bytes that batchLength does not count."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not needed here

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch. Compaction removes records without changing this offset, so
        `count` may be less than `next_offset - base_offset`.
        """
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        try:
            return Codec(self.attributes & CODEC_MASK)
        except ValueError:
            raise CorruptData(
                f"batch at offset {self.base_offset}: {self.attributes & CODEC_MASK} "
                "is not a compression codec of Kafka"
            ) from None

    @property
    def is_control(self) -> bool:
        """True if the broker itself wrote the batch, usually as a transaction marker.

        Batches of magic 0 and 1 are never control batches, whatever their attributes are.
        """
        return self.attributes & CONTROL_BIT != 0 and self.magic >= 2

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_dense(self) -> bool:
        """True if every offset has a record. Brokers accept only dense batches from producers."""
        return self.last_offset_delta + 1 == self.count


def read_headers(buffer: memoryview, start: int = 0) -> Iterator[tuple[BatchHeader, int]]:
    """Yield header and position of each whole batch in a Fetch response.

    A partial batch at the end is left out. Raises CorruptData if a length, count or magic is
    invalid. CRCs are not checked: see `verify_crc`.
    """
    position, end = start, len(buffer)
    unpack = HEADER.unpack_from
    while end - position > MAGIC_POSITION:
        if buffer[position + MAGIC_POSITION] != 2 or end - position < HEADER_BYTES:
            legacy = _read_legacy_header(buffer, position)
            if legacy is None:
                return
            yield legacy, position
            position += legacy.length
            continue
        (offset, length, epoch, _, crc, attributes, last_delta, base_time, max_time,
         producer, producer_epoch, sequence, count) = unpack(buffer, position)  # fmt: skip
        length += LENGTH_PREFIX_BYTES
        if (
            length < HEADER_BYTES
            or offset < 0
            or last_delta < 0
            or not 0 <= count <= last_delta + 1
        ):
            raise CorruptData(
                f"batch at byte {position}: its header is invalid (base offset {offset}, length "
                f"{length}, last offset delta {last_delta}, {count} records)"
            )
        if length > end - position:
            return
        yield BatchHeader(
            offset, length, epoch, 2, crc, attributes, last_delta, base_time, max_time,
            producer, producer_epoch, sequence, count,
        ), position  # fmt: skip
        position += length
    if end - position >= LENGTH_PREFIX_BYTES:
        _check_prefix(buffer, position)


def read_header(batch: memoryview) -> BatchHeader:
    """Return the header of the first batch, which must be complete."""
    for header, _ in read_headers(batch):
        return header
    raise CorruptData(f"batch at byte 0 is truncated: {len(batch)} bytes left")


def verify_crc(buffer: memoryview, position: int, header: BatchHeader) -> None:
    """Raise CorruptData if the checksum in the header does not match the bytes."""
    end = position + header.length
    if end > len(buffer):
        raise CorruptData(
            f"batch at offset {header.base_offset} is truncated after "
            f"{len(buffer) - position} of {header.length} bytes"
        )
    if header.magic == 2:
        actual = crc32c(buffer[position + ATTRIBUTES_POSITION : end])
    else:
        actual = zlib.crc32(buffer[position + MAGIC_POSITION : end])
    if actual != header.crc:
        raise CorruptData(
            f"batch at offset {header.base_offset} (byte {position}, {header.length} bytes, magic "
            f"{header.magic}) is corrupt: its CRC is {actual:#010x}, but its header has "
            f"{header.crc:#010x}"
        )


def rewrite_header(
    batch: memoryview,
    *,
    producer_id: int,
    producer_epoch: int = 0,
    base_sequence: int,
    is_transactional: bool = False,
) -> None:
    """Change a fetched batch into a batch of this producer, in place.

    `batch` is writable and contains exactly one batch.

    - baseOffset becomes 0. A broker rejects other values with INVALID_RECORD, and assigns the real
      offset itself.
    - The transactional bit is cleared, because the source's transaction does not exist on the
      target. `is_transactional` sets it for a transaction of this producer.
    - The delete-horizon bit is cleared, because only the target's log cleaner may set it.
      baseTimestamp is kept, because record timestamps are deltas to it with and without that bit.
    """
    if (
        batch[MAGIC_POSITION] != 2
        or batch[ATTRIBUTES_POSITION + 1] & CONTROL_BIT
        or _LENGTH.unpack_from(batch, 8)[0] + LENGTH_PREFIX_BYTES != len(batch)
    ):
        raise ValueError("only a whole data batch of magic 2 can be rewritten")
    batch[0:8] = _ZERO_OFFSET
    batch[ATTRIBUTES_POSITION + 1] &= _KEPT_ATTRIBUTES
    if is_transactional:
        batch[ATTRIBUTES_POSITION + 1] |= TRANSACTIONAL_BIT
    _PRODUCER.pack_into(batch, PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    CRC.pack_into(batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))


def with_payload(head: memoryview, codec: Codec, payload: Buffer) -> bytearray:
    """Return a batch with this payload and codec. The rest of its header is that of the batch
    `head`, but the CRC is not set.
    """
    out = bytearray(head[:HEADER_BYTES])
    out += payload
    _LENGTH.pack_into(out, 8, len(out) - LENGTH_PREFIX_BYTES)
    out[ATTRIBUTES_POSITION + 1] = out[ATTRIBUTES_POSITION + 1] & ~CODEC_MASK | codec
    return out


def _check_prefix(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return (offset, total length). Raises CorruptData if they are invalid for every magic."""
    offset, length = _PREFIX.unpack_from(buffer, position)
    if length < _LEAST_LENGTH_OF_ALL or offset < 0:
        raise CorruptData(
            f"batch at byte {position} is invalid: it has offset {offset} and length {length}"
        )
    return offset, length + LENGTH_PREFIX_BYTES


def _read_legacy_header(buffer: memoryview, position: int) -> BatchHeader | None:
    """Return the header of a message of magic 0 or 1, or None if the buffer ends inside it."""
    offset, length = _check_prefix(buffer, position)
    magic = buffer[position + MAGIC_POSITION]
    least = _LEAST_LENGTH.get(magic)
    if least is None or length < least + LENGTH_PREFIX_BYTES:
        raise CorruptData(
            f"batch at byte {position} (offset {offset}) is invalid: it has magic {magic} and "
            f"length {length}"
        )
    if length > len(buffer) - position:
        return None
    timestamp = -1
    if magic == 0:
        _, _, crc, _, attributes = _LEGACY_V0.unpack_from(buffer, position)
    else:
        _, _, crc, _, attributes, timestamp = _LEGACY_V1.unpack_from(buffer, position)
    count = _UNKNOWN_COUNT if attributes & CODEC_MASK else 1
    return BatchHeader(
        offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, count
    )
