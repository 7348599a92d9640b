"""Decodes record batches to Arrow columns, without an object for each record.

`wire.records` scans a batch once, with a compiled kernel if there is one. Only the requested
columns are gathered from the resulting table. So the columns have no influence on whether a batch
is valid, which `wire.records` decides.

Rows are returned in chunks of at most CHUNK_ROWS and some bytes, even if a single batch claims to
have millions of records. Memory is bounded by a chunk and a batch's payload (at most
DECOMPRESSED_LIMIT_BYTES).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from twinlog.mirror.map.origins import NO_ORIGIN, Origins, OriginStretch
from twinlog.model import TopicPartition
from twinlog.records.columns import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    UPSTREAM,
    VALUE,
)
from twinlog.wire.compression import DECOMPRESSED_LIMIT_BYTES
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.shapes import Table
from twinlog.wire.kernels.twin import TWIN
from twinlog.wire.record_batch import BatchHeader
from twinlog.wire.records import Scan, decode_legacy, table_of

CHUNK_ROWS: Final = 16_384
CHUNK_BYTES: Final = 16 << 20
"""Maximum payload of a chunk, unless a single row is larger. Arrow's own limit is 2 GiB."""

FEW_ROWS: Final = 16
"""Average rows per batch below which a kernel call is slower than an object for each value."""

NO_TIMESTAMP_TYPE: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

_MOST_MS: Final = ((1 << 63) - 1) // 1000
"""Largest time in ms, because Spark's timestamps are microseconds in 64 bits."""


HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
ORIGIN: Final = pa.struct(
    [
        ("cluster", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")

ARROW_TYPES: Final = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: MICROSECONDS,
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: pa.list_(pa.field("element", HEADER)),
    UPSTREAM: ORIGIN,
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns that Spark expects."""
    return pa.schema([(name, ARROW_TYPES[name]) for name in columns])


class _Part(NamedTuple):
    """Rows [first, end) of a table, with their timestamp type and what `_upstream` is computed
    from.
    """

    table: Table
    first: int
    end: int
    kind: int
    stretches: Sequence[OriginStretch]


class ColumnDecoder:
    """Gathers rows of one partition: call `decode_batch` for each batch, then `last_chunk`."""

    def __init__(
        self,
        tp: TopicPartition,
        columns: Sequence[str],
        limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
        *,
        origins: Origins | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        unpacked: Callable[[int], object] = lambda _: None,
    ) -> None:
        """`unpacked` is called with each batch's payload size, before its rows are returned."""
        self._tp = tp
        self._limit_bytes, self._chunk_bytes = limit_bytes, chunk_bytes
        self._unpacked = unpacked
        self._columns = tuple(columns)
        self._origins = origins if origins is not None and UPSTREAM in columns else None
        self._schema = arrow_schema(columns)
        self.taken = 0
        """Number of rows that `decode_batch` has added."""
        self._clear()

    def _clear(self) -> None:
        self._parts: list[_Part] = []
        self._rows = self._bytes = 0

    def decode_batch(
        self, header: BatchHeader, batch: memoryview, first: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        """Add the records of a data batch whose offsets are in [first, end), and yield full chunks.

        `batch` has exactly this batch's bytes, with its CRC checked. Raises CorruptData.
        """
        if header.magic < 2:
            self._take_legacy(header, batch, first, end)
        else:
            yield from self._take_records(header, batch, first, end)
        if self._is_full:
            yield from self.last_chunk()

    @property
    def _is_full(self) -> bool:
        return self._rows >= CHUNK_ROWS or self._bytes >= self._chunk_bytes

    def last_chunk(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows gathered since the last chunk, if there are any."""
        if self._rows:
            yield self._chunk()
        self._clear()

    def _take_legacy(self, header: BatchHeader, batch: memoryview, first: int, end: int) -> None:
        """Decode the rare formats v0 and v1 through an object for each record."""
        records = [
            record
            for record in decode_legacy(batch, self._limit_bytes)
            if first <= record.offset < end
        ]
        kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        kind = NO_TIMESTAMP_TYPE if header.magic == 0 else kind
        table = table_of(records)
        part = _Part(table, 0, len(records), kind, self._stretches(header, first))
        self._add(part, len(table.data))

    def _take_records(
        self, header: BatchHeader, batch: memoryview, first: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        stretches = self._stretches(header, first)
        scan = Scan(header, batch, self._limit_bytes)
        self._unpacked(scan.size)
        while not scan.is_over:
            table = scan.next(CHUNK_ROWS - self._rows)
            offsets, ends = table.column(shapes.OFFSET), table.column(shapes.END)
            at, until = bisect_left(offsets, first), bisect_left(offsets, end)
            while at < until:
                begin = ends[at - 1] if at else table.cells[shapes.REST * table.stride]
                room = begin + self._chunk_bytes - self._bytes
                stop = max(at + 1, bisect_right(ends, room, at, until))
                self._add(_Part(table, at, stop, kind, stretches), ends[stop - 1] - begin)
                at = stop
                if self._is_full or at < until:
                    yield from self.last_chunk()
        scan.check_end()
        if scan.size > self._chunk_bytes:  # the remaining rows would keep the payload in memory
            yield from self.last_chunk()

    def _stretches(self, header: BatchHeader, first: int) -> Sequence[OriginStretch]:
        return () if self._origins is None else self._origins.stretches(header, first)

    def _add(self, part: _Part, size: int) -> None:
        if part.first < part.end:
            self._parts.append(part)
            self._rows += part.end - part.first
            self.taken += part.end - part.first
            self._bytes += size

    def _chunk(self) -> pa.RecordBatch:
        """Return the columns of all gathered batches together. A topic that is written row by row
        has a batch for each row, and separate arrays per batch would cost more than everything
        else.
        """
        arrays = [self._array(name, self._parts) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, parts: Sequence[_Part]) -> pa.Array:
        column: pa.Array
        match name:
            case "key":
                column = _bytes_array(parts, shapes.KEY)
            case "value":
                column = _bytes_array(parts, shapes.VALUE)
            case "topic":
                topic = self._tp.topic.encode()
                ends = array("i", range(0, len(topic) * self._rows + 1, len(topic)))
                column = _array_of_buffers(pa.string(), self._rows, ends, topic * self._rows)
            case "partition":
                column = number_array(array("i", [self._tp.partition]) * self._rows, pa.int32())
            case "offset":
                column = number_array(_cells(parts, shapes.OFFSET), pa.int64())
            case "timestamp":
                column = _timestamps(_cells(parts, shapes.TIMESTAMP))
            case "timestampType":
                column = _kinds(parts)
            case "_upstream":
                column = _upstreams(parts, self._origins)
            case _:
                column = _headers_array(parts)
        return column


def _bytes_array(parts: Sequence[_Part], column: int) -> pa.Array:
    rows = sum(part.end - part.first for part in parts)
    if rows < FEW_ROWS * len(parts):
        return binary_array([value for part in parts for value in _values(part, column)])
    arrays = [_gathered(part, column) for part in parts]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _gathered(part: _Part, column: int) -> pa.Array:
    out, ends, present, nulls = CHOSEN.kernels.gather(part.table, column, part.first, part.end)
    return _array_of_buffers(
        pa.binary(), part.end - part.first, ends, out, present if nulls else None
    )


def binary_array(values: Sequence[bytes | None]) -> pa.Array:
    """Return an array of bytes, without `pa.array`, which would load pandas."""
    ends = array("i", accumulate((len(value) if value else 0 for value in values), initial=0))
    present = None
    if None in values:
        present = bytearray(-(-len(values) // 8))
        for row, cell in enumerate(values):
            if cell is not None:
                present[row >> 3] |= 1 << (row & 7)
    return _array_of_buffers(
        pa.binary(), len(values), ends, b"".join(filter(None, values)), present
    )


def _array_of_buffers(
    kind: Any, rows: int, ends: Any, data: Any, present: bytearray | None = None
) -> pa.Array:
    """Build an array from buffers, because `pa.array` and `pa.scalar` would load pandas, which
    takes half a second in a new worker.
    """
    held = None if present is None else pa.py_buffer(present)
    return pa.Array.from_buffers(kind, rows, [held, pa.py_buffer(ends), pa.py_buffer(data)])


def _values(part: _Part, column: int) -> list[bytes | None]:
    table, first, end = part.table, part.first, part.end
    data = table.data
    return [
        data[at : at + size] if size >= 0 else None
        for at, size in zip(
            table.column(column, first, end), table.column(column + 1, first, end), strict=True
        )
    ]


def _cells(parts: Sequence[_Part], column: int) -> array[int]:
    out = array("q")
    for part in parts:
        out.extend(part.table.column(column, part.first, part.end))
    return out


def number_array(cells: array[int], kind: Any) -> pa.Array:
    """Return an Arrow array of numbers that shares the memory of `cells`."""
    return pa.Array.from_buffers(kind, len(cells), [None, pa.py_buffer(cells)])


def _timestamps(times: array[int]) -> pa.Array:
    try:
        return number_array(times, MILLISECONDS).cast(MICROSECONDS)
    except pa.ArrowInvalid:  # Spark has no value for a time that is more than 292,000 years away
        known = [t if -_MOST_MS <= t <= _MOST_MS else None for t in times]
        return pa.array(known, MILLISECONDS).cast(MICROSECONDS)


def _kinds(parts: Sequence[_Part]) -> pa.Array:
    out = array("i")
    for kind, same_kind in groupby(parts, key=lambda part: part.kind):
        out.extend(array("i", [kind]) * sum(part.end - part.first for part in same_kind))
    return number_array(out, pa.int32())


def _upstreams(parts: Sequence[_Part], origins: Origins | None) -> pa.Array:
    """Return the column `_upstream`, computed from offsets without an object for each record."""
    known = [] if origins is None else origins.known
    nobody = len(known)
    numbers, distances = array("i"), array("q")
    for part in parts:
        offsets = part.table.column(shapes.OFFSET, part.first, part.end)
        ends = [bisect_left(offsets, stretch.begin) for stretch in part.stretches[1:]]
        at = 0
        for stretch, end in zip(part.stretches, [*ends, len(offsets)], strict=True):
            number = nobody if stretch.origin == NO_ORIGIN else stretch.origin
            numbers.extend(array("i", [number]) * (end - at))
            distances.extend(array("q", [stretch.distance]) * (end - at))
            at = end
    number = number_array(numbers, pa.int32())
    is_nobody = compute.equal(number, nobody)
    offset = compute.add(
        number_array(_cells(parts, shapes.OFFSET), pa.int64()), number_array(distances, pa.int64())
    )
    columns = [
        pa.array([*(origin.cluster for origin in known), None], pa.string()).take(number),
        pa.array([*(origin.source.topic for origin in known), None], pa.string()).take(number),
        pa.array([*(origin.source.partition for origin in known), None], pa.int32()).take(number),
        compute.if_else(is_nobody, pa.scalar(None, pa.int64()), offset),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(ORIGIN), mask=is_nobody)


def _headers_array(parts: Sequence[_Part]) -> pa.Array:
    rows = sum(part.end - part.first for part in parts)
    if rows < FEW_ROWS * len(parts):
        encoded = [
            part.table.data[at:end]
            for part in parts
            for at, end in zip(*_header_bounds(part), strict=True)
        ]
        ends = array("q", accumulate(map(len, encoded), initial=0))
        return _header_lists(b"".join(encoded), ends[:-1], ends[1:])
    arrays = [
        _header_lists(part.table.data, *(array("q", bounds) for bounds in _header_bounds(part)))
        for part in parts
    ]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _header_bounds(part: _Part) -> tuple[Sequence[int], Sequence[int]]:
    """Return (begins, ends): the positions at which the headers of each row begin and end."""
    table, first, end = part.table, part.first, part.end
    return table.column(shapes.HEADERS, first, end), table.column(shapes.END, first, end)


def _header_lists(data: bytes, starts: array[int], ends: array[int]) -> pa.Array:
    unpacked = CHOSEN.kernels.unpack_headers(data, starts, ends)
    if unpacked is None:  # the kernel refuses the headers, usually because a key is not UTF-8
        unpacked = TWIN.unpack_headers(data, starts, ends)
    keys = _array_of_buffers(pa.string(), unpacked.headers, unpacked.key_ends, unpacked.keys)
    present = unpacked.value_present if unpacked.value_nulls else None
    values = _array_of_buffers(
        pa.binary(), unpacked.headers, unpacked.value_ends, unpacked.values, present
    )
    header = pa.Array.from_buffers(HEADER, unpacked.headers, [None], children=[keys, values])
    held = pa.py_buffer(unpacked.present) if unpacked.nulls else None
    return pa.Array.from_buffers(
        ARROW_TYPES[HEADERS], len(starts), [held, pa.py_buffer(unpacked.ends)], children=[header]
    )
