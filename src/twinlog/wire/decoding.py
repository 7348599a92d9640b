"""From the bytes of a record batch (magic 2) to its records.

A record (KIP-98), all numbers zigzag varints:

    length, attributes int8 (unused), timestampDelta, offsetDelta,
    key length (negative: null), key, value length (negative: null), value,
    number of headers, each: key length, key, value length (negative: null), value

Nothing here trusts a length: a record ends where its length says and the batch where its last
record does, or the batch is corrupt. The CRC is `record_batch.verify_crc`'s, not checked again.
"""

from __future__ import annotations

import struct
from typing import Final

from twinlog.errors import CorruptData
from twinlog.wire.compression import DECOMPRESSED_LIMIT_BYTES, decompress
from twinlog.wire.record import ControlType, Headers, Record
from twinlog.wire.record_batch import HEADER_BYTES, BatchHeader, read_header
from twinlog.wire.varint import read_varint, read_varlong

_CONTROL_KEY = struct.Struct(">hh")  # version, type
_CONTROL_TYPES: Final = {0: ControlType.ABORT, 1: ControlType.COMMIT}

_INT64_SPAN = 1 << 64
_INT64_MAX = (1 << 63) - 1
_SAFE_TERM = 1 << 62  # two terms below it cannot leave 64 bits


def decode_batch(batch: memoryview, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> list[Record]:
    """All records of exactly one batch, with absolute offsets and effective timestamps.

    Control batches decode too; what their records mean is `control_type`'s.
    """
    header, payload = _payload(batch, limit_bytes)
    records, end = _read_records(header, payload, header.count)
    if end != len(payload):
        raise CorruptData(
            f"batch at offset {header.base_offset}: {len(payload) - end} bytes are left after its "
            f"{header.count} records"
        )
    return records


def first_record(batch: memoryview, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> Record:
    """The first record that the batch still holds."""
    header, payload = _payload(batch, limit_bytes)
    records, _ = _read_records(header, payload, min(header.count, 1))
    if not records:
        raise CorruptData(f"batch at offset {header.base_offset} holds no record")
    return records[0]


def control_type(batch: memoryview) -> ControlType:
    """Whether a control batch commits or aborts; a cleaned one, without its record, is OTHER."""
    for record in decode_batch(batch):
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            raise CorruptData(f"control record at offset {record.offset}: its key is too short")
        _, number = _CONTROL_KEY.unpack_from(record.key)
        return _CONTROL_TYPES.get(number, ControlType.OTHER)
    return ControlType.OTHER


def _payload(batch: memoryview, limit_bytes: int) -> tuple[BatchHeader, bytes]:
    header = read_header(batch)
    if header.magic != 2 or header.length != len(batch):
        raise CorruptData(
            f"batch at offset {header.base_offset}: {len(batch)} bytes of magic {header.magic} are "
            f"not one whole batch of magic 2 with {header.length} bytes"
        )
    raw = batch[HEADER_BYTES:]
    if not raw:
        return header, b""  # emptied by the cleaner, which keeps the codec bits
    return header, bytes(decompress(header.codec, raw, limit_bytes))


def _read_records(header: BatchHeader, data: bytes, count: int) -> tuple[list[Record], int]:
    """The first `count` records and where they end; every failure names the record it met."""
    records: list[Record] = []
    try:
        end = _parse(header, data, count, records)
    except CorruptData as error:
        reason = error.message
    except IndexError:
        reason = "the data ends inside it"
    else:
        return records, end
    raise CorruptData(
        f"batch at offset {header.base_offset}: record {len(records)} of {header.count} is "
        f"corrupt: {reason}"
    )


def _parse(  # noqa: C901, PLR0912, PLR0915 - one loop without calls, see below
    header: BatchHeader, data: bytes, count: int, records: list[Record]
) -> int:
    """Append `count` records. Varints of one and two bytes are read in place: a call for each of a
    record's seven numbers would double the time of decoding.
    """
    base_offset, base_time = header.base_offset, header.base_timestamp
    last_delta, may_wrap = -1, not -_SAFE_TERM < base_time < _SAFE_TERM
    append, make, size, position = records.append, tuple.__new__, len(data), 0
    append_time = header.max_timestamp if header.is_log_append_time else None
    for _ in range(count):
        raw = data[position]
        if raw < 0x80:
            position += 1
            length = (raw >> 1) ^ -(raw & 1)
        elif (second := data[position + 1]) < 0x80:
            position += 2
            raw = raw & 0x7F | second << 7
            length = (raw >> 1) ^ -(raw & 1)
        else:
            length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > size:
            raise CorruptData(f"its length leads to byte {end} of {size}")

        position += 1  # attributes, of which none is defined
        raw = data[position]
        if raw < 0x80:
            position += 1
            delta = (raw >> 1) ^ -(raw & 1)
        elif (second := data[position + 1]) < 0x80:
            position += 2
            raw = raw & 0x7F | second << 7
            delta = (raw >> 1) ^ -(raw & 1)
        else:
            delta, position = read_varlong(data, position)
            may_wrap = may_wrap or not -_SAFE_TERM < delta < _SAFE_TERM
        timestamp = base_time + delta if append_time is None else append_time

        raw = data[position]
        if raw < 0x80:
            position += 1
            delta = (raw >> 1) ^ -(raw & 1)
        elif (second := data[position + 1]) < 0x80:
            position += 2
            raw = raw & 0x7F | second << 7
            delta = (raw >> 1) ^ -(raw & 1)
        else:
            delta, position = read_varint(data, position)
        if not last_delta < delta <= header.last_offset_delta:
            raise CorruptData(f"its offset delta is {delta}, after {last_delta}")
        last_delta = delta

        key: bytes | None = None
        raw = data[position]
        if raw < 0x80:
            position += 1
            length = (raw >> 1) ^ -(raw & 1)
        else:
            length, position = read_varint(data, position)
        if length >= 0:
            key = data[position : position + length]
            position += length

        value: bytes | None = None
        raw = data[position]
        if raw < 0x80:
            position += 1
            length = (raw >> 1) ^ -(raw & 1)
        elif (second := data[position + 1]) < 0x80:
            position += 2
            raw = raw & 0x7F | second << 7
            length = (raw >> 1) ^ -(raw & 1)
        else:
            length, position = read_varint(data, position)
        if length >= 0:
            value = data[position : position + length]
            position += length

        headers: Headers = ()
        if data[position]:
            headers, position = _read_headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise CorruptData(f"its fields end at byte {position}, its length says {end}")
        append(make(Record, (base_offset + delta, timestamp, key, value, headers)))
    if may_wrap and append_time is None:
        records[:] = [_wrapped(record) for record in records]
    return position


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise CorruptData(f"{count} headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = read_varint(data, position)
        if not 0 <= length <= end - position:
            raise CorruptData(f"a header key of {length} bytes, {end - position} are left")
        key = data[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        length, position = read_varint(data, position)
        value: bytes | None = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        headers.append((key, value))
    return tuple(headers), position


def _wrapped(record: Record) -> Record:
    """Java adds in 64 bits: a delta between extreme timestamps overflows there and back."""
    timestamp = (record.timestamp + _INT64_MAX + 1) % _INT64_SPAN - _INT64_MAX - 1
    return record._replace(timestamp=timestamp)
