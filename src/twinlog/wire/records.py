"""The deep path: batches of every format to records and back.

*Records.* `Record` is one record as an object. `Rows` are many records without objects, as rows of
one or several tables (`kernels.shapes`) in order. A batch may have to be split and recombined:
around missing offsets, by size, or by key. To do this, rows are selected, and `write` copies their
bytes into a new batch. A `Record` is created only for a record that a caller requests.

*Decoding.* Batches of magic 2 become rows of a table, or objects. All callers (re-encoding,
DataFrames, and display) share one scan, which is compiled if possible (`kernels`). Data that the
compiled scan rejects is scanned again in Python. So the results and the error messages are the same
with and without the compiled kernels. The CRC is not checked here: see `record_batch.verify_crc`.

*Encoding.* Records become batches of magic 2, as a producer sends them to a broker. The bytes of a
record's key, value and headers are copied unchanged. Only its length and its two deltas depend on
the batch, so only these are encoded again (`kernels`).

*Older formats.* Message sets of magic 0 and 1 (before Kafka 0.11) are only decoded:

    offset int64, size int32, crc uint32, magic int8, attributes int8, [timestamp int64: magic 1,]
    key length int32 (negative: null), key, value length int32 (negative: null), value

A compressed message is a wrapper: its value is a message set. The offsets of the inner messages are
absolute with magic 0. With magic 1 (KIP-31) they count from 0, and the wrapper has the absolute
offset of the last inner message. If the broker set the timestamp of a wrapper (LogAppendTime,
KIP-32), that timestamp applies to all inner messages.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from twinlog.errors import CorruptData, PartitionError
from twinlog.wire.compression import (
    DECOMPRESSED_LIMIT_BYTES,
    compress,
    decompress,
    repair_lz4_header,
)
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.shapes import COLUMNS, Table
from twinlog.wire.kernels.twin import TWIN, scan_state
from twinlog.wire.primitives import append_sized, encode_varint, read_varint
from twinlog.wire.record_batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Codec,
    read_header,
    read_headers,
    rewrite_header,
    verify_crc,
)

Headers = tuple[tuple[str, bytes | None], ...]

_TIMESTAMP_AND_KEY = struct.Struct(">qi")
_VALUE = struct.Struct(">i")
_NULL = -1


class Record(NamedTuple):
    """A record as a consumer sees it. It is a tuple because the deep path creates one per record.

    `timestamp` is the effective timestamp in milliseconds, which is the broker's if the topic uses
    LogAppendTime. Header keys are UTF-8. Invalid bytes become lone surrogates, and encoding
    restores the bytes (PEP 383), so that a copied record is unchanged.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(StrEnum):
    """The outcome of a transaction, as its marker states it."""

    ABORT = "abort"
    COMMIT = "commit"
    OTHER = "other"


def fingerprint(record: Record) -> int:
    """Return a CRC32C over timestamp, key and value.

    The lengths of key and value are included. So null differs from empty, and bytes at the end of
    the key differ from the same bytes at the beginning of the value.
    """
    key, value = record.key, record.value
    crc = crc32c(
        _TIMESTAMP_AND_KEY.pack(record.timestamp, _NULL if key is None else len(key)) + (key or b"")
    )
    return crc32c((_VALUE.pack(_NULL if value is None else len(value))) + (value or b""), crc)


Part = tuple[Table, "array[int]"]

_SEEN: Final = (
    shapes.OFFSET,
    shapes.TIMESTAMP,
    shapes.KEY,
    shapes.KEY_SIZE,
    shapes.VALUE,
    shapes.VALUE_SIZE,
    shapes.HEADERS,
)
"""The columns that make up a record as a consumer sees it."""
_MANY_ROWS: Final = 1 << 12
_FIRST_ROWS: Final = array("q", range(_MANY_ROWS))
"""Row numbers from 0 on. Slicing this array is many times faster than iterating over a range."""
_FRONT_BYTES: Final = 32
"""Estimated bytes of a record's lengths, deltas and counts, which is rarely exceeded."""


class Rows:
    """Records in order. Slices share the bytes of the records."""

    __slots__ = ("_count", "parts")

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts = tuple(part for part in parts if part[1])
        self._count = sum(len(picked) for _, picked in self.parts)

    @classmethod
    def of(cls, table: Table) -> Rows:
        """Return all records of a table."""
        count = table.rows
        picked = _FIRST_ROWS[:count] if count <= _MANY_ROWS else array("q", range(count))
        return cls(((table, picked),))

    def __len__(self) -> int:
        return self._count

    def slice(self, begin: int, end: int) -> Rows:
        """Return the records with the indexes [begin, end)."""
        if begin <= 0 and end >= self._count:
            return self
        parts: list[Part] = []
        at = 0
        for table, picked in self.parts:
            selected = picked[max(0, begin - at) : max(0, end - at)]
            if selected:
                parts.append((table, selected))
            at += len(picked)
        return Rows(parts)

    def at_or_after(self, position: int) -> Rows:
        """Return the records at or after offset `position`."""
        parts: list[Part] = []
        for table, picked in self.parts:
            fresh = picked
            if not table.is_rising or table.cells[picked[0]] < position:
                offsets = table.column(shapes.OFFSET)
                fresh = array("q", (row for row in picked if offsets[row] >= position))
            if fresh:
                parts.append((table, fresh))
        return Rows(parts)

    def with_offsets(self, keeps: Callable[[int], bool]) -> Rows:
        """Return the records whose offset `keeps` accepts."""
        parts: list[Part] = []
        for table, picked in self.parts:
            offsets = table.cells  # the offsets are the first column
            parts.append((table, array("q", (row for row in picked if keeps(offsets[row])))))
        return Rows(parts)

    def partitioned(self, partitions: int) -> list[Rows]:
        """Return the records of each partition, as Kafka's Java producer partitions by key."""
        shares: list[list[Part]] = [[] for _ in range(partitions)]
        for table, picked in self.parts:
            by_partition = CHOSEN.kernels.partition(table, picked, partitions)
            for share, rows in zip(shares, by_partition, strict=True):
                if rows:
                    share.append((table, rows))
        return [Rows(share) for share in shares]

    def run_starts(self) -> list[tuple[int, int]]:
        """Return (index, offset) of the first record, and of each record after missing offsets."""
        out: list[tuple[int, int]] = []
        at, expected = 0, None
        for table, picked in self.parts:
            offsets = table.cells  # the offsets are the first column
            if offsets[picked[0]] != expected:
                out.append((at, offsets[picked[0]]))
            indexes = CHOSEN.kernels.breaks(table, picked)
            out += [(at + index, offsets[picked[index]]) for index in indexes]
            at, expected = at + len(picked), offsets[picked[-1]] + 1
        return out

    def offset(self, index: int) -> int:
        """Return the offset of the record at this index; -1 is the last record."""
        table, row = self._find(index)
        return table.cells[row]

    def offsets(self) -> array[int]:
        out = array("q")
        for table, picked in self.parts:
            cells = table.cells  # the offsets are the first column
            out.extend([cells[row] for row in picked])
        return out

    def record(self, index: int) -> Record:
        return record_of(*self._find(index))

    def records(self) -> list[Record]:
        return [record for table, picked in self.parts for record in records_of(table, picked)]

    def sizes(self) -> list[int]:
        """Return the approximate size of each record in a payload (bytes)."""
        return [
            _FRONT_BYTES + ends[row] - rests[row]
            for table, picked in self.parts
            for rests, ends in ((table.column(shapes.REST), table.column(shapes.END)),)
            for row in picked
        ]

    def first_timestamp(self) -> int:
        table, picked = self.parts[0]
        return table.cells[shapes.TIMESTAMP * table.stride + picked[0]]

    def measure(self) -> tuple[int, int, int]:
        """Return the payload size in bytes, and the least and the greatest timestamp (ms)."""
        base, size, number = self.first_timestamp(), 0, 0
        least = most = base
        for table, picked in self.parts:
            more, low, high = CHOSEN.kernels.measure(table, picked, number, base)
            size, number = size + more, number + len(picked)
            least, most = min(least, low), max(most, high)
        return size, least, most

    def write(self, out: bytearray, start: int) -> None:
        """Write the payload to `out`, from `start` to the end. `measure` returns its exact size."""
        base, number = self.first_timestamp(), 0
        for table, picked in self.parts:
            written = CHOSEN.kernels.rebuild(table, picked, number, base, out, start)
            if written < 0:
                raise ValueError("records need more room than was measured")
            start, number = start + written, number + len(picked)
        if start != len(out):
            raise ValueError("records need less room than was measured")

    def _find(self, index: int) -> tuple[Table, int]:
        if index < 0:
            index += self._count
        for table, picked in self.parts:
            if index < len(picked):
                return table, picked[index]
            index -= len(picked)
        raise IndexError(f"there is no record {index} after the last one")


def record_of(table: Table, row: int) -> Record:
    key, key_size, value, value_size, header = (
        table.cells[column * table.stride + row]
        for column in (shapes.KEY, shapes.KEY_SIZE, shapes.VALUE, shapes.VALUE_SIZE, shapes.HEADERS)
    )
    data = table.data
    return Record(
        table.cells[row],
        table.cells[shapes.TIMESTAMP * table.stride + row],
        data[key : key + key_size] if key_size >= 0 else None,
        data[value : value + value_size] if value_size >= 0 else None,
        headers_at(data, header) if data[header] else (),
    )


def records_of(table: Table, row_numbers: Sequence[int]) -> list[Record]:
    """Return the table's rows with these ascending numbers as objects."""
    data, make = table.data, tuple.__new__
    columns = [table.column(column) for column in _SEEN]
    if len(row_numbers) != table.rows:
        columns = [[column[row] for row in row_numbers] for column in columns]
    return [
        make(
            Record,
            (
                offset,
                time,
                data[key : key + key_size] if key_size >= 0 else None,
                data[value : value + value_size] if value_size >= 0 else None,
                headers_at(data, header) if data[header] else (),
            ),
        )
        for offset, time, key, key_size, value, value_size, header in zip(*columns, strict=True)
    ]


def headers_at(data: bytes, position: int) -> Headers:
    """Decode a record's headers at this position of a payload that was scanned without error."""
    count, position = read_varint(data, position)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = read_varint(data, position)
        key = data[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        length, position = read_varint(data, position)
        value: bytes | None = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        headers.append((key, value))
    return tuple(headers)


def rows_of(records: Sequence[Record]) -> Rows:
    """Return record objects as rows, for old formats and for records that Twinlog itself writes."""
    return Rows.of(table_of(records))


def table_of(records: Sequence[Record]) -> Table:
    """Return records as a table. Raises CorruptData if an offset or timestamp exceeds 64 bits."""
    data = bytearray()
    columns: list[list[int]] = [[] for _ in range(COLUMNS)]
    for offset, timestamp, key, value, headers in records:
        rest = len(data)
        key_at = append_sized(data, key)
        value_at = append_sized(data, value)
        headers_begin = len(data)
        data += encode_headers(headers) if headers else b"\x00"
        cells = (offset, timestamp, rest, key_at, _size(key), value_at, _size(value))
        for column, cell in zip(columns, (*cells, headers_begin, len(data)), strict=True):
            column.append(cell)
    flat = array("q")
    try:
        for column in columns:
            flat.fromlist(column)
    except OverflowError:
        first = records[0].offset
        raise CorruptData(
            f"messages at offset {first}: an offset or timestamp exceeds 64 bits"
        ) from None
    offsets = columns[shapes.OFFSET]
    is_rising = all(offset < next_offset for offset, next_offset in pairwise(offsets))
    return Table(bytes(data), flat, len(records), len(records), is_rising=is_rising)


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Encode the number of headers, then each header."""
    out = bytearray(encode_varint(len(headers)))
    for key, value in headers:
        append_sized(out, key.encode("utf-8", "surrogateescape"))
        append_sized(out, value)
    return bytes(out)


def encoded_content(record: Record) -> bytes:
    """Encode key, value and headers of a record as in a batch of magic 2."""
    out = bytearray()
    append_sized(out, record.key)
    append_sized(out, record.value)
    return bytes(out + encode_headers(record.headers))


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


_CONTROL_KEY = struct.Struct(">hh")  # version, type
_CONTROL_TYPES: Final = {0: ControlType.ABORT, 1: ControlType.COMMIT}
_LAST_OFFSET: Final = (1 << 63) - 1


class Scan:
    """Decodes one batch step by step: each `next` returns the records that follow."""

    def __init__(self, header: BatchHeader, batch: memoryview, limit_bytes: int) -> None:
        raw = batch[HEADER_BYTES:]
        if header.last_offset > _LAST_OFFSET:
            raise CorruptData(
                f"batch at offset {header.base_offset}: its last offset {header.last_offset} is "
                f"higher than the highest possible offset, {_LAST_OFFSET}"
            )
        self._header = header
        # a batch that the log cleaner emptied has codec bits, but no payload to decompress
        self._data = bytes(decompress(header.codec, raw, limit_bytes)) if raw else b""
        self._state = scan_state(header)

    @property
    def size(self) -> int:
        """Size of the decompressed payload in bytes."""
        return len(self._data)

    @property
    def is_over(self) -> bool:
        return not self._state[shapes.LEFT]

    def next(self, limit: int) -> Table:
        """Return at most `limit` next records. Raises CorruptData that names the bad record."""
        if not CHOSEN.is_compiled:
            return self._scanned(limit)
        before = self._state[:]
        table = CHOSEN.kernels.scan(self._data, self._state, limit)
        if table is None:
            self._state = before
            table = self._scanned(limit)
        return table

    def _scanned(self, limit: int) -> Table:
        header = self._header
        try:
            return TWIN.scan(self._data, self._state, limit)
        except CorruptData as error:
            raise CorruptData(
                f"batch at offset {header.base_offset}: record "
                f"{header.count - self._state[shapes.LEFT]} of {header.count} is corrupt: "
                f"{error.message}"
            ) from None

    def check_end(self) -> None:
        """Raise CorruptData if the payload has bytes after the last record."""
        left = len(self._data) - self._state[shapes.POSITION]
        if left:
            raise CorruptData(
                f"batch at offset {self._header.base_offset}: {left} bytes are left after its "
                f"{self._header.count} records"
            )


def decode_rows(batch: memoryview, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> Rows:
    """Return all records of exactly one batch, with absolute offsets and effective timestamps."""
    return Rows.of(decode_table(batch, limit_bytes))


def decode_batch(batch: memoryview, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> list[Record]:
    """Return the records of exactly one batch as objects.

    The records of a control batch are returned, too; `control_type` interprets them.
    """
    table = decode_table(batch, limit_bytes)
    return records_of(table, range(table.rows))


def first_record(batch: memoryview, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> Record:
    """Return the first record that is still in the batch. Raises CorruptData if there is none."""
    header = _header(batch)
    table = Scan(header, batch, limit_bytes).next(1)
    if not table.rows:
        raise CorruptData(f"batch at offset {header.base_offset} contains no record")
    return record_of(table, 0)


def control_type(batch: memoryview) -> ControlType:
    """Return the type of a control batch; OTHER if it is unknown, or the log cleaner emptied it."""
    for record in decode_batch(batch):
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            raise CorruptData(f"control record at offset {record.offset}: its key is too short")
        _, number = _CONTROL_KEY.unpack_from(record.key)
        return _CONTROL_TYPES.get(number, ControlType.OTHER)
    return ControlType.OTHER


def decode_table(batch: memoryview, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> Table:
    """Return all records of exactly one batch as a table over its decompressed payload."""
    header = _header(batch)
    scan = Scan(header, batch, limit_bytes)
    table = scan.next(header.count)
    scan.check_end()
    return table


def _header(batch: memoryview) -> BatchHeader:
    header = read_header(batch)
    if header.magic != 2 or header.length != len(batch):
        raise CorruptData(
            f"batch at offset {header.base_offset}: expected one batch of magic 2 with "
            f"{header.length} bytes, found {len(batch)} bytes of magic {header.magic}"
        )
    return header


_UNEVENNESS = 1.1
"""Factor by which the number of parts of a split batch is increased, because parts of equal size
compress differently. A part that is still too large is split again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """A batch without producer and CRC, which `record_batch.rewrite_header` sets."""

    data: bytearray
    rows: Rows
    least_timestamp: int
    most_timestamp: int


def encode_rows(rows: Rows, *, codec: Codec) -> EncodedBatch:
    """Encode the records as one dense batch. Their offsets become 0, 1, ..."""
    if not rows:
        raise ValueError("a batch needs at least one record")
    size, least, most = rows.measure()
    if codec is Codec.NONE:
        batch = bytearray(HEADER_BYTES + size)
        rows.write(batch, HEADER_BYTES)
    else:
        raw = bytearray(size)
        rows.write(raw, 0)
        payload = compress(codec, raw)
        batch = bytearray(HEADER_BYTES + len(payload))
        batch[HEADER_BYTES:] = payload
    write_header(
        batch,
        codec=codec,
        count=len(rows),
        base_timestamp=rows.first_timestamp(),
        max_timestamp=most,
    )
    return EncodedBatch(data=batch, rows=rows, least_timestamp=least, most_timestamp=most)


def write_header(
    batch: bytearray, *, codec: Codec, count: int, base_timestamp: int, max_timestamp: int
) -> None:
    """Write the header of a dense batch that already contains its payload."""
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LENGTH_PREFIX_BYTES,
        -1,  # leader epoch: set by the broker
        2,
        0,  # CRC
        codec,
        count - 1,
        base_timestamp,
        max_timestamp,
        -1,
        -1,
        -1,
        count,
    )


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Codec,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    is_transactional: bool = False,
) -> bytearray:
    """Encode the records as one dense batch with the offsets base_offset, base_offset + 1, ..."""
    batch = encode_rows(rows_of(records), codec=codec).data
    rewrite_header(
        memoryview(batch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    batch[0:8] = base_offset.to_bytes(8, "big")
    return batch


def encode_sized(
    rows: Rows, *, codec: Codec, limit_bytes: int, alone_bytes: int | None = None
) -> list[EncodedBatch]:
    """Encode the records in order, in as many batches as needed.

    A batch has at most `limit_bytes`, or at most `alone_bytes` if it contains a single record. A
    record that fits only without compression is encoded uncompressed, which every topic accepts.
    Raises PartitionError (RECORD_TOO_LARGE) if a record fits in no batch.
    """
    if not rows:
        return []
    batch = encode_rows(rows, codec=codec)
    size = len(batch.data)
    if size <= limit_bytes:
        return [batch]
    if len(rows) == 1:
        most_bytes = limit_bytes if alone_bytes is None else alone_bytes
        return [batch] if size <= most_bytes else [_encode_alone(rows, codec, most_bytes)]
    parts = max(2, math.ceil(size / limit_bytes * _UNEVENNESS)) if limit_bytes > 0 else 2
    return [
        sized
        for part in _split(rows, parts)
        for sized in encode_sized(
            part, codec=codec, limit_bytes=limit_bytes, alone_bytes=alone_bytes
        )
    ]


def _encode_alone(rows: Rows, codec: Codec, limit_bytes: int) -> EncodedBatch:
    batch = encode_rows(rows, codec=Codec.NONE)
    if len(batch.data) <= limit_bytes:
        return batch
    compressed = "" if codec is Codec.NONE else f" (also too large with {codec.name.lower()})"
    error = PartitionError(
        f"the record at offset {rows.offset(0)} makes a batch of {len(batch.data)} bytes"
        f"{compressed}, but the target topic accepts at most {limit_bytes}: "
        "raise max.message.bytes of the target topic",
        code="RECORD_TOO_LARGE",
    )
    error.poison = rows.offset(0), rows.offset(0) + 1
    raise error


def _split(rows: Rows, parts: int) -> list[Rows]:
    """Split into about `parts` (at least two) slices of about equal uncompressed size."""
    sizes = rows.sizes()
    share = sum(sizes) / parts
    runs: list[Rows] = []
    begin = filled = 0
    for index, size in enumerate(sizes):
        if index > begin and filled + size > share:
            runs.append(rows.slice(begin, index))
            begin, filled = index, 0
        filled += size
    runs.append(rows.slice(begin, len(rows)))
    # a single slice is due to rounding, so the last record becomes the second slice
    if len(runs) == 1:
        return [rows.slice(0, len(rows) - 1), rows.slice(len(rows) - 1, len(rows))]
    return runs


_LENGTH = struct.Struct(">i")
_KEY_POSITION = {0: 18, 1: 26}


def decode_legacy(buffer: memoryview, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> list[Record]:
    """Return the records of all messages in `buffer`, after checking their CRCs.

    A partial message at the end is left out. Records of magic 0 have no timestamp, so it is -1, as
    in Java.
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
            f"message at offset {header.base_offset}: a key or value ends outside the message's "
            f"{header.length} bytes"
        )
    return bytes(message[start : start + length]), start + length


def _unwrap(wrapper: BatchHeader, value: bytes | None, limit_bytes: int) -> list[Record]:
    where = f"compressed message at offset {wrapper.base_offset}"
    if value is None:
        raise CorruptData(f"{where} has no value")
    if wrapper.codec is Codec.ZSTD:
        raise CorruptData(f"{where} has the codec zstd, which its format does not support")
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
    # a wrapper with offset 0 was not numbered by the broker, so the inner offsets are not changed
    if wrapper.magic == 0 or wrapper.base_offset == 0:
        return records
    base_offset = wrapper.base_offset - records[-1].offset
    if base_offset < 0:
        raise CorruptData(
            f"compressed message at offset {wrapper.base_offset} has {records[-1].offset} as its "
            f"last relative offset, expected at most {wrapper.base_offset}"
        )
    return [record._replace(offset=base_offset + record.offset) for record in records]
