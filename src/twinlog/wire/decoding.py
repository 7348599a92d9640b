"""Decodes batches of magic 2 to records: to rows of a table, or to objects.

All callers share one scan: re-encoding, the columns of a DataFrame, and display. It is compiled if
possible (`kernels`). Data that the compiled scan rejects is scanned again in Python. So result and
message are the same with and without the compiled kernels. The CRC is not checked here: see
`record_batch.verify_crc`.
"""

from __future__ import annotations

import struct
from typing import Final

from twinlog.errors import CorruptData
from twinlog.wire.compression import DECOMPRESSED_LIMIT_BYTES, decompress
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.shapes import Table
from twinlog.wire.kernels.twin import TWIN, scan_state
from twinlog.wire.record import ControlType, Record
from twinlog.wire.record_batch import HEADER_BYTES, BatchHeader, read_header
from twinlog.wire.rows import Rows, record_of, records_of

_CONTROL_KEY = struct.Struct(">hh")  # version, type
_CONTROL_TYPES: Final = {0: ControlType.ABORT, 1: ControlType.COMMIT}
_LAST_OFFSET: Final = (1 << 63) - 1


class Scan:
    """Decodes one batch in steps of some records."""

    def __init__(self, header: BatchHeader, batch: memoryview, limit_bytes: int) -> None:
        raw = batch[HEADER_BYTES:]
        if header.last_offset > _LAST_OFFSET:
            raise CorruptData(
                f"batch at offset {header.base_offset}: its last offset {header.last_offset} is "
                f"above the highest one, {_LAST_OFFSET}"
            )
        self._header = header
        # a batch emptied by the log cleaner keeps its codec bits
        self._data = bytes(decompress(header.codec, raw, limit_bytes)) if raw else b""
        self._state = scan_state(header)

    @property
    def size(self) -> int:
        """Return the bytes of the decompressed payload."""
        return len(self._data)

    @property
    def is_over(self) -> bool:
        return not self._state[shapes.LEFT]

    def next(self, most: int) -> Table:
        """Return at most `most` further records. CorruptData names the corrupt record."""
        if not CHOSEN.is_compiled:
            return self._judged(most)
        before = self._state[:]
        table = CHOSEN.kernels.scan(self._data, self._state, most)
        if table is None:
            self._state = before
            table = self._judged(most)
        return table

    def _judged(self, most: int) -> Table:
        header = self._header
        try:
            return TWIN.scan(self._data, self._state, most)
        except CorruptData as error:
            raise CorruptData(
                f"batch at offset {header.base_offset}: record "
                f"{header.count - self._state[shapes.LEFT]} of {header.count} is corrupt: "
                f"{error.message}"
            ) from None

    def check_end(self) -> None:
        """Raise CorruptData if bytes are left after all records were read."""
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

    Those of a control batch are returned, too; `control_type` interprets them.
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
    """Return whether a control batch commits or aborts, or OTHER if the log cleaner emptied it."""
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
            f"batch at offset {header.base_offset}: {len(batch)} bytes of magic {header.magic} are "
            f"not one whole batch of magic 2 with {header.length} bytes"
        )
    return header
