"""From records to the bytes of a record batch (magic 2), as a broker takes them from a producer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

from crc32c import crc32c

from twinlog.errors import PartitionError
from twinlog.wire.compression import compress
from twinlog.wire.record import Record
from twinlog.wire.record_batch import (
    ATTRIBUTES_POSITION,
    CRC,
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    Codec,
)
from twinlog.wire.varint import encode_varint

_NULL_LENGTH = encode_varint(-1)
_NO_HEADERS = b"\x00"
_INT64_SPAN = 1 << 64
_INT64_MAX = (1 << 63) - 1
_MOST_NUMBERS_BYTES = 32
"""What a record's own lengths, deltas and counts rarely exceed."""
_UNEVENNESS = 1.1
"""Parts of equal raw size compress differently; a part that is too large still is split again."""


class TimestampType(IntEnum):
    """Whose clock the timestamps of a batch are from: a bit of its attributes."""

    CREATE = 0
    LOG_APPEND = LOG_APPEND_TIME_BIT


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Codec,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    timestamp_type: TimestampType = TimestampType.CREATE,
) -> bytearray:
    """One batch of all records, dense: their offsets become base_offset, base_offset + 1, ..."""
    if not records:
        raise ValueError("a batch needs at least one record")
    payload = compress(codec, _encode_records(records))
    batch = bytearray(HEADER_BYTES + len(payload))
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_PREFIX_BYTES,
        -1,  # leader epoch: the broker's
        2,
        0,  # CRC: below
        codec | timestamp_type,
        len(records) - 1,
        records[0].timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch[HEADER_BYTES:] = payload
    CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return batch


def encode_sized(records: Sequence[Record], *, codec: Codec, limit_bytes: int) -> list[bytearray]:
    """All records in order, in as many batches as it takes for each to be within `limit_bytes`.

    A record that fits only without compression is sent without: its topic would take it so, too.
    """
    if not records:
        return []
    batch = encode_batch(records, codec=codec)
    if len(batch) <= limit_bytes:
        return [batch]
    if len(records) == 1:
        return [_encode_alone(records[0], codec, limit_bytes)]
    parts = max(2, math.ceil(len(batch) / limit_bytes * _UNEVENNESS)) if limit_bytes > 0 else 2
    return [
        sized
        for part in _split(records, parts)
        for sized in encode_sized(part, codec=codec, limit_bytes=limit_bytes)
    ]


def _encode_alone(record: Record, codec: Codec, limit_bytes: int) -> bytearray:
    batch = encode_batch([record], codec=Codec.NONE)
    if len(batch) <= limit_bytes:
        return batch
    compressed = "" if codec is Codec.NONE else f" (nor does {codec.name.lower()} help)"
    raise PartitionError(
        f"the record at offset {record.offset} makes a batch of {len(batch)} bytes{compressed}, "
        f"the target takes {limit_bytes}: raise max.message.bytes of the target topic",
        code="RECORD_TOO_LARGE",
    )


def _split(records: Sequence[Record], parts: int) -> list[Sequence[Record]]:
    """At least two runs of about equal raw size; none is empty."""
    sizes = [_raw_size(record) for record in records]
    share = sum(sizes) / parts
    runs: list[Sequence[Record]] = []
    begin = filled = 0
    for index, size in enumerate(sizes):
        if index > begin and filled + size > share:
            runs.append(records[begin:index])
            begin, filled = index, 0
        filled += size
    runs.append(records[begin:])
    if len(runs) == 1:  # rounding: the last record alone would have been the second run
        return [records[:-1], records[-1:]]
    return runs


def _raw_size(record: Record) -> int:
    size = _MOST_NUMBERS_BYTES + len(record.key or b"") + len(record.value or b"")
    for key, value in record.headers:
        size += _MOST_NUMBERS_BYTES + len(key) + len(value or b"")
    return size


def _encode_records(records: Sequence[Record]) -> bytearray:
    base_time = records[0].timestamp
    out = bytearray()
    for offset_delta, (_, timestamp, key, value, headers) in enumerate(records):
        time_delta = timestamp - base_time
        if not -_INT64_MAX <= time_delta <= _INT64_MAX:
            # as Java's 64 bits do it; a reader's addition overflows back
            time_delta = (time_delta + _INT64_MAX + 1) % _INT64_SPAN - _INT64_MAX - 1
        body = b"".join(
            (
                b"\x00",  # attributes
                encode_varint(time_delta),
                encode_varint(offset_delta),
                _NULL_LENGTH if key is None else encode_varint(len(key)),
                key or b"",
                _NULL_LENGTH if value is None else encode_varint(len(value)),
                value or b"",
                _encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        out += encode_varint(len(body))
        out += body
    return out


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    out = bytearray(encode_varint(len(headers)))
    for key, value in headers:
        raw = key.encode("utf-8", "surrogateescape")
        out += encode_varint(len(raw))
        out += raw
        if value is None:
            out += _NULL_LENGTH
        else:
            out += encode_varint(len(value))
            out += value
    return bytes(out)
