"""One of two logs that are compared, read as whole batches, as table rows, or record by record."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NamedTuple

from twinlog.errors import CorruptData
from twinlog.mirror.findings import Span
from twinlog.mirror.start.alignment import identity
from twinlog.mirror.start.tail_check import decode
from twinlog.mirror.verify.difference import Compared, GapCause
from twinlog.wire.kernels.shapes import OFFSET, Table
from twinlog.wire.record_batch import BatchHeader, verify_crc
from twinlog.wire.records import Record, decode_table, records_of

MOST_UNREADABLE: Final = 1 << 20
"""Maximum offsets assumed for a batch that cannot be read, because its header may be wrong."""
HIDDEN_KEPT: Final = 1_000


class Piece(NamedTuple):
    """A batch of a log, as fetched."""

    header: BatchHeader
    data: memoryview
    hides: GapCause | None = None
    """The reason why readers do not see the batch's records, or None if they see them."""


class Entry(NamedTuple):
    """A record with its offset in the log."""

    offset: int
    record: Record | None
    """The record, or None if the batch cannot be read."""
    is_own_time: bool = False
    """Whether the broker of this log set the timestamp."""
    problem: str = ""

    def number(self, *, with_timestamp: bool) -> int:
        """Return a number that is equal for two records if a consumer gets the same content."""
        if self.record is None:
            return hash((self.problem, self.offset))
        return identity(self.record, with_timestamp=with_timestamp)


class RecordTable:
    """Records of one batch as rows [at, end) of a table, which needs no object per record."""

    __slots__ = ("at", "end", "is_own_time", "table")

    def __init__(self, table: Table, at: int, end: int, *, is_own_time: bool) -> None:
        self.table, self.at, self.end = table, at, end
        self.is_own_time = is_own_time

    @property
    def offset(self) -> int:
        return self.table.cells[self.at]

    def entries(self) -> list[Entry]:
        """Return the records as objects."""
        records = records_of(self.table, range(self.at, self.end))
        return [Entry(record.offset, record, self.is_own_time) for record in records]


@dataclass(slots=True)
class ReadSide:
    """Reads one of two logs that are compared, from `begin` to `limit`. `start` returns the current
    log start, which may rise.
    """

    pieces: Iterator[Piece]
    begin: int
    limit: int
    _: KW_ONLY
    start: Callable[[], int]
    may_lack: bool
    """Whether the log is compacted, so that offsets without a record may have had one."""
    result: Compared
    hidden: deque[Span] = field(default_factory=lambda: deque(maxlen=HIDDEN_KEPT))
    """The last HIDDEN_KEPT ranges of markers and aborted batches before the read position."""
    _piece: Piece | None = None
    _rows: RecordTable | None = None
    _entries: deque[Entry] = field(default_factory=deque)

    def batch(self) -> Piece | None:
        """Return the next whole batch, or None if the read position is inside a batch, or the next
        batch is not within `limit`.
        """
        if self._entries or self._rows is not None:
            return None
        piece = self._next_piece()
        if piece is None or piece.header.magic < 2 or piece.header.base_offset < self.begin:
            return None
        return piece if piece.header.next_offset <= self.limit else None

    def pass_batch(self) -> None:
        """Move past the next batch."""
        self._piece = None

    def rows(self) -> RecordTable | None:
        """Return the next records of one batch as a table. Return None if they must be read one by
        one (`entry`), or `limit` is reached.
        """
        while not self._entries and self._rows is None:
            piece = self._next_piece()
            if piece is None or piece.header.magic < 2 or piece.header.base_offset >= self.limit:
                return None
            try:
                verify_crc(piece.data, 0, piece.header)
                table = decode_table(piece.data)
            except CorruptData:
                return None  # `entry` reports the error for each record of the batch
            self._piece = None
            offsets = table.column(OFFSET)
            first, end = bisect_left(offsets, self.begin), bisect_left(offsets, self.limit)
            if first < table.rows:
                is_own_time = piece.header.is_log_append_time
                self._rows = RecordTable(table, first, table.rows, is_own_time=is_own_time)
            if first >= end:
                break
        rows = self._rows
        return rows if rows is not None and rows.offset < self.limit else None

    def pass_rows(self, count: int) -> None:
        """Move past the next `count` rows."""
        rows = self._rows
        assert rows is not None  # noqa: S101 (the caller has them from rows)
        rows.at += count
        if rows.at >= rows.end:
            self._rows = None

    def entry(self) -> Entry | None:
        """Return the next record without moving past it, or None if `limit` is reached."""
        if self._rows is not None:
            self._entries += self._rows.entries()
            self._rows = None
        while not self._entries:
            piece = self._next_piece()
            if piece is None or self._first_of(piece) >= self.limit:
                return None
            self._piece = None
            self._entries += self._decode_piece(piece)
        first = self._entries[0]
        return first if first.offset < self.limit else None

    def pass_entry(self) -> None:
        """Move past the next record."""
        self._entries.popleft()

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Put entries back, so that the next reads return them in this order."""
        self._entries.extendleft(reversed(list(entries)))

    def has_hidden(self, offset: int) -> bool:
        """Return True if a marker or aborted record is known to be at `offset`, which must be
        before the read position.
        """
        return any(hidden_range.first <= offset < hidden_range.next for hidden_range in self.hidden)

    def _first_of(self, piece: Piece) -> int:
        # in old message formats, the offset in the header may be that of the last record, so only
        # decoding shows the first offset
        return piece.header.base_offset if piece.header.magic >= 2 else self.begin

    def _next_piece(self) -> Piece | None:
        while self._piece is None:
            piece = next(self.pieces, None)
            if piece is None:
                return None
            if piece.header.next_offset <= self.begin:
                continue
            if piece.hides is None:
                self._piece = piece
                break
            header = piece.header
            self.hidden.append(Span(header.base_offset, header.next_offset))
            count = (
                header.last_offset_delta + 1 if piece.hides is GapCause.MARKERS else header.count
            )
            self.result.gaps[piece.hides] += max(0, count)
        return self._piece

    def _decode_piece(self, piece: Piece) -> list[Entry]:
        header = piece.header
        is_own_time = header.magic >= 2 and header.is_log_append_time
        try:
            verify_crc(piece.data, 0, header)
            records = decode(header, piece.data)
        except CorruptData as error:
            problem = f"cannot be read: {error.message}"
            first = max(header.base_offset, self.begin)
            next_offset = min(header.next_offset, first + MOST_UNREADABLE)
            return [Entry(offset, None, problem=problem) for offset in range(first, next_offset)]
        return [
            Entry(record.offset, record, is_own_time)
            for record in records
            if record.offset >= self.begin
        ]
