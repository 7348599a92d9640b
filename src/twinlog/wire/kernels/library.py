"""Loads and calls the compiled kernels.

They are a shared library beside this file, built when Twinlog is installed (`hatch_build.py`). The
library does not use Python's API, so one library serves every Python version. Loading takes some
milliseconds, and lanes share the library's pages. Nothing is compiled or written when a lane
starts. Every call passes the size of each buffer.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.shapes import (
    COLUMNS,
    BatchRewrite,
    HeaderColumns,
    JoinState,
    RewrittenBatches,
    ScanState,
    Strings,
    Table,
)
from twinlog.wire.kernels.twin import TWIN

NAME: Final = "kernels.so"
VERSION: Final = 5
"""Version of the functions and their arguments. `kernels.c` has the same number."""

_BAD: Final = -1
_LENGTHS: Final = 5 + 5 + 1
"""Maximum bytes of key length, value length and header count in a record without headers."""
_REWRITE: Final = struct.Struct("=10q")
_REWRITTEN: Final = struct.Struct("=8q")
_AT, _SIZE, _BYTES = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
_FUNCTIONS: Final[dict[str, Sequence[Any]]] = {
    "twinlog_version": (),
    "twinlog_prepare": (),
    "twinlog_scan": (_BYTES, _SIZE, _AT, _SIZE, _AT, _SIZE),
    "twinlog_measure": (_AT, _SIZE, _AT, _SIZE, _SIZE, _SIZE, _AT),
    "twinlog_rebuild": (_BYTES, _SIZE, _AT, _SIZE, _AT, _SIZE, _SIZE, _SIZE, _AT, _SIZE),
    "twinlog_breaks": (_AT, _AT, _SIZE, _AT),
    "twinlog_place": (_BYTES, _SIZE, _AT, _SIZE, _AT, _SIZE, _SIZE, _AT, _AT, _AT),
    "twinlog_gather": (_BYTES, _SIZE, _AT, _AT, _SIZE, _AT, _SIZE, _AT, _AT),
    "twinlog_pack": (*(_BYTES, _SIZE, _AT, _AT) * 3, _AT, _SIZE, _AT, _SIZE, _AT),
    "twinlog_measure_headers": (_BYTES, _SIZE, _AT, _AT, _SIZE, _AT),
    "twinlog_unpack_headers": (_BYTES, _SIZE, _AT, _AT, _SIZE, *(_AT,) * 8),
    "twinlog_pack_headers": (
        *(_BYTES, _SIZE, _AT, _AT) * 2,
        _SIZE,
        _AT,
        _SIZE,
        _AT,
        _SIZE,
        _AT,
        _AT,
    ),
    "twinlog_join": (_AT, _SIZE, _AT, _AT, _SIZE),
    "twinlog_rewrite": (_AT, _SIZE, _AT, _SIZE),
}


class NotLoaded(Exception):
    """Raised if this process cannot load the library. The text has the reason."""


class Library:
    """The kernels of one library file, with the same methods as `Twin`."""

    def __init__(self, path: Path) -> None:
        if struct.calcsize("P") != 8:
            raise NotLoaded("this Python is not a 64-bit build")
        try:
            loaded = ctypes.CDLL(str(path))
            for name, arguments in _FUNCTIONS.items():
                function = getattr(loaded, name)
                function.argtypes, function.restype = arguments, ctypes.c_int64
        except (OSError, AttributeError) as error:
            raise NotLoaded(str(error)) from None
        if loaded.twinlog_version() != VERSION:
            raise NotLoaded(f"{path} was built for another release of Twinlog")
        loaded.twinlog_prepare()
        self._scan, self._measure = loaded.twinlog_scan, loaded.twinlog_measure
        self._rebuild, self._breaks = loaded.twinlog_rebuild, loaded.twinlog_breaks
        self._partition, self._gather = loaded.twinlog_place, loaded.twinlog_gather
        self._pack = loaded.twinlog_pack
        self._measure_headers = loaded.twinlog_measure_headers
        self._unpack_headers = loaded.twinlog_unpack_headers
        self._pack_headers = loaded.twinlog_pack_headers
        self._join, self._rewrite = loaded.twinlog_join, loaded.twinlog_rewrite

    def scan(self, data: bytes, state: ScanState[int], limit: int) -> Table | None:
        # a record has at least 7 bytes, so an invalid count does not allocate too much memory
        stride = min(limit, state[1], len(data) // 7)
        cells = array("q", bytes(8 * COLUMNS * stride))
        at, _ = cells.buffer_info()
        rows = self._scan(data, len(data), state.buffer_info()[0], stride, at, stride)
        if rows == _BAD or (rows < limit and state[1]):
            return None
        return Table(data, cells, stride, rows)

    def measure(
        self, table: Table, row_numbers: array[int], number: int, base: int
    ) -> tuple[int, int, int]:
        times = array("q", (0, 0))
        size = self._measure(
            table.cells.buffer_info()[0],
            table.stride,
            *row_numbers.buffer_info(),
            number,
            base,
            times.buffer_info()[0],
        )
        return size, times[0], times[1]

    def rebuild(
        self,
        table: Table,
        row_numbers: array[int],
        number: int,
        base: int,
        out: bytearray,
        start: int,
    ) -> int:
        written: int = self._rebuild(
            table.data,
            len(table.data),
            table.cells.buffer_info()[0],
            table.stride,
            *row_numbers.buffer_info(),
            number,
            base,
            _address(out, start),
            len(out) - start,
        )
        return written

    def breaks(self, table: Table, row_numbers: array[int]) -> array[int]:
        at_breaks = array("q", bytes(8 * len(row_numbers)))
        count = self._breaks(
            table.cells.buffer_info()[0], *row_numbers.buffer_info(), at_breaks.buffer_info()[0]
        )
        return at_breaks[:count]

    def partition(self, table: Table, row_numbers: array[int], partitions: int) -> list[array[int]]:
        where, by_partition = (array("q", bytes(8 * len(row_numbers))) for _ in range(2))
        counts = array("q", bytes(8 * (partitions + 1)))
        self._partition(
            table.data,
            len(table.data),
            table.cells.buffer_info()[0],
            table.stride,
            *row_numbers.buffer_info(),
            partitions,
            *(cells.buffer_info()[0] for cells in (where, by_partition, counts)),
        )
        return [by_partition[counts[p] : counts[p + 1]] for p in range(partitions)]

    def gather(
        self, table: Table, column: int, first: int, end: int
    ) -> tuple[bytearray, bytearray, bytearray, int]:
        count = end - first
        cells, _ = table.cells.buffer_info()
        from_at = cells + 8 * (column * table.stride + first)
        sizes_at = cells + 8 * ((column + 1) * table.stride + first)
        room = sum(size for size in table.column(column + 1, first, end) if size > 0)
        out, ends = bytearray(room), bytearray(4 * (count + 1))
        present = bytearray((count + 7) // 8)
        nulls = self._gather(
            table.data,
            len(table.data),
            from_at,
            sizes_at,
            count,
            _address(out, 0),
            room,
            _address(ends, 0),
            _address(present, 0),
        )
        return out, ends, present, nulls

    def pack(self, key: Strings, value: Strings, headers: Strings, times: array[int]) -> Table:
        count, columns = len(times), (key, value, headers)
        if any(len(column.starts) != count or len(column.sizes) != count for column in columns):
            raise ValueError("columns differ in length")
        # 3 bytes more per row, because the sums count each null as -1
        out = bytearray(sum(sum(column.sizes) for column in columns) + count * (_LENGTHS + 3))
        cells = array("q", bytes(8 * COLUMNS * count))
        filled = self._pack(
            *_addresses(*columns),
            *times.buffer_info(),
            _address(out, 0),
            len(out),
            cells.buffer_info()[0],
        )
        if filled == _BAD:
            raise ValueError("a column is outside of its data")
        return Table(bytes(memoryview(out)[:filled]), cells, count, count)

    def unpack_headers(
        self, data: bytes, starts: array[int], ends: array[int]
    ) -> HeaderColumns | None:
        rows, room = len(starts), array("q", bytes(8 * 5))
        if len(ends) != rows:
            raise ValueError("columns differ in length")
        from_where = data, len(data), starts.buffer_info()[0], ends.buffer_info()[0], rows
        room_at = room.buffer_info()[0]
        if self._measure_headers(*from_where, room_at) == _BAD:
            return None
        count, key_bytes, value_bytes, nulls, value_nulls = room
        list_ends, present = bytearray(4 * (rows + 1)), bytearray((rows + 7) // 8)
        key_ends, keys = bytearray(4 * (count + 1)), bytearray(key_bytes)
        value_ends, value_present = bytearray(4 * (count + 1)), bytearray((count + 7) // 8)
        values = bytearray(value_bytes)
        outs = list_ends, present, key_ends, keys, value_ends, value_present, values
        if (
            self._unpack_headers(*from_where, room_at, *(_address(column, 0) for column in outs))
            != count
        ):
            return None
        return HeaderColumns(
            headers=count,
            ends=list_ends,
            present=present,
            nulls=nulls,
            keys=keys,
            key_ends=key_ends,
            values=values,
            value_ends=value_ends,
            value_present=value_present,
            value_nulls=value_nulls,
        )

    def pack_headers(self, counts: array[int], key: Strings, value: Strings) -> Strings:
        headers, rows = len(key.sizes), len(counts)
        if {len(key.starts), len(value.starts), len(value.sizes)} != {headers}:
            raise ValueError("columns differ in length")
        # 2 bytes more per header, because the sums count each null as -1
        room = sum(key.sizes) + sum(value.sizes) + headers * (5 + 5 + 2) + rows * 5
        out = bytearray(max(0, room))
        starts, sizes = (array("q", bytes(8 * rows)) for _ in range(2))
        filled = self._pack_headers(
            *_addresses(key, value),
            headers,
            *counts.buffer_info(),
            _address(out, 0),
            len(out),
            starts.buffer_info()[0],
            sizes.buffer_info()[0],
        )
        if filled == _BAD:
            raise ValueError("a header has no key, or a column is outside of its data")
        return Strings(bytes(memoryview(out)[:filled]), starts, sizes)

    def join(self, buffer: memoryview, state: JoinState[int], out: bytearray, start: int) -> int:
        if buffer.readonly:
            return TWIN.join(buffer, state, out, start)
        room = len(out) - start
        filled: int = self._join(
            ctypes.addressof(ctypes.c_char.from_buffer(buffer)),
            len(buffer),
            state.buffer_info()[0],
            _address(out, start),
            room // 2 if state[shapes.CODEC] else room,
        )
        return filled

    def rewrite(self, buffer: memoryview, rewrite: BatchRewrite, limit: int) -> RewrittenBatches:
        if buffer.readonly:
            return TWIN.rewrite(buffer, rewrite, limit)
        numbers = bytearray(_REWRITE.size + _REWRITTEN.size * limit)
        _REWRITE.pack_into(numbers, 0, *rewrite)
        count = self._rewrite(
            ctypes.addressof(ctypes.c_char.from_buffer(buffer)),
            len(buffer),
            ctypes.addressof(ctypes.c_char.from_buffer(numbers)),
            limit,
        )
        at, next_offset, epoch, *_ = _REWRITE.unpack_from(numbers)
        end = _REWRITE.size + _REWRITTEN.size * max(0, count)
        result: Any = _REWRITTEN.iter_unpack(memoryview(numbers)[_REWRITE.size : end])
        return RewrittenBatches(at, next_offset, epoch, result)


def _addresses(*columns: Strings) -> Iterator[Any]:
    for data, starts, sizes in columns:
        yield from (data, len(data), starts.buffer_info()[0], sizes.buffer_info()[0])


def _address(buffer: bytearray, start: int) -> int | None:
    return (
        ctypes.addressof(ctypes.c_char.from_buffer(buffer, start)) if len(buffer) > start else None
    )
