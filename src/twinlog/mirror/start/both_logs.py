"""Reads both logs of a partition for its start, up to the log ends that the start queried first.
Also finds out whether a part of the source log has records that a reader sees. Markers and aborted
records do not count as such.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.mirror.map.offset_map import Run, run_at
from twinlog.mirror.ports import LogEnds, LogReader, answer_of
from twinlog.mirror.skips import Skip, skip_at
from twinlog.mirror.start.request import StartRequest
from twinlog.mirror.start.tail_check import (
    TAIL_RECORDS,
    Known,
    TargetTail,
    read_tail,
    same_record,
    source_records,
    upstream_offsets,
)
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.record_batch import BatchHeader, read_headers
from twinlog.wire.records import Record, control_type

MAX_PENDING_READS: Final = 20
"""Maximum fetches of about 1 MB in `holds_records`. A longer range is assumed to have a record."""


def holds_records(
    read: Callable[[int], memoryview],
    *,
    low: int,
    high: int,
    isolation: Isolation,
    skips: Sequence[Skip] = (),
) -> bool:
    """Return True if a reader of the source offsets [low, high) would see a record, other than
    those that an operator skips (`skips`).

    `read` fetches whole batches.
    """
    open_producers: set[int] = set()
    for _ in range(MAX_PENDING_READS):
        if low >= high:
            return False
        before = low
        raw = read(low)
        for header, start in read_headers(raw):
            if header.next_offset <= low:
                continue
            if header.base_offset >= high:
                return False
            skip = skip_at(skips, max(low, header.base_offset))
            if skip is not None and (skip.is_batch or header.next_offset <= skip.next):
                low = max(skip.next, low) if skip.is_batch else header.next_offset
                continue
            low = header.next_offset
            if _decides(header, raw[start : start + header.length], open_producers, isolation):
                return True
        if low == before:
            return False  # compaction has removed all batches from here on
    return True


def _decides(
    header: BatchHeader, batch: memoryview, open_producers: set[int], isolation: Isolation
) -> bool:
    """Return True if this batch proves that a reader with this isolation sees at least one record.
    With READ_COMMITTED, a transactional batch proves nothing until its commit marker follows. So
    its producer is added to `open_producers`, and a marker removes it.
    """
    if header.magic < 2:
        return True
    if header.is_control:
        known = header.producer_id in open_producers
        open_producers.discard(header.producer_id)
        return known and control_type(batch) == "commit"
    if header.count == 0:
        return False
    if isolation is Isolation.READ_COMMITTED and header.is_transactional:
        open_producers.add(header.producer_id)
        return False
    return True


def rolled_back(answers: Iterable[memoryview]) -> set[int]:
    """Return the offsets of aborted records in fetched bytes. Abort markers in the same bytes show
    which records these are.

    Responses may overlap, and may be in any order.
    """
    batches = {
        header.base_offset: (header, raw[start : start + header.length])
        for raw in answers
        for header, start in read_headers(raw)
        if header.magic >= 2 and header.is_transactional
    }
    out: set[int] = set()
    is_open: dict[int, list[range]] = {}
    for _, (header, batch) in sorted(batches.items()):
        if not header.is_control:
            span = range(header.base_offset, header.next_offset)
            is_open.setdefault(header.producer_id, []).append(span)
        elif header.count:
            spans = is_open.pop(header.producer_id, [])
            if control_type(batch) == "abort":
                out.update(*spans)
    return out


MAX_SEARCH_READS: Final = 20
"""Maximum fetches of about 1 MB per log for a search of the source offsets near the expected
position (NEIGHBOURHOOD).
"""

NEIGHBOURHOOD: Final = 2_000
"""Number of upstream offsets before and after the expected position that are searched."""


def tail_start(target_ends: LogEnds) -> int:
    """Return the target offset at which the tail check begins to read."""
    return max(target_ends.log_start, target_ends.log_end - TAIL_RECORDS)


def tail_source(runs: Sequence[Run], target_ends: LogEnds) -> int | None:
    """Return the source offset of the first record of the tail check, by the map and K at the map's
    first run. Return None if the map has no run or the target's log is empty.
    """
    if not runs or target_ends.log_end <= target_ends.log_start:
        return None
    ordinal = tail_start(target_ends) - (runs[0].downstream - runs[0].ordinal)
    first = run_at(runs, ordinal) or runs[0]
    return first.upstream_of(max(first.ordinal, ordinal))


class NearRecords(NamedTuple):
    """Source records near an offset, without aborted and skipped ones, which are not copied. Before
    offset `low`, records may be missing.
    """

    records: dict[int, Known]
    low: int


@dataclass(slots=True, eq=False)
class BothLogs:
    """The logs of a source partition and of its target partition."""

    request: StartRequest
    source_ends: LogEnds
    target_ends: LogEnds
    source: LogReader
    target: LogReader
    isolation: Isolation

    def read_source(self, offset: int) -> memoryview:
        """Return whole batches of the source log from an offset on."""
        return _read(self.source, self.request.source, offset)

    def read_target(self, offset: int) -> memoryview:
        """Return whole batches of the target log from an offset on."""
        return _read(self.target, self.request.target, offset)

    def target_tail(self) -> TargetTail:
        """Return the records of the target's last offsets, as far back as the read limits allow."""
        low, end = tail_start(self.target_ends), self.target_ends.log_end
        answers, whole_from = newest_first(self.read_target, range(low, end))
        if any(
            header.base_offset >= end and header.producer_id in self.request.our_producers
            for raw in answers
            for header, _ in read_headers(raw)
        ):
            raise PartitionError(
                f"{self.request.target}: a lane of this flow that was considered dead wrote to the "
                f"partition during the check, at or after offset {end}; checking again",
                code="OTHER_WRITER",
                fate=Fate.RETRIABLE,
            )
        return read_tail(answers, low, end, whole_from)

    def target_records(self, low: int, high: int) -> tuple[Record, ...]:
        """Return the target's newest records in [low, high), as far as the read limits allow."""
        answers, whole_from = newest_first(self.read_target, range(low, high))
        records = read_tail(answers, low, high).records
        return tuple(record for record in records if record.offset >= whole_from)

    def target_record(self, offset: int) -> Record | None:
        raw = self.read_target(offset)
        return next(iter(read_tail([raw], offset, offset + 1).records), None)

    def source_record(self, offset: int) -> Known | None:
        """Return the source's current record at an offset, or None. It is read at every call,
        because a truncated log may be refilled at any time.
        """
        if offset < self.source_ends.log_start:
            return None
        try:
            raw = self.read_source(offset)
        except TwinlogError as error:
            if error.code == "OFFSET_OUT_OF_RANGE":
                return None
            raise
        return self._decode_known(raw, upto=offset)[0].get(offset)

    def are_same(
        self, upstream: int, downstream: int, *, compare_timestamp: bool = True
    ) -> bool | None:
        """Return True if the source has the same record at `upstream` as the target at
        `downstream`, False if the records differ. Return None if one log has no record there.
        """
        target_record, source_record = self.target_record(downstream), self.source_record(upstream)
        if source_record is None or target_record is None:
            return None
        return same_record(source_record[0], target_record, compare_timestamp=compare_timestamp)

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of source offset `offset` - 1, from the header of its batch, or
        -1 if no batch contains that offset.

        With this epoch, the copy's first Fetch detects if the source was truncated after this read.
        """
        if not self.source_ends.log_start < offset <= self.source_ends.high_watermark:
            return -1
        if (skip := skip_at(self.request.skips, offset - 1)) is not None and skip.is_batch:
            return -1  # unknown, because the epoch in a damaged batch may be wrong, too
        try:
            raw = self.read_source(offset - 1)
        except TwinlogError as error:
            if error.code == "OFFSET_OUT_OF_RANGE":
                return -1
            raise
        first = next((header for header, _ in read_headers(raw)), None)
        if first is None or first.magic < 2 or not first.base_offset < offset <= first.next_offset:
            return -1
        return first.leader_epoch

    def source_before(self, offset: int) -> Known | None:
        """Return the source's newest existing record before an offset."""
        before, *_ = self._records_before(offset)
        return before[max(before)] if before else None

    def sources(self, tail: TargetTail, runs: Sequence[Run], k: int) -> dict[int, Known]:
        """Return the source records that belong to the tail's records according to the map, by
        source offset. Records that the source no longer has are left out.
        """
        wanted = [
            offset
            for offset in upstream_offsets(tail, runs, k)
            if self.source_ends.log_start <= offset < self.source_ends.high_watermark
        ]
        out: dict[int, Known] = {}
        for raw in newest_first(self.read_source, wanted).answers:
            out |= self._decode_known(raw, upto=wanted[-1])[0]
        return out

    def around(self, offset: int, begin: int | None = None) -> NearRecords:
        """Return the source records from `begin` (default: NEIGHBOURHOOD offsets before `offset`)
        up to NEIGHBOURHOOD offsets after `offset`.
        """
        records, low, answers = self._records_before(offset, begin)
        records |= self.source_records(offset, offset + NEIGHBOURHOOD, answers)
        committed = self.isolation is Isolation.READ_COMMITTED
        aborted = rolled_back(answers) if committed else ()
        return NearRecords({at: record for at, record in records.items() if at not in aborted}, low)

    def _records_before(
        self, offset: int, begin: int | None = None
    ) -> tuple[dict[int, Known], int, list[memoryview]]:
        low = max(self.source_ends.log_start, offset - NEIGHBOURHOOD if begin is None else begin)
        wanted = range(low, min(offset, self.source_ends.high_watermark))
        answers, whole_from = newest_first(self.read_source, wanted, max_reads=MAX_SEARCH_READS)
        records: dict[int, Known] = {}
        for raw in answers:
            records |= self._decode_known(raw, upto=offset)[0]
        near = {at: record for at, record in records.items() if whole_from <= at < offset}
        return self._without_skipped(near), whole_from if wanted else offset, answers

    def _decode_known(
        self, raw: memoryview, *, upto: int | None = None
    ) -> tuple[dict[int, Known], int]:
        return source_records(raw, upto=upto, skips=self.request.skips)

    def _without_skipped(self, records: dict[int, Known]) -> dict[int, Known]:
        """Return the records except those that an operator skips, which were not copied."""
        skips = self.request.skips
        return {at: record for at, record in records.items() if skip_at(skips, at) is None}

    def source_records(
        self, low: int, high: int, read: list[memoryview] | None = None
    ) -> dict[int, Known]:
        """Return the source's records from offset `low` to `high` or a little further, as far as
        the read limit allows.

        The fetched bytes are appended to `read`.
        """
        out: dict[int, Known] = {}
        offset = max(low, self.source_ends.log_start)
        for _ in range(MAX_SEARCH_READS):
            if offset >= min(high, self.source_ends.high_watermark):
                break
            raw = self.read_source(offset)
            if read is not None:
                read.append(raw)
            part, after = self._decode_known(raw)
            if after <= offset:
                break
            out |= {at: record for at, record in part.items() if at >= low}
            offset = after
        return self._without_skipped(out)


def _read(view: LogReader, tp: TopicPartition, offset: int) -> memoryview:
    missing = f"the partition's leader returned no result for a fetch at offset {offset}"
    return answer_of(view.read({tp: offset}), tp, view, missing).records


# `newest_first` reads the end of a log, newest records first, although brokers read only forwards.
# A Fetch returns about 1 MB of whole batches, and the number of their records is unknown
# beforehand. So the first read begins at the oldest wanted offset. If it does not reach the end,
# the next reads begin nearer to the end until one reaches it. Then reads continue backwards from
# there. If the limit is reached, the oldest records are missing. If a response begins after a
# wanted offset, the log has a hole there, so no record is missing.

MAX_READS: Final = 20
"""Maximum fetches for the newest records. A tail of 100 records of 600 KB would be 60 MB."""

MAX_BYTES: Final = 24 << 20
"""After this many bytes, `newest_first` makes no other fetch. The number of fetches alone is no
limit, because a batch may be unusually large.
"""


class NewestRecords(NamedTuple):
    """Fetched bytes (`answers`), which may overlap, and are in no order."""

    answers: list[memoryview]
    whole_from: int
    """From this offset on, `answers` contain all wanted offsets."""


def newest_first(
    read: Callable[[int], memoryview], offsets: Sequence[int], *, max_reads: int = MAX_READS
) -> NewestRecords:
    """Read the batches of these offsets, which must rise. The newest are read first, older ones as
    far as the read limits allow.
    """
    answers: list[memoryview] = []
    top, step = len(offsets), len(offsets)
    done: list[tuple[int, int]] = []
    reads = size = 0
    while top > 0 and reads < max_reads and size < MAX_BYTES:
        held = max((reached for _, reached in done if reached < top), default=0)
        at = max(held, top - step)
        raw = read(offsets[at])
        answers.append(raw)
        reads, size = reads + 1, size + len(raw)
        reached = _count_reached(raw, offsets)
        if reached >= top:
            top = at
            step = max(step, reached - at)
        else:
            done.append((at, reached))
            step = max(1, min(step // 2, reached - at))
        while older := next(
            (done_range for done_range in done if done_range[0] < top <= done_range[1]), None
        ):
            top = older[0]
    if top < len(offsets):
        return NewestRecords(answers, offsets[top])
    return NewestRecords(
        answers, offsets[-1] + 1 if offsets else 0
    )  # the read limit was reached before the newest offset


def _count_reached(raw: memoryview, offsets: Sequence[int]) -> int:
    """Return how many of the wanted offsets are below the end of the last batch in `raw`; all of
    them if it has no batch.
    """
    after = -1
    for header, _ in read_headers(raw):
        after = header.next_offset
    return len(offsets) if after < 0 else bisect_left(offsets, after)
