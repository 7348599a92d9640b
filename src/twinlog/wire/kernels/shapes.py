"""Inputs and outputs of the kernels: a table of records, and numbers in arrays and tuples.

A table has nine columns of 64-bit numbers over one decompressed payload. The bytes of the payload
are not moved. A row has the positions of a record's key, value and headers in the payload, so no
object is created before it is needed:

    offset, timestamp     absolute, as a consumer sees them
    rest, end             bytes [rest, end): key length, key, value length, value, headers. These
                          bytes do not depend on the batch, so they are valid in any other batch
    key, key size         where the key begins; its size, which is negative for null
    value, value size     where the value begins; its size, which is negative for null
    headers               where the header count begins
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

OFFSET: Final = 0
TIMESTAMP: Final = 1
REST: Final = 2
KEY: Final = 3
KEY_SIZE: Final = 4
VALUE: Final = 5
VALUE_SIZE: Final = 6
HEADERS: Final = 7
END: Final = 8
COLUMNS: Final = 9

ScanState = array
"""64-bit numbers: the input of a scan, and the state from which the next scan resumes."""
POSITION: Final = 0
LEFT: Final = 1
LAST_DELTA: Final = 2
MOST_DELTA: Final = 3
BASE_OFFSET: Final = 4
BASE_TIME: Final = 5
HAS_TIME: Final = 6
TIME: Final = 7

JoinState = array
"""64-bit numbers: the input of a join (up to `CODEC`), then its results."""
AT: Final = 0
NEXT_OFFSET: Final = 1
END_OFFSET: Final = 2
FEW: Final = 3
MOST_RECORDS: Final = 4
IS_CHECKED: Final = 5
"""1 if the caller has checked the CRCs, else 0."""
CODEC: Final = 6
"""Codec number of the batches to join, which must be that of no compression or lz4."""
BATCHES: Final = 7
RECORDS: Final = 8
EPOCH: Final = 9
FIRST_TIMESTAMP: Final = 10
MOST_TIMESTAMP: Final = 11
"""The greatest timestamp of the records. The next two numbers are from the batches' headers."""
MOST_OF_BATCHES: Final = 12
LEAST_OF_BATCHES: Final = 13
JOIN_NUMBERS: Final = 14


class BatchRewrite(NamedTuple):
    """Input of `rewrite`: position of the first batch, which batches can be rewritten, and their
    new producer.
    """

    at: int
    next_offset: int
    leader_epoch: int
    """Source leader epoch of the offset before `next_offset`."""
    begins_run: bool
    """True if the next record begins a run of the map (consecutive offsets on both sides)."""
    end_offset: int
    most_bytes: int
    few: int
    """A batch of at most this many records is left for `join` if a contiguous batch follows."""
    codecs: int
    """One bit per codec number, set if batches with that codec are not recompressed."""
    producer_id: int
    sequence: int


RewrittenRow = tuple[int, int, int, int, int, int, int, int]
"""A batch before it was rewritten: position, length, base offset, record count, base timestamp,
maximum timestamp and leader epoch. The last number is the fingerprint of its first record if the
batch begins a run of the offset map, else -1.
"""


class RewrittenBatches(NamedTuple):
    """The rewritten batches, and the position of the first batch that was not rewritten (with the
    fields of `BatchRewrite`).
    """

    at: int
    next_offset: int
    leader_epoch: int
    rows: Iterable[RewrittenRow]


class Table:
    """Records of one payload as columns of `stride` cells, of which `rows` are filled."""

    __slots__ = ("cells", "data", "is_rising", "rows", "stride")

    def __init__(
        self, data: bytes, cells: array[int], stride: int, rows: int, *, is_rising: bool = True
    ) -> None:
        self.data = data
        self.cells = cells
        self.stride = stride
        self.rows = rows
        self.is_rising = is_rising
        """True if offsets increase from row to row, as in every batch of magic 2."""

    def column(self, number: int, first: int = 0, end: int | None = None) -> Sequence[int]:
        """Return the cells of a column in the rows [first, end)."""
        at = number * self.stride
        return self.cells[at + first : at + (self.rows if end is None else end)]


class Strings(NamedTuple):
    """A column of bytes: row n is data[starts[n]:starts[n] + sizes[n]], null if its size is < 0."""

    data: bytes
    starts: array[int]
    sizes: array[int]

    def rows(self) -> list[bytes | None]:
        """Return each row as an object. Raises ValueError if a row is outside of the data."""
        out: list[bytes | None] = []
        for start, size in zip(self.starts, self.sizes, strict=True):
            if size > 0 and not 0 <= start <= len(self.data) - size:
                raise ValueError("a column is outside of its data")
            out.append(None if size < 0 else self.data[start : start + size] if size else b"")
        return out


class HeaderColumns(NamedTuple):
    """Headers of records as the buffers of an Arrow list column.

    Ends are 32-bit numbers, preceded by a 0. `present` has a bit for each entry, set if it is not
    null.
    """

    headers: int
    """The number of headers."""
    ends: bytearray
    """The end of each row's list, as a number of headers."""
    present: bytearray
    """One bit per row. A row is null if its record has no headers."""
    nulls: int
    keys: bytearray
    """The UTF-8 bytes of all keys."""
    key_ends: bytearray
    values: bytearray
    value_ends: bytearray
    value_present: bytearray
    value_nulls: int


class Kernels(Protocol):
    """Loops over records: compiled (`library`), or in Python (`twin`). `row_numbers` are rows of
    the table, in order.
    """

    def scan(self, data: bytes, state: ScanState[int], limit: int) -> Table | None:
        """Return at most `limit` records, or None if one is corrupt. The caller then uses the
        Python kernel (`twin`), which raises CorruptData with the reason.
        """

    def measure(
        self, table: Table, row_numbers: array[int], number: int, base: int
    ) -> tuple[int, int, int]:
        """Return the size of these rows in a batch (bytes), and their least and greatest timestamp.

        The base timestamp of the batch is `base` (ms), and the first row is its record `number`.
        """

    def rebuild(
        self,
        table: Table,
        row_numbers: array[int],
        number: int,
        base: int,
        out: bytearray,
        start: int,
    ) -> int:
        """Write the rows that `measure` has measured to `out`, from byte `start` on.

        Returns the number of bytes written, or -1 if there is not enough room.
        """

    def breaks(self, table: Table, row_numbers: array[int]) -> array[int]:
        """Return the indexes in `row_numbers` before which at least one offset is missing."""

    def gather(
        self, table: Table, column: int, first: int, end: int
    ) -> tuple[bytearray, bytearray, bytearray, int]:
        """Return column KEY or VALUE of the rows [first, end) as the buffers of an Arrow column.

        The result is (bytes of all cells, end of each cell, one bit per cell, number of nulls).
        Ends are 32-bit numbers, preceded by a 0. A bit is set if the cell is not null.
        """

    def partition(self, table: Table, row_numbers: array[int], partitions: int) -> list[array[int]]:
        """Return the rows of each partition, as Kafka's Java producer partitions by key."""

    def pack(self, key: Strings, value: Strings, headers: Strings, times: array[int]) -> Table:
        """Build records with the offsets 0, 1, ... from columns.

        Headers are already encoded; size 0 means no headers. Raises ValueError if a column is
        outside of its data.
        """

    def unpack_headers(
        self, data: bytes, starts: array[int], ends: array[int]
    ) -> HeaderColumns | None:
        """Return headers as columns.

        The headers of row n are data[starts[n]:ends[n]], which begins with the header count.
        Returns None if headers are corrupt, a key is not UTF-8, or the columns exceed 32 bits. The
        caller then uses the Python kernel (`twin`), which replaces invalid UTF-8 in keys by U+FFFD,
        and raises CorruptData in the other cases.
        """

    def pack_headers(self, counts: array[int], key: Strings, value: Strings) -> Strings:
        """Encode columns of headers as `pack` expects them.

        `counts` is the number of headers of each row. Raises ValueError if a key is null, the
        counts do not match the columns, or a column is outside of its data.
        """

    def join(self, buffer: memoryview, state: JoinState[int], out: bytearray, start: int) -> int:
        """Join consecutive small batches to one payload in `out` from `start` on. Return its size.

        Stops before the first batch that cannot be sent unchanged, or for which there is no room.
        The payload is not compressed. If the batches are lz4, the payload gets half of the room,
        and the other half is used to decompress. The Python kernel (`twin`) joins no compressed
        batch.
        """

    def rewrite(self, buffer: memoryview, rewrite: BatchRewrite, limit: int) -> RewrittenBatches:
        """Rewrite the headers of at most `limit` consecutive batches as batches of this producer.

        Each batch must be contiguous with the previous batch, have a valid CRC, and need no other
        change. Control batches between them are skipped, and a run of the offset map (consecutive
        offsets on both sides) begins after each. The first batch of a run must be uncompressed.
        Stops before the first batch that does not meet these conditions, which the caller must
        handle alone. The Python kernel (`twin`) rewrites no batch, because the caller's code for
        one batch is the reference.
        """
