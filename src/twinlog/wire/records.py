"""Public interface of the deep path: batches of every format to records and back.

This module itself decodes message sets of magic 0 and 1 (before Kafka 0.11):

    offset int64, size int32, crc uint32, magic int8, attributes int8, [timestamp int64: magic 1,]
    key length int32 (negative: null), key, value length int32 (negative: null), value

A compressed message is a wrapper: its value is a message set. The offsets of the inner messages are
absolute with magic 0. With magic 1 (KIP-31) they count from 0, and the wrapper has the absolute
offset of the last one. If the broker set the timestamp of a wrapper (LogAppendTime, KIP-32), it
applies to all inner messages.
"""

from __future__ import annotations

import struct

from twinlog.errors import CorruptData
from twinlog.wire.compression import DECOMPRESSED_LIMIT_BYTES, decompress, repair_lz4_header
from twinlog.wire.decoding import control_type, decode_batch, decode_rows, first_record
from twinlog.wire.encoding import Encoded, encode_batch, encode_rows, encode_sized
from twinlog.wire.record import ControlType, Headers, Record, fingerprint
from twinlog.wire.record_batch import BatchHeader, Codec, read_headers, verify_crc
from twinlog.wire.rows import Rows, rows_of

__all__ = [
    "ControlType",
    "Encoded",
    "Headers",
    "Record",
    "Rows",
    "control_type",
    "decode_batch",
    "decode_legacy",
    "decode_rows",
    "encode_batch",
    "encode_rows",
    "encode_sized",
    "fingerprint",
    "first_record",
    "rows_of",
]


_LENGTH = struct.Struct(">i")
_KEY_POSITION = {0: 18, 1: 26}


def decode_legacy(buffer: memoryview, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> list[Record]:
    """Return the records of all messages in `buffer`, after checking their CRCs.

    A partial message at the end is left out. Records of magic 0 have no timestamp: it is -1, as in
    Java.
    """
    records: list[Record] = []
    for header, position in read_headers(buffer):
        message = buffer[position : position + header.length]
        key, value = _key_and_value(message, header)
        if header.codec is Codec.NONE:
            records.append(Record(header.base_offset, header.base_timestamp, key, value))
        else:
            records += _unwrap(header, value, limit_bytes)
    return records


def _key_and_value(message: memoryview, header: BatchHeader) -> tuple[bytes | None, bytes | None]:
    if header.magic not in _KEY_POSITION:
        raise CorruptData(
            f"message at offset {header.base_offset} has magic {header.magic}, not 0 or 1"
        )
    verify_crc(message, 0, header)
    key, position = _read_sized(message, _KEY_POSITION[header.magic], header)
    value, position = _read_sized(message, position, header)
    if position != len(message):
        raise CorruptData(
            f"message at offset {header.base_offset}: {len(message) - position} bytes are left "
            "after its value"
        )
    return key, value


def _read_sized(
    message: memoryview, position: int, header: BatchHeader
) -> tuple[bytes | None, int]:
    start = position + _LENGTH.size
    length = _LENGTH.unpack_from(message, position)[0] if start <= len(message) else len(message)
    if length < 0:
        return None, start
    if start + length > len(message):
        raise CorruptData(
            f"message at offset {header.base_offset}: a key or value ends outside its "
            f"{header.length} bytes"
        )
    return bytes(message[start : start + length]), start + length


def _unwrap(wrapper: BatchHeader, value: bytes | None, limit_bytes: int) -> list[Record]:
    where = f"compressed message at offset {wrapper.base_offset}"
    if value is None or wrapper.codec is Codec.ZSTD:
        raise CorruptData(
            f"{where} has no value, or the codec zstd, which its format does not support"
        )
    if wrapper.magic == 0 and wrapper.codec is Codec.LZ4:
        value = repair_lz4_header(value)
    inner = memoryview(decompress(wrapper.codec, value, limit_bytes))
    records, end = [], 0
    for header, position in read_headers(inner):
        end = position + header.length
        if header.codec is not Codec.NONE:
            raise CorruptData(f"{where} contains another compressed message")
        key, inner_value = _key_and_value(inner[position:end], header)
        timestamp = header.base_timestamp
        if header.magic == 1 and wrapper.is_log_append_time:
            timestamp = wrapper.base_timestamp
        records.append(Record(header.base_offset, timestamp, key, inner_value))
    if not records or end != len(inner):
        raise CorruptData(f"{where}: its last {len(inner) - end} bytes are not a whole message")
    return _absolute(wrapper, records)


def _absolute(wrapper: BatchHeader, records: list[Record]) -> list[Record]:
    # a wrapper with offset 0 was not numbered by the broker, so the offsets inside are kept
    if wrapper.magic == 0 or wrapper.base_offset == 0:
        return records
    base_offset = wrapper.base_offset - records[-1].offset
    if base_offset < 0:
        raise CorruptData(
            f"compressed message at offset {wrapper.base_offset} has {records[-1].offset} as its "
            "last relative offset"
        )
    return [record._replace(offset=base_offset + record.offset) for record in records]
