"""The intake of a transformed partition: fetched batches become ranges, answers become batches.

    fetched   [100..104] [marker] [aborted] [107..110]      one leader epoch, at most RANGE_BYTES
    range     first 100, end 111, batches [100..104] [107..110]
    answer    records of 101, 103, 108; end 111
    batch     ordinals 40, 41, 42; runs (40, 101) (41, 103) (42, 108)

The ordinal of a record is the number of records that the flow wrote before; a run is (ordinal,
upstream offset). A range has whole batches as they were fetched, because the transform decodes them
anyway. Only message formats 0 and 1, and batches with a record to skip, are encoded again. An
answer is checked before any of it is sent, because the application of the transforms runs user code
and may be wrong.
"""

from __future__ import annotations

import itertools
import operator
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from twinlog.errors import CorruptData, PartitionError, TwinlogError
from twinlog.mirror.copy.intake import (
    MAGIC_V2,
    Aborted,
    Intake,
    OutBatch,
    RolledBack,
    has_skipped,
)
from twinlog.mirror.copy.ranges import RangeAnswer, RangeFailure
from twinlog.mirror.map.offset_map import Run
from twinlog.model import sequence_of
from twinlog.wire.record_batch import (
    BatchHeader,
    Codec,
    read_header,
    read_headers,
    rewrite_header,
    verify_crc,
)
from twinlog.wire.records import (
    Rows,
    decode_legacy,
    decode_rows,
    encode_rows,
    encode_sized,
    fingerprint,
    rows_of,
)

RANGE_BYTES: Final = 1 << 20
"""Maximum bytes of a range, unless a single batch is larger."""

MOST_BYTES: Final = 63 << 20
"""Maximum bytes of a range, even if it has a single batch. It fits into one message of the channel
(`channel.frames`) with some bytes for its other fields.
"""


@dataclass(slots=True, kw_only=True)
class Stretch:
    """A contiguous part of the source partition, as it was read, within one leader epoch."""

    first: int
    end: int = -1
    epoch: int
    """Leader epoch of the stretch's batches."""
    end_epoch: int = -1
    """Leader epoch of the offset before `end`, or -1 if unknown."""
    batches: list[memoryview] = field(default_factory=list)
    """The stretch's batches, without markers, aborted batches and skipped records. May be empty."""
    size: int = 0
    number: int = -1
    """Number of the range (`ranges.SourceRange`) that was offered for this stretch, or -1 if it has
    no records and needs none.
    """
    answer: RangeAnswer | None = None
    is_quarantined: bool = False
    """Whether the dead letters of the failed records in `answer` were sent."""
    timestamps: list[tuple[int, int]] = field(default_factory=list)
    """Base offset and greatest timestamp (ms) of the stretch's first and last batch, as they were
    read.
    """

    def add(self, batch: memoryview) -> None:
        self.batches.append(batch)
        self.size += len(batch)

    def extend(self, later: Stretch) -> bool:
        """Append the stretch that follows this one, and return True. Return False if this one was
        offered or answered, or if a range cannot contain both.
        """
        is_open = self.number < 0 and self.answer is None
        if not is_open or self.epoch != later.epoch or self.size + later.size > RANGE_BYTES:
            return False
        self.batches += later.batches
        self.size += later.size
        self.end, self.end_epoch = later.end, later.end_epoch
        return True

    def copy_batches(self) -> None:
        """Replace the batches by copies. Each batch is a view of a Fetch response, and would keep
        the whole response in memory while this stretch waits.
        """
        self.batches = [memoryview(b"".join(self.batches))]

    def answer_itself(self) -> None:
        """Set `answer` if the transforms' application cannot get this stretch, or need not get it:
        a failure if the stretch is too large, and an answer without records if it has no batches.
        """
        if self.size > MOST_BYTES:
            text = f"its batch has {self.size} bytes, but transforms accept at most {MOST_BYTES}"
            self.answer = _without_records(self.first, RangeFailure(offset=self.first, text=text))
        elif not self.batches:
            self.answer = _without_records(self.end)

    def cut(self, offset: int) -> Stretch:
        """End this stretch at source offset `offset`, because the answer to its range ends there.
        Return the rest as a new stretch, with the batches that end after `offset`. This stretch
        must have been offered.
        """
        rest = Stretch(first=offset, end=self.end, epoch=self.epoch, end_epoch=self.end_epoch)
        (view,) = self.batches
        for header, begin in read_headers(view):
            if header.next_offset > offset:
                rest.add(view[begin : begin + header.length])
        self.end, self.end_epoch = offset, self.epoch
        return rest


def _without_records(end: int, failure: RangeFailure | None = None) -> RangeAnswer:
    return RangeAnswer(number=-1, batches=(), offsets=b"", end=end, failure=failure)


class RangeIntake(Intake):
    """Reads stretches of a source partition, and encodes the application's answers as batches to
    send.
    """

    _stretches: list[Stretch]

    def read(self, records: memoryview, aborted: Iterable[Aborted], end: int) -> list[Stretch]:
        """Return the stretches of a Fetch response, in order and without gaps between them.

        As in `take`, stretches before a batch that cannot be read are returned, and the next
        response begins with that batch.
        """
        begin, self._stretches = self.position, []
        try:
            self.take(records, aborted, end)
        except TwinlogError:
            if not self._stretches:
                raise
        stretches = self._stretches
        if not stretches and self.position > begin:
            stretches = [Stretch(first=begin, epoch=self.last_fetched_epoch)]
        if stretches:
            stretches[0].first = begin
            for stretch, after in itertools.pairwise(stretches):
                stretch.end, stretch.end_epoch = after.first, stretch.epoch
            stretches[-1].end, stretches[-1].end_epoch = self.position, self.last_fetched_epoch
        self._stretches = []
        return stretches

    def _decode(
        self, header: BatchHeader, batch: memoryview, rolled_back: RolledBack
    ) -> Sequence[OutBatch]:
        if header.magic >= MAGIC_V2:
            verify_crc(batch, 0, header)
        is_empty = header.magic >= MAGIC_V2 and (header.count == 0 or header.is_control)
        if rolled_back.skip(header, batch) or is_empty:
            self._stretch(header.leader_epoch, 0)
        else:
            self.batches += 1
            self.deep_batches += 1
            for part in self._parts(header, batch):
                stretch = self._stretch(header.leader_epoch, len(part))
                stretch.add(part)
                stretch.timestamps[1:] = [(header.base_offset, header.max_timestamp)]
        self.position = max(self.position, header.next_offset)
        return ()

    def _stretch(self, epoch: int, size: int) -> Stretch:
        """Return the last stretch if it has the leader epoch `epoch` and room for `size` bytes.
        Otherwise append and return a new stretch.
        """
        last = self._stretches[-1] if self._stretches else None
        if last is None or last.epoch != epoch or (last.size and last.size + size > RANGE_BYTES):
            last = Stretch(first=self.position, epoch=epoch)
            self._stretches.append(last)
        return last

    def _parts(self, header: BatchHeader, batch: memoryview) -> Iterator[memoryview]:
        """Yield the batch if it is of magic 2 and no record of it is skipped. Otherwise yield its
        records in batches of magic 2 without gaps.
        """
        if header.magic >= MAGIC_V2 and not has_skipped(header, self._skips):
            yield batch
            return
        old = header.magic < MAGIC_V2
        rows = self._rows_to_copy(rows_of(decode_legacy(batch)) if old else decode_rows(batch))
        yield from dense_batches(rows)

    # -- answers of the application

    def encode(self, stretch: Stretch, answer: RangeAnswer) -> Iterator[OutBatch]:
        """Yield the batches of an answer. Answers must be encoded in the order of their ranges.

        Raises CorruptData if the answer does not fit its range, and PartitionError
        (RECORD_TOO_LARGE) if a record fits in no batch.
        """
        # the whole answer is checked before a part of it is used
        offsets, decoded = checked(stretch, answer)
        done = 0
        for raw, rows in zip(answer.batches, decoded, strict=True):
            yield from self._sized(stretch, raw, rows, offsets[done : done + len(rows)])
            done += len(rows)

    def _sized(
        self, stretch: Stretch, raw: bytes, rows: Rows, offsets: array[int]
    ) -> Iterator[OutBatch]:
        groups = list(self._before_wrap(rows))
        if len(raw) <= self.limit_bytes and len(groups) == 1:
            _, least, most = rows.measure()
            yield self._made(stretch, bytearray(raw), rows, offsets, (least, most))
            return
        codec, done = read_header(memoryview(raw)).codec, 0
        for group in groups:
            try:
                sized = encode_sized(group, codec=codec, limit_bytes=self.limit_bytes)
            except PartitionError as error:
                raise _too_large_error(error, offsets, self.limit_bytes) from None
            for batch in sized:
                count = len(batch.rows)
                stamps = batch.least_timestamp, batch.most_timestamp
                some = offsets[done : done + count]
                yield self._made(stretch, batch.data, batch.rows, some, stamps)
                done += count

    def _made(
        self,
        stretch: Stretch,
        data: bytearray,
        rows: Rows,
        offsets: array[int],
        stamps: tuple[int, int],
    ) -> OutBatch:
        view, ordinal = memoryview(data), self.ordinal
        rewrite_header(view, producer_id=self._producer_id, base_sequence=sequence_of(ordinal))
        batch = OutBatch(
            ordinal=ordinal,
            count=len(rows),
            data=view,
            upstream=offsets[0],
            upstream_next=offsets[-1] + 1,
            runs=tuple(self._runs_at(offsets)),
            fingerprint=fingerprint(rows.record(-1)),
            max_timestamp=stamps[1],
            oldest_timestamp=stamps[0],
            leader_epoch=stretch.epoch,
            offsets=offsets,
        )
        self.ordinal += len(rows)
        return batch

    def _runs_at(self, offsets: array[int]) -> Iterator[Run]:
        """Yield a run of the offset map for each record whose source offset is not contiguous with
        that of the previous record.
        """
        before = offsets[0] - 1
        has_gaps = offsets[-1] - offsets[0] + 1 > len(offsets)
        for index, offset in enumerate(offsets if has_gaps else offsets[:1], self.ordinal):
            if offset != before + 1 or index == self.ordinal:
                run = self._run(index, offset)
                if run is not None:
                    yield run
            before = offset


def dense_batches(rows: Rows) -> Iterator[memoryview]:
    """Yield the records at their own offsets, in batches without gaps. A new batch begins after
    each gap.
    """
    begins = [index for index, _ in rows.run_starts()] if rows else []
    for begin, end in itertools.pairwise([*begins, len(rows)]):
        part = rows.slice(begin, end)
        yield dense_batch(part, part.offset(0))


def dense_batch(rows: Rows, first: int) -> memoryview:
    """Return the records as an uncompressed batch with the offsets first, first + 1, ..."""
    data = encode_rows(rows, codec=Codec.NONE).data
    view = memoryview(data)
    rewrite_header(view, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    data[0:8] = first.to_bytes(8, "big")  # the CRC does not cover the base offset
    return view


def checked(stretch: Stretch, answer: RangeAnswer) -> tuple[array[int], list[Rows]]:
    """Return (offsets, batches) of an answer: the source offset of each record, and the records of
    each batch. Raises CorruptData if the answer does not fit the range of `stretch`.
    """
    offsets = _offsets(stretch, answer)
    decoded = [_decoded(raw) for raw in answer.batches]
    if (count := sum(map(len, decoded))) != len(offsets):
        raise CorruptData(f"the result has {len(offsets)} offsets, but {count} records")
    failed = [failure.offset for failure in answer.quarantined]
    if failed and not (
        all(map(operator.lt, failed, failed[1:]))
        and stretch.first <= failed[0]
        and failed[-1] < answer.end
        and set(failed).isdisjoint(offsets)
    ):
        raise CorruptData(
            "the result lists a failed record twice, out of order or outside of its range, or also "
            "returns the record"
        )
    return offsets, decoded


def _offsets(stretch: Stretch, answer: RangeAnswer) -> array[int]:
    """Return the source offset of each record of the answer. Raises CorruptData if an offset is
    outside the range of `stretch`, or the offsets do not rise.
    """
    offsets = array("q")
    try:
        offsets.frombytes(answer.offsets)
    except ValueError:
        raise CorruptData("the offsets of the result are not a multiple of 8 bytes") from None
    end = stretch.end if answer.failure is None else answer.failure.offset
    if answer.end != end or not stretch.first <= end <= stretch.end:
        raise CorruptData(
            f"the result ends at offset {answer.end}, expected {end} in the range "
            f"[{stretch.first}, {stretch.end})"
        )
    if answer.failure is not None and end == stretch.end:
        raise CorruptData(f"the result has a failure at offset {end}, after its range")
    is_rising = all(map(operator.lt, offsets, offsets[1:]))
    if offsets and not (is_rising and stretch.first <= offsets[0] and offsets[-1] < end):
        raise CorruptData(
            f"the offsets of the result ({offsets[0]} to {offsets[-1]}) are not increasing, or are "
            f"not all in [{stretch.first}, {end})"
        )
    return offsets


def _decoded(raw: bytes) -> Rows:
    """Return the records of one batch of an answer. Raises CorruptData unless `raw` is one valid
    batch of magic 2 without gaps.
    """
    view = memoryview(raw)
    header = read_header(view)
    is_whole = header.magic == MAGIC_V2 and header.length == len(raw)
    if not is_whole or not header.count or header.base_offset:
        raise CorruptData("the result has bytes that are not a whole batch of magic 2")
    if header.is_control or header.is_log_append_time or not header.is_dense:
        raise CorruptData("the result has a control batch, or a batch with LogAppendTime or gaps")
    verify_crc(view, 0, header)
    rows = decode_rows(view)
    if rows.measure()[2] != header.max_timestamp:
        raise CorruptData("a batch has another maximum timestamp than its header")
    return rows


def _too_large_error(
    error: PartitionError, offsets: array[int], limit_bytes: int
) -> PartitionError:
    """Return the error for a transformed record that is too large, with the record's source offset
    instead of its position in the batch.
    """
    at = -1 if error.poison is None else offsets[error.poison[0]]
    too_large = PartitionError(
        f"upstream record {at}, as transformed, is larger than the {limit_bytes} bytes that the "
        "target topic accepts: raise max.message.bytes of the target topic",
        code=error.code,
    )
    too_large.poison = at, at + 1
    return too_large
