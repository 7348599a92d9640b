"""Compares two batches, or rows of them, without creating an object per record.

Equal headers give equal bytes after them the same meaning. So batches of the same codec are
compared as stored, and others uncompressed. A deep comparison also reads each record of equal
batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinlog.errors import CorruptData
from twinlog.mirror.verify.difference import Compared
from twinlog.mirror.verify.side import Piece, RecordTable
from twinlog.wire.compression import decompress
from twinlog.wire.decoding import decode_table
from twinlog.wire.kernels.shapes import END, OFFSET, REST, TIMESTAMP
from twinlog.wire.record_batch import CODEC_MASK, HEADER_BYTES, BatchHeader, verify_crc


def are_equal(here: Piece, there: Piece, found: Compared, *, is_deep: bool) -> bool:
    """Count equal batches by day and return True, or return False if records must be compared one
    by one.
    """
    if not _may_be_equal(here.header, there.header):
        return False
    try:
        verify_crc(there.data, 0, there.header)  # as consumers do
        if is_deep:
            return _by_records(here, there, found)
        if here.header.attributes & CODEC_MASK == there.header.attributes & CODEC_MASK:
            return _by_bytes(here, there, found)
        return _by_payload(here, there, found)
    except CorruptData:
        return False  # the comparison by record finds it again and reports it


def _may_be_equal(header: BatchHeader, other: BatchHeader) -> bool:
    """Return whether equal uncompressed bytes would mean equal records."""
    return (
        not (header.is_log_append_time or other.is_log_append_time)
        and header.is_dense
        and other.is_dense
        and (header.count, header.base_timestamp, header.max_timestamp)
        == (other.count, other.base_timestamp, other.max_timestamp)
    )


def _by_bytes(here: Piece, there: Piece, found: Compared) -> bool:
    header = here.header
    # copies, because memoryviews are compared value by value
    if bytes(here.data[HEADER_BYTES:]) != bytes(there.data[HEADER_BYTES:]):
        return False
    found.by_bytes += header.count
    found.day(header.base_timestamp).both.add_batch(header.count, header.length)
    return True


def _by_payload(here: Piece, there: Piece, found: Compared) -> bool:
    header = here.header
    verify_crc(here.data, 0, header)
    payload = _payload(here)
    if payload != _payload(there):
        return False
    found.day(header.base_timestamp).both.add_records(header.count, len(payload))
    return True


def _by_records(here: Piece, there: Piece, found: Compared) -> bool:
    verify_crc(here.data, 0, here.header)
    table = decode_table(here.data)
    if table.data != _payload(there):
        return False
    rows = RecordTable(table, 0, table.rows, is_own_time=False)
    _count_rows(rows, table.rows, found, is_deep=True)
    return True


def count_equal(
    here: RecordTable, there: RecordTable, most: int, found: Compared, *, is_deep: bool
) -> int:
    """Count, by day, how many of the next records (at most `most`) are equal and contiguous on both
    sides.
    """
    if here.is_own_time or there.is_own_time:
        return 0
    count = min(most, here.end - here.at, there.end - there.at)
    if count <= 0:
        return 0
    ours, theirs = _columns(here, count), _columns(there, count)
    if any(offsets[-1] - offsets[0] != count - 1 for offsets in (ours[0], theirs[0])):
        return 0  # holes
    data, other = here.table.data, there.table.data
    equal = 0
    rows = zip(*ours[1:], *theirs[1:], strict=True)
    for time, begin, end, their_time, their_begin, their_end in rows:
        if time != their_time or data[begin:end] != other[their_begin:their_end]:
            break
        equal += 1
    _count_rows(here, equal, found, is_deep=is_deep)
    return equal


def _columns(rows: RecordTable, count: int) -> tuple[Sequence[int], ...]:
    """Return offset, timestamp, and begin and end of key, value and headers."""
    columns = (OFFSET, TIMESTAMP, REST, END)
    return tuple(rows.table.column(one, rows.at, rows.at + count) for one in columns)


def _count_rows(rows: RecordTable, count: int, found: Compared, *, is_deep: bool) -> None:
    if not count:
        return
    offsets, times, begins, ends = _columns(rows, count)
    first, last = found.day(min(times)).both, found.day(max(times)).both
    if first is last and not is_deep:
        first.add_records(count, sum(ends) - sum(begins))
        return
    for offset, timestamp, begin, end in zip(offsets, times, begins, ends, strict=True):
        both = first if first is last else found.day(timestamp).both
        if is_deep:
            both.add_digest(offset, timestamp, rows.table.data[begin:end])
        else:
            both.add_records(1, end - begin)


def _payload(piece: Piece) -> bytes:
    return bytes(decompress(piece.header.codec, piece.data[HEADER_BYTES:]))
