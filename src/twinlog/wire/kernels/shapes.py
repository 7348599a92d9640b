"""What the kernels read and write: a table of records, and the numbers of a scan and of a join.

A table is nine columns of 64 bits over one decompressed payload. Its bytes stay where they are; a
row says where a record's key, value and headers begin, so nothing is an object until one is wanted:

    offset, timestamp     absolute, as a consumer sees them
    rest, end             bytes [rest, end): key length, key, value length, value, headers. They
                          hold no trace of the batch, so they go into any other as they are
    key, key size         where the key begins; its size, negative: null
    value, value size     of the value
    headers               where their count begins
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
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

ScanState = array  # of 64 bits: what a scan begins with, and where the next one resumes
POSITION: Final = 0
LEFT: Final = 1
LAST_DELTA: Final = 2
MOST_DELTA: Final = 3
BASE_OFFSET: Final = 4
BASE_TIME: Final = 5
HAS_TIME: Final = 6
TIME: Final = 7

JoinState = array
"""Of 64 bits: what joining gets (to `IS_CHECKED`), then what it answers."""
AT: Final = 0
NEXT_OFFSET: Final = 1
END_OFFSET: Final = 2
FEW: Final = 3
MOST_RECORDS: Final = 4
IS_CHECKED: Final = 5
"""1: nobody asks for CRCs any more."""
BATCHES: Final = 6
RECORDS: Final = 7
EPOCH: Final = 8
FIRST_TIMESTAMP: Final = 9
MOST_TIMESTAMP: Final = 10
"""Of the records; the two behind it are of what the batches' headers say."""
MOST_OF_BATCHES: Final = 11
LEAST_OF_BATCHES: Final = 12
JOIN_NUMBERS: Final = 13


class Table:
    """Records of one payload, as columns; `rows` of `stride` cells of each are filled."""

    __slots__ = ("cells", "data", "is_rising", "rows", "stride")

    def __init__(
        self, data: bytes, cells: array[int], stride: int, rows: int, *, is_rising: bool = True
    ) -> None:
        self.data = data
        self.cells = cells
        self.stride = stride
        self.rows = rows
        self.is_rising = is_rising
        """Offsets rise from row to row: always in a batch of magic 2."""

    def column(self, number: int, first: int = 0, end: int | None = None) -> Sequence[int]:
        """Its cells of the rows [first, end)."""
        at = number * self.stride
        return self.cells[at + first : at + (self.rows if end is None else end)]


class Strings(NamedTuple):
    """A column of bytes: row n has data[starts[n]:starts[n] + sizes[n]]; a negative size: null."""

    data: bytes
    starts: array[int]
    sizes: array[int]

    def rows(self) -> list[bytes | None]:
        """Each as an object. Raises ValueError where one is outside of the data."""
        out: list[bytes | None] = []
        for start, size in zip(self.starts, self.sizes, strict=True):
            if size > 0 and not 0 <= start <= len(self.data) - size:
                raise ValueError("a column is outside of its data")
            out.append(None if size < 0 else self.data[start : start + size] if size else b"")
        return out


class HeaderColumns(NamedTuple):
    """Headers of records as an Arrow column of lists has them. Ends are of 32 bits, with a 0 in
    front; `present` is a bit for each that is there.
    """

    headers: int
    """How many."""
    ends: bytearray
    """In headers, of the list of each row."""
    present: bytearray
    """Of rows: one without headers is null."""
    nulls: int
    keys: bytearray
    """UTF-8."""
    key_ends: bytearray
    values: bytearray
    value_ends: bytearray
    value_present: bytearray
    value_nulls: int


class Kernels(Protocol):
    """The functions; `picked` are row numbers of the table, in order."""

    def scan(self, data: bytes, state: ScanState[int], most: int) -> Table | None:
        """At most `most` records; None: they are corrupt, and the twin says why."""

    def measure(
        self, table: Table, picked: array[int], number: int, base: int
    ) -> tuple[int, int, int]:
        """Bytes of these rows in a batch that begins at timestamp `base` (ms), the first of them as
        its record `number`; their least and their greatest timestamp.
        """

    def rebuild(
        self,
        table: Table,
        picked: array[int],
        number: int,
        base: int,
        out: bytearray,
        start: int,
    ) -> int:
        """Write them so from `start` on; bytes written, -1 without room."""

    def breaks(self, table: Table, picked: array[int]) -> array[int]:
        """Places in `picked` whose offset does not follow the one before."""

    def gather(
        self, table: Table, column: int, first: int, end: int
    ) -> tuple[bytearray, bytearray, bytearray, int]:
        """KEY or VALUE of the rows [first, end): their bytes, the ends of each (of 32 bits, with a
        0 in front), a bit for each that is there, and how many are null.
        """

    def partition(self, table: Table, picked: array[int], partitions: int) -> list[array[int]]:
        """The rows of each partition, as Kafka's Java producer partitions by key."""

    def pack(self, key: Strings, value: Strings, headers: Strings, times: array[int]) -> Table:
        """Columns as records whose offsets are 0, 1, ..; headers are encoded, of no size: none.

        Raises ValueError where a column is outside of its data.
        """

    def unpack_headers(
        self, data: bytes, starts: array[int], ends: array[int]
    ) -> HeaderColumns | None:
        """Headers as columns: those of row n are data[starts[n]:ends[n]], their count in front.

        None: they are corrupt, a key is no UTF-8, or they are too many for 32 bits; the twin says
        what becomes of them.
        """

    def pack_headers(self, counts: array[int], key: Strings, value: Strings) -> Strings:
        """Columns of headers, of which the rows have so many each, as `pack` takes them.

        Raises ValueError where a key is null, the counts are not those of the columns, or a column
        is outside of its data.
        """

    def join(self, buffer: memoryview, state: JoinState[int], out: bytearray, start: int) -> int:
        """Take small batches that follow each other as one payload, from `start` on; its bytes.

        It ends in front of the first batch that does not pass as it is, or has no room.
        """
