"""Whether two batches hold the same records, without an object for any of them.

Equal headers give equal bytes behind them the same meaning. So batches of one codec are compared as
they are stored, and others uncompressed. A deep comparison reads each record of equal batches, too.
"""

from __future__ import annotations

from twinlog.errors import CorruptData
from twinlog.mirror.verify.difference import Compared
from twinlog.mirror.verify.side import Piece
from twinlog.wire.compression import decompress
from twinlog.wire.decoding import decode_table
from twinlog.wire.kernels.shapes import END, OFFSET, REST, TIMESTAMP
from twinlog.wire.record_batch import CODEC_MASK, HEADER_BYTES, BatchHeader, verify_crc


def are_equal(here: Piece, there: Piece, found: Compared, *, is_deep: bool) -> bool:
    """Counts them by their days where they are. False where record by record has to say it."""
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
        return False  # it is found again record by record, and said


def _may_be_equal(header: BatchHeader, other: BatchHeader) -> bool:
    """Records of equal bytes, uncompressed, are equal records."""
    return (
        not (header.is_log_append_time or other.is_log_append_time)
        and header.is_dense
        and other.is_dense
        and (header.count, header.base_timestamp, header.max_timestamp)
        == (other.count, other.base_timestamp, other.max_timestamp)
    )


def _by_bytes(here: Piece, there: Piece, found: Compared) -> bool:
    header = here.header
    # copies, since memoryviews are compared value by value
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
    columns = (table.column(one) for one in (OFFSET, TIMESTAMP, REST, END))
    for offset, timestamp, begin, end in zip(*columns, strict=True):
        found.day(timestamp).both.add_digest(offset, timestamp, table.data[begin:end])
    return True


def _payload(piece: Piece) -> bytes:
    return bytes(decompress(piece.header.codec, piece.data[HEADER_BYTES:]))
