"""Finds where this flow's records end in a topic to which other clients may write.

The same walk serves topics that keep their names (identity) and topics whose records are
distributed by key.

    target   [ours] [ours] | [theirs] [ours] [theirs] [theirs] ...      log end
                           mark              ^ the end of the copy
    read     none          `- headers only ->

**Problem.** In a topic to which only this flow writes, K (target offset minus ordinal,
`mirror.start_point`) is constant, so the log end determines the position (`position`). Here K
changes with each foreign record. So the walk begins at the map's mark (`offset_map.Mark`), which
states how far the copy certainly got, and reads the batch headers after that offset. A batch of one
of this flow's producer IDs moves the end of the copy, and its sequences must follow those of the
batches before. The broker's producer state checks the result and ends the walk, because no record
of this flow follows the last one that the broker remembers. A *final* mark ends the walk, too,
because it was written with nothing in flight (`Mark.is_final`). But no mark proves that the log
still has the records before it.

**A target that lost its end** (unclean election) and was then written to by other clients may reach
beyond the mark again, although no record after the mark is this flow's. While the broker knows this
flow's producer ID, its state shows the position. If the broker has forgotten the ID, the offset of
this flow's last record decides. A log assigns an offset once, so a foreign batch that contains that
offset proves the loss (`TARGET_TRUNCATED`). This requires that

- the offset is known, from the map, up to the mark;
- the record at that offset is not equal to the source's record. An equal record was there before
  this flow began, because a reverse flow begins after the records that both sides have;
- in a compacted topic, both records exist and differ. A record that was cleaned away may have been
  equal.

**Cost.** Other clients may have written any amount since the mark. A search for many partitions
reads only a little of each log. If that is not enough (`LongSearch`), the partition gets a search
of its own.

A Fetch ends at the high watermark. This flow's records above it were sent, and are neither missing
nor durable, so a walk that could not read so far has no result yet (`TARGET_UNDER_MIN_ISR`).

The walk only reads, so concurrent readers and crashes do not matter. ADR 32 has the table of
findings for each kind of topic.

**Rejected:** a search of its own for each kind of topic. Each lacked checks that the others had: a
gap was detected in one kind and silently lost in another (ADR 32).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.mirror.copy.fan_out import is_record
from twinlog.mirror.findings import Span, target_error
from twinlog.mirror.map.offset_map import Mark, Run, run_at
from twinlog.mirror.ports import READ_BYTES, LogEnds, LogReader, ProducerTail, answer_of
from twinlog.mirror.start.request import StartRequest
from twinlog.model import TopicPartition, sequence_of, sequences_ahead
from twinlog.wire.record_batch import BatchHeader, read_headers
from twinlog.wire.records import Record, decode_batch

MOST_BYTES: Final = 16 << 20
"""Maximum bytes per Fetch of a long search. It is large because brokers may be far away, and each
Fetch takes a round trip.
"""

READS_FOR_FOREIGN: Final = 4
"""Maximum fetches after this flow's last batch in search of a foreign batch, if other Twinlog flows
also write to the cluster. It is low, because those flows may have written any amount. The watch
checks the rest of the log (`lane.watches.foreign_records`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OurEnd:
    """The end of this flow's records in a target partition."""

    ordinal: int
    """Ordinal of this flow's next record in the partition, that is, the number of records that the
    flow has written to it.
    """
    downstream: int
    """Target offset after this flow's last record, or -1 if the flow has no record there or the
    offset is unknown.
    """
    foreign: int | None = None
    """Target offset of the first foreign record after this flow's last record, or None if there is
    none.
    """
    has_company: bool = False
    """Whether another Twinlog flow writes to the partition."""
    jumps: tuple[Run, ...] = ()
    """Runs for batches of this flow whose target offset differs from the map, because other clients
    wrote before them. The map lacks such a run if the lane died before it wrote the row.
    """


def find_end(
    request: StartRequest,
    target_ends: LogEnds,
    producer: ProducerTail | None,
    target: LogReader,
    known_producers: frozenset[int],
    is_copy: Callable[[int, int], bool | None],
) -> OurEnd:
    """Find the end of this flow's records. The search begins at the map's mark.

    `known_producers`: the producer IDs of all known flows. `is_copy(upstream, downstream)`: returns
    True if the logs have the same record at these offsets, False if not, None if one log has none.
    """
    walk = _Walk(request, target_ends, target, known_producers)
    remembered = _remembered(walk.mark, producer)
    expected = walk.mark.ordinal if remembered is None and walk.mark.is_final else remembered
    walk.run(expected)
    if remembered is None:
        _check_forgotten(walk, is_copy)
    if expected is None:
        return walk.end(walk.ordinal)
    # the broker remembers fewer records than the mark states, so records are lost; the cause is no
    # repeat, for which the walk would have raised an error
    if expected < walk.mark.ordinal:
        lost = f"{walk.mark.ordinal - expected} records that were acknowledged"
        raise truncated_error(request, lost, target_ends)
    if expected < walk.ordinal:
        what = f"the log has {walk.ordinal} records of this flow, but the leader remembers only"
        raise target_error(request.target, f"{what} {expected}", code="EXTRA_RECORDS")
    return walk.end(expected)


class LongSearch(TwinlogError):
    """Raised if the copy's end is not found within `StartRequest.most_reads` fetches."""


class _Walk:
    """Reads the batch headers from the map's mark on, and keeps track of the end of this flow's
    records.
    """

    def __init__(
        self,
        request: StartRequest,
        target_ends: LogEnds,
        target: LogReader,
        known_producers: frozenset[int],
    ) -> None:
        first = request.runs[0]
        self.request, self.target_ends = request, target_ends
        self._target, self._known = target, known_producers
        self.first = first.ordinal
        self.mark = request.mark or Mark(first.ordinal, max(0, first.downstream))
        self.last = _offset_of(request, self.mark.ordinal - 1)
        """Target offset of this flow's last record at the mark, or None if unknown."""
        self._check_log_reaches()
        begin = self.mark.downstream
        if begin > target_ends.log_end and self.last is not None:
            # the log lost only records of other clients, because this flow's last record is still
            # there
            begin = self.last + 1
        self.begin = max(begin, target_ends.log_start)
        self.is_whole = self.begin <= self.mark.downstream and not request.may_lose_batches
        """Whether no batch of this flow can have been deleted between the mark and the batches that
        were read.
        """
        self.ordinal = self.mark.ordinal
        self._downstream = self.mark.downstream if self.last is None else self.last + 1
        self._foreign: int | None = None
        self._has_company = False
        self._jumps: list[Run] = []

    def _check_log_reaches(self) -> None:
        """Raise PartitionError (TARGET_TRUNCATED) if the target's log ends before this flow's last
        record below the mark.

        The mark itself may be after the log's end, if the records after this flow's last one were
        of other clients and are lost.
        """
        reached = self.mark.downstream if self.last is None else self.last + 1
        if reached > self.target_ends.log_end:
            lost = f"{reached - self.target_ends.log_end} offsets of the copy"
            raise truncated_error(self.request, lost, self.target_ends)

    def run(self, expected: int | None) -> None:
        """Read headers until no record of this flow can follow. `expected`: the number of records
        that the flow has written to the partition, or None if unknown.
        """
        tp, end, reads = self.request.target, self.target_ends.log_end, -1
        headers = Headers(self._target, tp, self.begin, end, self.request.most_reads)
        for header in headers:
            if self.ordinal == expected:
                if reads < 0:
                    reads = headers.reads
                    headers.search_is_over()
                if self._foreign is not None or self.request.is_branch:
                    return
                if self._known and headers.reads - reads > READS_FOR_FOREIGN:
                    return
            if self._is_ours(header):
                self._pass_own_batch(header)
            elif not self._is_foreign(header):
                self._has_company |= not header.is_control
            elif self._foreign is None:
                self._foreign = max(header.base_offset, self.begin)
        if self.ordinal != expected:  # if both are equal, all unread records are foreign
            headers.check_all_read()

    def _is_ours(self, header: BatchHeader) -> bool:
        if header.magic < 2 or header.is_control:
            return False
        return header.producer_id in self.request.our_producers

    def _is_foreign(self, header: BatchHeader) -> bool:
        return not self.request.is_branch and is_foreign(header, self._known)

    def _pass_own_batch(self, header: BatchHeader) -> None:
        """Process a batch of this flow. Raises PartitionError if it repeats earlier records, or if
        records are missing before it.
        """
        request, ordinal = self.request, self.ordinal
        ahead = sequences_ahead(header.base_sequence, sequence_of(ordinal))
        if ahead < 0:
            what = f"the batch at offset {header.base_offset} repeats earlier records"
            span = Span(header.base_offset, header.next_offset)
            raise target_error(request.target, what, code="EXTRA_RECORDS", span=span)
        if ahead and self.is_whole:
            what = f"{ahead} records of this flow are missing before offset {header.base_offset}"
            raise target_error(request.target, what, code="GAP_WRITTEN", source=request.source)
        if not self.request.is_branch:  # the map of a branch has no offsets to compare
            self._jumps += self._runs_after_jump(ordinal + ahead, header)
        self.ordinal = ordinal + ahead + header.last_offset_delta + 1
        self._downstream, self._foreign = header.next_offset, None
        # in a log that is not compacted, no batch after this one can have been deleted
        self.is_whole = not request.may_lose_batches

    def _runs_after_jump(self, first: int, header: BatchHeader) -> Iterator[Run]:
        """Yield a run for the batch if its target offset is not the one by the map or, after an
        earlier such batch, by that batch's run. `first`: ordinal of its first record.
        """
        run = run_at(self.request.runs, first)
        if run is None:
            return
        expected = (self._jumps[-1] if self._jumps else run).downstream_of(first)
        if header.base_offset != expected:
            yield Run(first, run.upstream_of(first), header.base_offset)

    def end(self, ordinal: int) -> OurEnd:
        """Return the result of the walk. `ordinal`: the number of records that the flow has written
        to the partition.
        """
        # The walk has read all headers up to a log end that was queried at the same moment as the
        # producer state (`cold_start.one_moment`). So if `ordinal` is higher than the walk's, no
        # batch is unread: the last one was deleted, and its offset is unknown.
        is_gone = ordinal > self.ordinal
        is_nothing = ordinal == self.first
        return OurEnd(
            ordinal=ordinal,
            downstream=-1 if is_gone or is_nothing else self._downstream,
            foreign=self._foreign,
            has_company=self._has_company,
            jumps=tuple(self._jumps),
        )


def last_before_mark(request: StartRequest) -> tuple[int | None, int]:
    """Return (upstream offset, target offset) of this flow's last record below the map's mark,
    where a start begins to read. Return (None, -1) if there is no mark or no such record.
    """
    mark = request.mark
    run = None if mark is None else run_at(request.runs, mark.ordinal - 1)
    if mark is None or run is None:
        return None, -1
    return run.upstream_of(mark.ordinal - 1), run.downstream_of(mark.ordinal - 1)


def _offset_of(request: StartRequest, ordinal: int) -> int | None:
    """Return the target offset of this flow's record with this ordinal, according to the map, or
    None if unknown.

    The map rows of a branch determine only the source offset of a record. The target offset in such
    a row is only planned.
    """
    run = run_at(request.runs, ordinal)
    if run is None or request.is_branch or not is_record(run):
        return None
    return run.downstream_of(ordinal)


def _remembered(mark: Mark, producer: ProducerTail | None) -> int | None:
    """Return the number of records that the flow has written, by the broker's producer state, or
    None if the broker has no such state.
    """
    if producer is None:
        return None
    return mark.ordinal + sequences_ahead(producer.last_sequence + 1, sequence_of(mark.ordinal))


def _check_forgotten(walk: _Walk, is_copy: Callable[[int, int], bool | None]) -> None:
    """Raise PartitionError (TARGET_TRUNCATED) if the log shows that records of this flow are lost.
    Used if the broker has forgotten the producer ID. Does nothing if the walk found a batch of this
    flow after the mark.
    """
    request, mark, target_ends = walk.request, walk.mark, walk.target_ends
    if walk.ordinal != mark.ordinal:
        return
    if walk.begin > mark.downstream and not mark.is_final and _may_be_further(request, mark):
        what = (
            f"the target deleted records from offset {mark.downstream} on, and does not remember "
            f"how many of these records were this flow's. It now holds offsets "
            f"[{target_ends.log_start}, {target_ends.log_end})"
        )
        raise target_error(request.target, what, code="TARGET_TRUNCATED")
    last = walk.last
    if last is None or mark.ordinal <= walk.first:
        return
    if not target_ends.log_start <= last < target_ends.log_end:
        return
    headers = Headers(walk._target, request.target, last, last + 1)
    header = next(iter(headers), None)
    if header is None:
        headers.check_all_read()
        return
    if header.magic < 2 or header.base_offset > last:
        return  # the log no longer has the batch as it was written, which proves nothing
    run = run_at(request.runs, mark.ordinal - 1)
    if header.producer_id in request.our_producers or run is None:
        return
    is_equal = is_copy(run.upstream_of(mark.ordinal - 1), last)
    if is_equal is False or (is_equal is None and not request.may_lose_batches):
        lost = f"this flow's records up to ordinal {mark.ordinal - 1} (offset {last})"
        raise truncated_error(request, lost, target_ends)


def _may_be_further(request: StartRequest, mark: Mark) -> bool:
    """Return True if this flow may have written a batch after the mark.

    The map announces every batch of a branch. Of other copies, it announces only batches in which a
    run begins.
    """
    if not request.is_branch:
        return True
    last = request.runs[-1]
    return last.ordinal > mark.ordinal or (last.ordinal == mark.ordinal and is_record(last))


def truncated_error(request: StartRequest, what: str, target_ends: LogEnds) -> PartitionError:
    """Return the error for a target whose log has lost the end of the copy. `what`: the records
    that are gone.
    """
    missing = f"{what} are gone from the target's log, which ends at {target_ends.log_end}"
    return target_error(request.target, missing, code="TARGET_TRUNCATED")


def record_before(
    raw: memoryview, downstream: int, producer_ids: Container[int]
) -> tuple[Record, bool] | None:
    """Return (record, has_own_time) for this flow's record at target offset `downstream` - 1 in
    fetched bytes. `has_own_time`: the broker did not set its timestamp. Return None if the record
    is gone or foreign.
    """
    for header, start in read_headers(raw):
        if (
            header.next_offset == downstream
            and header.magic >= 2
            and header.producer_id in producer_ids
        ):
            records = decode_batch(raw[start : start + header.length])
            if records and records[-1].offset == downstream - 1:
                return records[-1], not header.is_log_append_time
    return None


def with_jumps(runs: Sequence[Run], jumps: Sequence[Run], end: int) -> tuple[Run, ...]:
    """Return the map's runs from the first of `jumps` to ordinal `end`, with the actual target
    offsets of their records. `jumps`: runs whose target offset differs from the map
    (`OurEnd.jumps`).
    """
    if not jumps:
        return ()
    starts = {run.ordinal: run for run in runs if jumps[0].ordinal < run.ordinal < end}
    starts |= {jump.ordinal: jump for jump in jumps}
    out: list[Run] = []
    for ordinal in sorted(starts):
        jump = run_at(jumps, ordinal)
        assert jump is not None  # noqa: S101 (the first start is a jump)
        run = Run(ordinal, starts[ordinal].upstream, jump.downstream_of(ordinal))
        if not out or not run.continues(out[-1]):
            out.append(run)
    return tuple(out)


class Headers:
    """Iterates over the headers of all batches that begin between two offsets of a log, up to the
    high watermark.
    """

    def __init__(
        self,
        view: LogReader,
        tp: TopicPartition,
        begin: int,
        end: int,
        most_reads: int | None = None,
    ) -> None:
        self._view, self._tp, self._end = view, tp, end
        self._offset = begin
        self._most_reads, self._size = most_reads, READ_BYTES
        self._is_search = True
        self.reads = 0
        """Number of fetches that were made."""
        self.high_watermark = end
        """High watermark in the last response."""

    def __iter__(self) -> Iterator[BatchHeader]:
        while self._offset < self._end:
            if self.reads == self._most_reads:
                if not self._is_search:
                    return
                raise LongSearch(f"{self._tp}: [{self._offset}, {self._end}) is still to be read")
            fetched = self._view.read({self._tp: self._offset}, size=self._size)
            answer = answer_of(fetched, self._tp, self._view)
            if self._is_search and self._most_reads is None:
                self._size = min(2 * self._size, MOST_BYTES)
            before, self.high_watermark = self._offset, answer.high_watermark
            self.reads += 1
            for header, _ in read_headers(answer.records):
                if header.base_offset >= self._end:
                    return  # appended after the end was queried, maybe by a lane considered dead
                if header.next_offset > self._offset:
                    yield header
                    self._offset = header.next_offset
            if self._offset == before:
                return  # the cleaner removed the rest of the log, or the high watermark is reached

    def search_is_over(self) -> None:
        """End the search for this flow's last record. From then on, reads may stop before the log's
        end without an error.
        """
        self._is_search, self._size = False, READ_BYTES

    def check_all_read(self) -> None:
        """Raise TARGET_UNDER_MIN_ISR if the last Fetch ended at a high watermark below the end.

        The records above it may be this flow's.
        """
        if max(self._offset, self.high_watermark) < self._end:
            raise under_min_isr_error(self._tp, self._end - self.high_watermark)


def under_min_isr_error(target: TopicPartition, count: int) -> PartitionError:
    """Return the error for `count` records above the high watermark. They may disappear with their
    leader, so the copy must wait.
    """
    return PartitionError(
        f"{target}: {count} records are not on enough replicas; waiting until the in-sync replicas "
        "have them",
        code="TARGET_UNDER_MIN_ISR",
        fate=Fate.RETRIABLE,
    )


def is_foreign(header: BatchHeader, known_producers: frozenset[int]) -> bool:
    """Return True if the batch was written by none of the known flows."""
    if header.magic < 2:
        return True
    return not header.is_control and header.producer_id not in known_producers
