"""Walks over both logs of a partition and reports their differences.

Nearly every batch of the target equals the source's, apart from its header: base offset, leader
epoch, producer fields, checksum. Such pairs are compared as bytes, from the header's timestamps on,
without decompression. If batches do not line up (joined, holes, recompressed, size limits,
LogAppendTime), records are decoded and compared: as table rows while they are equal, else as a
consumer sees them. The walk returns to whole batches at the next two batches that begin with the
same record. Batches of the same records in another codec are decompressed and compared as bytes,
too. In a deep walk all batches are decoded, and each of their records is added to the digest of its
day.

The offset map pairs the records. If it has no record for an offset, both logs are read on until
they match again (`matching`). From there on, records are compared at a fixed distance to their
offsets in the map, and reported as `SHIFTED`, until the map is right again.

Records that one side lacks are a difference unless there is a valid reason. That side may be
compacted, or its log may begin later. An operator may have skipped or accepted the records, or
other clients write to the topic, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from twinlog.errors import CorruptData
from twinlog.mirror.findings import Span
from twinlog.mirror.skips import Skip, skip_at
from twinlog.mirror.start.tail_check import same_record
from twinlog.mirror.verify.difference import Compared, Day, DifferenceKind, GapCause, Tally
from twinlog.mirror.verify.matching import (
    WINDOWS,
    MappedOffset,
    OffsetPairs,
    SideRecord,
    classify,
    find_realignment,
)
from twinlog.mirror.verify.side import Entry, Piece, ReadSide, RecordTable
from twinlog.wire.compression import decompress
from twinlog.wire.kernels.shapes import END, OFFSET, REST, TIMESTAMP
from twinlog.wire.record_batch import CODEC_MASK, HEADER_BYTES, BatchHeader, verify_crc
from twinlog.wire.records import Record, decode_table, encoded_content

NOT_IN_MAP: Final = "the offset map has no position for them"
ELSEWHERE: Final = "the offset map has another position"
BY_OTHERS: Final = "not written by this flow"
NO_SUCH_SOURCE: Final = "the source has no such record at this position"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings of the walk over one partition, including the records whose absence is no
    difference.
    """

    skips: Sequence[Skip] = ()
    accepted: Sequence[tuple[int, int]] = ()
    """Ranges [first, next) of target offsets of accepted foreign records."""
    is_shared: bool = False
    """Whether other clients may write to the target's topic."""
    is_deep: bool = False
    """Whether every record is decoded, even in equal batches."""


@dataclass(slots=True, kw_only=True)
class LogWalk:
    """The walk over one partition, from the beginnings of both sides to their limits."""

    pairs: OffsetPairs
    source: ReadSide
    target: ReadSide
    rules: Rules
    result: Compared
    on_step: Callable[[int], None] = lambda _: None
    """Called with the target offset that the walk has reached."""
    _shift: int = 0
    """Target offset of the current records, minus their target offset in the map."""

    def walk(self) -> None:
        """Compare both logs up to the `limit` of each `ReadSide`."""
        while True:
            if self._pass_equal_batches() or self._pass_equal_rows():
                continue
            source_entry, target_entry = self.source.entry(), self.target.entry()
            if source_entry is None and target_entry is None:
                return
            if not self._step(source_entry, target_entry):
                self._realign()

    def find_pending(self, end: int, *, count_all: bool = True) -> int:
        """Return the number of source records from the source's limit to `end`. They are after the
        end of the copy, so they are not copied yet. Records that an operator skips do not count.

        Without `count_all`, stop after the first batch or record.
        """
        source, self.source.limit = self.source, end
        records = 0
        while records == 0 or count_all:
            piece = None if self.rules.skips else source.batch()
            if piece is not None:
                first, count = piece.header.base_offset, piece.header.count
                source.pass_batch()
            elif (entry := source.entry()) is not None:
                source.pass_entry()
                first, count = entry.offset, skip_at(self.rules.skips, entry.offset) is None
            else:
                break
            if count and self.result.pending is None:
                self.result.pending = Span(first, end)
            records += count
        return records

    # -- comparison of batches as bytes

    def _pass_equal_batches(self) -> bool:
        source_batch, target_batch = self.source.batch(), self.target.batch()
        if (
            source_batch is None
            or target_batch is None
            or not self._is_counterpart(source_batch.header, target_batch.header)
        ):
            return False
        if not are_equal(source_batch, target_batch, self.result, is_deep=self.rules.is_deep):
            return False
        header, other = source_batch.header, target_batch.header
        source = Span(header.base_offset, header.next_offset)
        target = Span(other.base_offset, other.next_offset)
        self._note_equal(source, target, header.count)
        self.source.pass_batch()
        self.target.pass_batch()
        self.on_step(other.next_offset)
        return True

    def _pass_equal_rows(self) -> bool:
        """Pass as many contiguous equal records as possible, and return True if there were any.
        Used if batches of both sides do not begin and end at the same records.
        """
        source_rows, target_rows = self.source.rows(), self.target.rows()
        if source_rows is None or target_rows is None or self.rules.skips or self.rules.accepted:
            return False
        mapped = self.pairs.counterpart(source_rows.offset)
        if mapped is None or mapped.offset + self._shift != target_rows.offset:
            return False
        most = min(
            mapped.room,
            self.source.limit - source_rows.offset,
            self.target.limit - target_rows.offset,
        )
        equal = count_equal(source_rows, target_rows, most, self.result, is_deep=self.rules.is_deep)
        if not equal:
            return False
        first, at = source_rows.offset, target_rows.offset
        self._note_equal(Span(first, first + equal), Span(at, at + equal), equal)
        self.source.pass_rows(equal)
        self.target.pass_rows(equal)
        self.on_step(at + equal)
        return True

    def _is_counterpart(self, header: BatchHeader, other: BatchHeader) -> bool:
        """Return True if the map has all records of source batch `header` at the offsets of target
        batch `other`, and no operator skips any of these records.
        """
        mapped = self.pairs.counterpart(header.base_offset)
        if mapped is None or not mapped.is_known or mapped.room < header.count:
            return False
        next_offset = header.next_offset
        is_left_out = any(
            skip.first < next_offset and header.base_offset < skip.next for skip in self.rules.skips
        )
        return mapped.offset + self._shift == other.base_offset and not is_left_out

    # -- comparison record by record

    def _step(self, source_entry: Entry | None, target_entry: Entry | None) -> bool:
        """Pass one record of one side, or one of each side. Return False if that is impossible,
        because a difference begins here.
        """
        if source_entry is not None and self._pass_skipped(source_entry):
            return True
        if target_entry is not None and self._pass_foreign(target_entry):
            return True
        if source_entry is None:
            return target_entry is not None and self._source_lacks(target_entry, None)
        return self._match(source_entry, target_entry)

    def _match(self, source_entry: Entry, target_entry: Entry | None) -> bool:
        mapped = self.pairs.counterpart(source_entry.offset)
        if mapped is None:
            return False
        at = mapped.offset + self._shift
        if target_entry is None or at < target_entry.offset:
            return self._count_valid_gap(
                self._why_gone_on_target(mapped, at), self.source.pass_entry
            )
        if at > target_entry.offset:
            return self._source_lacks(target_entry, source_entry)
        if not self._is_same(source_entry, target_entry):
            return False
        self._note_same(source_entry, target_entry.offset)
        self.source.pass_entry()
        self._pass_target(target_entry)
        return True

    def _note_same(self, entry: Entry, target_offset: int) -> None:
        source_offset = entry.offset
        self._count(entry, source_offset, lambda day: day.both)
        mapped = self.pairs.counterpart(source_offset)
        is_known = mapped is not None and mapped.is_known
        if is_known and not self._shift:  # without spans, because this is called for each record
            self.result.add_equal(1)
            return
        source = Span(source_offset, source_offset + 1)
        target = Span(target_offset, target_offset + 1)
        self._note_equal(source, target, 1, is_known=is_known)

    def _count(self, entry: Entry, offset: int, side: Callable[[Day], Tally]) -> None:
        """Add a record to the counts of its day. `offset`: the offset that its digest contains.
        `side`: the counts of the day to use.
        """
        record = entry.record
        if record is None:
            return  # the record cannot be decoded, so it is in no digest
        tally = side(self.result.day(record.timestamp))
        if self.rules.is_deep:
            tally.add_digest(offset, record.timestamp, encoded_content(record))
        else:
            tally.add_records(1, _size(record))

    def _pass_target(self, target_entry: Entry) -> None:
        self.target.pass_entry()
        self.on_step(target_entry.offset + 1)

    def _is_same(self, source_entry: Entry, target_entry: Entry) -> bool:
        if source_entry.record is None or target_entry.record is None:
            return False
        self.result.gaps[GapCause.OWN_TIME] += target_entry.is_own_time
        return same_record(
            source_entry.record, target_entry.record, compare_timestamp=not target_entry.is_own_time
        )

    def _count_valid_gap(self, reason: GapCause | None, pass_entry: Callable[[], None]) -> bool:
        """If the other side lacks a record for a valid reason, count and pass the record, and
        return True. Without a reason (None), return False.
        """
        if reason is None:
            return False
        self.result.gaps[reason] += 1
        pass_entry()
        return True

    def _pass_skipped(self, source_entry: Entry) -> bool:
        is_skipped = skip_at(self.rules.skips, source_entry.offset) is not None
        return self._count_valid_gap(
            GapCause.SKIPPED if is_skipped else None, self.source.pass_entry
        )

    def _pass_foreign(self, target_entry: Entry) -> bool:
        return self._count_valid_gap(
            self._why_foreign(target_entry.offset), partial(self._pass_target, target_entry)
        )

    def _why_foreign(self, offset: int) -> GapCause | None:
        if any(first <= offset < next_offset for first, next_offset in self.rules.accepted):
            return GapCause.ACCEPTED
        if not self.rules.is_shared:
            return None
        origin = self.pairs.origin(offset - self._shift)
        return GapCause.OTHERS if origin is not None and not origin.is_known else None

    def _why_gone_on_target(self, mapped: MappedOffset, offset: int) -> GapCause | None:
        if not mapped.is_known:
            return None
        if offset < self.target.start():
            return GapCause.TARGET_DELETED
        return (
            GapCause.TARGET_CLEANED if self.target.may_lack and offset < self.target.limit else None
        )

    def _source_lacks(self, target_entry: Entry, source_entry: Entry | None) -> bool:
        reason = self._why_gone_on_source(target_entry.offset, source_entry)
        return self._count_valid_gap(reason, partial(self._pass_target, target_entry))

    def _why_gone_on_source(self, offset: int, source_entry: Entry | None) -> GapCause | None:
        origin = self.pairs.origin(offset - self._shift)
        if origin is None or not origin.is_known:
            return None
        if origin.offset < self.source.start():
            return GapCause.SOURCE_DELETED
        passed = self.source.limit if source_entry is None else source_entry.offset
        if not self.source.may_lack or origin.offset >= passed:
            return None
        return None if self.source.has_hidden(origin.offset) else GapCause.SOURCE_CLEANED

    # -- differences

    def _realign(self) -> None:
        source_entries: list[Entry] = []
        target_entries: list[Entry] = []
        entries: tuple[list[SideRecord], list[SideRecord]] = ([], [])
        met: tuple[int, int] | None = None
        is_whole = False
        for size in WINDOWS:
            is_whole = not (
                self._fill(self.source, source_entries, size)
                | self._fill(self.target, target_entries, size)
            )
            entries = self._as_seen(source_entries, target_entries)
            may_lack = self.source.may_lack or self.target.may_lack
            met = find_realignment(*entries, is_whole=is_whole, may_lack=may_lack)
            if met is not None or is_whole:
                break
        until = self._as_far_as_both(*entries) if met is None else met
        if met == (0, 0) and not self._shift_changes(source_entries, target_entries):
            # the records differ only in timestamps. The realignment ignores timestamps if any of
            # its records has the target's own timestamp
            pair = (
                Span(source_entries[0].offset, source_entries[0].offset + 1),
                Span(target_entries[0].offset, target_entries[0].offset + 1),
            )
            self.result.add_difference(DifferenceKind.DIFFERENT, *pair, 1)
            self._count(source_entries[0], source_entries[0].offset, lambda day: day.source)
            self._count(target_entries[0], ~target_entries[0].offset, lambda day: day.target)
            self.source.give_back(source_entries[1:])
            self.target.give_back(target_entries[1:])
            return
        self._sort_out(
            (source_entries[: until[0]], target_entries[: until[1]]),
            (entries[0][: until[0]], entries[1][: until[1]]),
        )
        self.source.give_back(source_entries[until[0] :])
        self.target.give_back(target_entries[until[1] :])
        if met is not None:
            self._shift = self._shift_at(source_entries[until[0] :], target_entries[until[1] :])
        if until[1]:
            self.on_step(target_entries[until[1] - 1].offset + 1)

    def _shift_at(self, source_entries: Sequence[Entry], target_entries: Sequence[Entry]) -> int:
        """Return the offset of the first of these target records, minus the offset that the map has
        for the first of these source records.
        """
        mapped = None
        if source_entries and target_entries:
            mapped = self.pairs.counterpart(source_entries[0].offset)
        return self._shift if mapped is None else target_entries[0].offset - mapped.offset

    def _shift_changes(
        self, source_entries: Sequence[Entry], target_entries: Sequence[Entry]
    ) -> bool:
        return (
            not (source_entries and target_entries)
            or self._shift_at(source_entries, target_entries) != self._shift
        )

    def _fill(self, side: ReadSide, entries: list[Entry], size: int) -> bool:
        """Read records of `side` until `entries` has `size` of them. Return False if the side ends
        before that.
        """
        while len(entries) < size:
            entry = side.entry()
            if entry is None:
                return False
            passes = self._pass_skipped if side is self.source else self._pass_foreign
            if not passes(entry):
                side.pass_entry()
                entries.append(entry)
        return True

    def _as_seen(
        self, source_entries: Sequence[Entry], target_entries: Sequence[Entry]
    ) -> tuple[list[SideRecord], list[SideRecord]]:
        with_timestamp = not any(entry.is_own_time for entry in target_entries)
        source_seen = []
        for entry in source_entries:
            mapped = self.pairs.counterpart(entry.offset)
            at = -1 if mapped is None else mapped.offset + self._shift
            source_seen.append(
                SideRecord(entry.offset, at, entry.number(with_timestamp=with_timestamp))
            )
        target_seen = [
            SideRecord(entry.offset, entry.offset, entry.number(with_timestamp=with_timestamp))
            for entry in target_entries
        ]
        return source_seen, target_seen

    def _as_far_as_both(
        self, source_seen: Sequence[SideRecord], target_seen: Sequence[SideRecord]
    ) -> tuple[int, int]:
        """Return (number of source records, number of target records) up to the last position that
        both lists reach. Used if the sides do not match again within these lists.
        """
        last = min((side[-1].at for side in (source_seen, target_seen) if side), default=0)
        until = (
            sum(seen.at <= last for seen in source_seen),
            sum(seen.at <= last for seen in target_seen),
        )
        return until if any(until) else (len(source_seen), len(target_seen))

    def _sort_out(
        self,
        entries: tuple[Sequence[Entry], Sequence[Entry]],
        seen: tuple[Sequence[SideRecord], Sequence[SideRecord]],
    ) -> None:
        source_by_offset, target_by_offset = (
            {entry.offset: entry for entry in side} for side in entries
        )
        sorts = classify(*seen)
        for record, other in sorts.same:
            self._note_same(source_by_offset[record.offset], other.offset)
        if sorts.moved_source:
            self.result.add_difference(
                DifferenceKind.REORDERED,
                _span(sorts.moved_source),
                _span(sorts.moved_target),
                len(sorts.moved_source),
            )
        for record, other in sorts.different:
            why = target_by_offset[other.offset].problem or source_by_offset[record.offset].problem
            self.result.add_difference(
                DifferenceKind.DIFFERENT, _span([record]), _span([other]), 1, why
            )
        lost = [record for record in sorts.missing if self._sort_out_missing(record)]
        last = entries[0][-1].offset + 1 if entries[0] else None
        added = [
            other
            for other in sorts.extra
            if self._sort_out_extra(other, last, target_by_offset[other.offset].problem)
        ]
        for record in (*sorts.moved_source, *(record for record, _ in sorts.different), *lost):
            self._count(source_by_offset[record.offset], record.offset, lambda day: day.source)
        for other in (*sorts.moved_target, *(other for _, other in sorts.different), *added):
            # a digest with `~offset` equals none with a source offset, so the digests of both sides
            # differ
            self._count(target_by_offset[other.offset], ~other.offset, lambda day: day.target)

    def _sort_out_missing(self, record: SideRecord) -> bool:
        """Report a source record that the target lacks, and return True. If there is a valid reason
        for that, count the record as a gap, and return False.
        """
        mapped = self.pairs.counterpart(record.offset)
        reason = None if mapped is None else self._why_gone_on_target(mapped, record.at)
        if reason is not None:
            self.result.gaps[reason] += 1
            return False
        why = "" if mapped is None or mapped.is_known else NOT_IN_MAP
        self.result.add_difference(DifferenceKind.MISSING, _span([record]), None, 1, why)
        return True

    def _sort_out_extra(self, other: SideRecord, last: int | None, problem: str) -> bool:
        """Report a target record that the source lacks, and return True. If there is a valid reason
        for that, count the record as a gap, and return False. `last`: source offset after the
        records that were read.
        """
        origin = self.pairs.origin(other.at - self._shift)
        if origin is not None and origin.is_known and origin.offset < self.source.start():
            self.result.gaps[GapCause.SOURCE_DELETED] += 1
            return False
        may_be_cleaned = (
            self.source.may_lack
            and origin is not None
            and origin.is_known
            and last is not None
            and origin.offset < last
            and not self.source.has_hidden(origin.offset)
        )
        if may_be_cleaned:
            self.result.gaps[GapCause.SOURCE_CLEANED] += 1
            return False
        in_map = origin is not None and origin.is_known
        why = problem or (NO_SUCH_SOURCE if in_map else BY_OTHERS)
        self.result.add_difference(DifferenceKind.EXTRA, None, _span([other]), 1, why)
        return True

    def _note_equal(
        self, source: Span, target: Span, records: int, *, is_known: bool = True
    ) -> None:
        """Count equal records, or report them as shifted if the map has no or another position for
        them.
        """
        if is_known and not self._shift:
            self.result.add_equal(records)
            return
        why = ELSEWHERE if is_known else NOT_IN_MAP
        self.result.add_difference(DifferenceKind.SHIFTED, source, target, records, why)


def _size(record: Record) -> int:
    """Return the number of bytes that a record has in a batch, without a few bytes for lengths."""
    parts = [record.key, record.value]
    parts += (value for _, value in record.headers)
    return sum(len(part) for part in parts if part) + sum(len(key) for key, _ in record.headers)


def _span(records: Sequence[SideRecord]) -> Span:
    offsets = [seen.offset for seen in records]
    return Span(min(offsets), max(offsets) + 1)


# The functions below compare two batches, or rows of them, without creating an object per record.
# If the headers are equal, equal bytes after them mean equal records. So batches of the same codec
# are compared as stored, and batches of different codecs uncompressed. A deep comparison also reads
# each record of equal batches.


def are_equal(source: Piece, target: Piece, result: Compared, *, is_deep: bool) -> bool:
    """If both batches are equal, count them by day and return True, else return False."""
    if not _may_be_equal(source.header, target.header):
        return False
    try:
        verify_crc(target.data, 0, target.header)  # consumers check this CRC, too
        if is_deep:
            return _by_records(source, target, result)
        if source.header.attributes & CODEC_MASK == target.header.attributes & CODEC_MASK:
            return _by_bytes(source, target, result)
        return _by_payload(source, target, result)
    except CorruptData:
        return False  # the comparison by record finds the error again and reports it


def _may_be_equal(header: BatchHeader, other: BatchHeader) -> bool:
    """Return True if the headers fit each other, so that the records are equal if the uncompressed
    bytes are.
    """
    return (
        not (header.is_log_append_time or other.is_log_append_time)
        and header.is_dense
        and other.is_dense
        and (header.count, header.base_timestamp, header.max_timestamp)
        == (other.count, other.base_timestamp, other.max_timestamp)
    )


def _by_bytes(source: Piece, target: Piece, result: Compared) -> bool:
    header = source.header
    # copied to `bytes`, because memoryviews are compared slowly, value by value
    if bytes(source.data[HEADER_BYTES:]) != bytes(target.data[HEADER_BYTES:]):
        return False
    result.by_bytes += header.count
    result.day(header.base_timestamp).both.add_batch(header.count, header.length)
    return True


def _by_payload(source: Piece, target: Piece, result: Compared) -> bool:
    header = source.header
    verify_crc(source.data, 0, header)
    payload = _payload(source)
    if payload != _payload(target):
        return False
    result.day(header.base_timestamp).both.add_records(header.count, len(payload))
    return True


def _by_records(source: Piece, target: Piece, result: Compared) -> bool:
    verify_crc(source.data, 0, source.header)
    table = decode_table(source.data)
    if table.data != _payload(target):
        return False
    rows = RecordTable(table, 0, table.rows, is_own_time=False)
    _count_rows(rows, table.rows, result, is_deep=True)
    return True


def count_equal(
    source: RecordTable, target: RecordTable, limit: int, result: Compared, *, is_deep: bool
) -> int:
    """Return how many of the next records (at most `limit`) are equal on both sides, and add them
    to the counts of their days. Return 0 if the offsets of these records have a gap on either side,
    because the records must then be compared one by one.
    """
    if source.is_own_time or target.is_own_time:
        return 0
    count = min(limit, source.end - source.at, target.end - target.at)
    if count <= 0:
        return 0
    source_columns, target_columns = _columns(source, count), _columns(target, count)
    if any(
        offsets[-1] - offsets[0] != count - 1 for offsets in (source_columns[0], target_columns[0])
    ):
        return 0  # one side has a gap, so the records are compared one by one
    data, other = source.table.data, target.table.data
    equal = 0
    rows = zip(*source_columns[1:], *target_columns[1:], strict=True)
    for time, begin, end, their_time, their_begin, their_end in rows:
        if time != their_time or data[begin:end] != other[their_begin:their_end]:
            break
        equal += 1
    _count_rows(source, equal, result, is_deep=is_deep)
    return equal


def _columns(rows: RecordTable, count: int) -> tuple[Sequence[int], ...]:
    """Return four columns of the next rows: offset, timestamp, and begin and end of the content."""
    columns = (OFFSET, TIMESTAMP, REST, END)
    return tuple(rows.table.column(column, rows.at, rows.at + count) for column in columns)


def _count_rows(rows: RecordTable, count: int, result: Compared, *, is_deep: bool) -> None:
    if not count:
        return
    offsets, times, begins, ends = _columns(rows, count)
    first, last = result.day(min(times)).both, result.day(max(times)).both
    if first is last and not is_deep:
        first.add_records(count, sum(ends) - sum(begins))
        return
    for offset, timestamp, begin, end in zip(offsets, times, begins, ends, strict=True):
        both = first if first is last else result.day(timestamp).both
        if is_deep:
            both.add_digest(offset, timestamp, rows.table.data[begin:end])
        else:
            both.add_records(1, end - begin)


def _payload(piece: Piece) -> bytes:
    return bytes(decompress(piece.header.codec, piece.data[HEADER_BYTES:]))
