"""One record as an object (`Record`), and many records without objects (`Rows`), as rows of one or
several tables (`kernels.shapes`) in order.

A batch may have to be split and recombined: around missing offsets, by size, or by key. To do this,
rows are selected, and `write` copies their bytes into a new batch. A `Record` is created only for a
record that a caller requests.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from twinlog.errors import CorruptData
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.shapes import COLUMNS, Table
from twinlog.wire.primitives import append_sized, encode_varint, read_varint

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
