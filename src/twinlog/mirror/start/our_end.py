"""Where our records end in a topic that others may write to: one walk, for topics that keep their
names (identity) and for those whose records are placed by key.

In a topic that is ours alone the log's end says it, for K never changes (`position`). Here K moves,
so the walk begins at the map's mark, which says how far the copy surely got, and reads the headers
of the batches behind it. A batch of one of our producer ids moves our end; its sequences must
follow those before. What the broker remembers of our id is the cross-check, and ends the walk:
where all that is remembered was seen, nothing of ours lies further. So does a mark that is *final*:
it was written with nothing on its way (`Mark.is_final`). That the log still has what was written
before it, no mark says.

A target that lost its end (unclean election) and was written to by others since is longer than the
mark again, and nothing behind the mark is ours. While the broker knows our id it says how far we
are; where it has forgotten us, the offset of our last record decides: a log gives an offset once,
so a batch of somebody else that covers it proves the loss (`TARGET_TRUNCATED`). That counts only
where the offset is known: by the map, up to the mark; and not where the record that lies there is
the one that the source has. Such a one was there before us: a flow back begins behind the records
that both sides have. In a compacted topic only two records that differ count: one that is cleaned
away may have been the same.

What others wrote since the mark may be any amount. A look of many partitions reads little of it:
where that is not enough (`LongSearch`), the partition gets a look of its own.

A Fetch ends at the high watermark. What is ours above it was sent, and is neither missing nor there
to stay: a walk that could not read so far has no answer yet (`TARGET_UNDER_MIN_ISR`).

The walk reads, and changes nothing, whoever else reads or dies. ADR 32 has the table of what is
found in which kind of topic, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.mirror.copy.fan_out import is_record
from twinlog.mirror.findings import Span, in_target
from twinlog.mirror.map.offset_map import Mark, Run, run_at
from twinlog.mirror.ports import READ_BYTES, LogEnds, LogView, ProducerTail, answer_of
from twinlog.mirror.start.request import StartRequest
from twinlog.model import TopicPartition, sequence_of, sequences_ahead
from twinlog.wire.record_batch import BatchHeader, read_headers
from twinlog.wire.records import Record, decode_batch

MOST_BYTES: Final = 16 << 20
"""Of one Fetch of a long search: brokers may be far, and each takes a round trip."""

READS_FOR_STRANGERS: Final = 4
"""Fetches behind our last batch that look for a stranger's, where other flows of ours write, too:
what they wrote may be any amount. The rest is the watch's (`lane.watches.foreign_records`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OurEnd:
    """The end of our part of a topic."""

    ordinal: int
    """Next ordinal."""
    downstream: int
    """Target offset behind our last record; -1: nothing of ours was written, or where it was
    cannot be said."""
    foreign: int | None = None
    """Target offset of the first stranger's record behind our last one."""
    has_company: bool = False
    """Another flow of ours writes there."""
    jumps: tuple[Run, ...] = ()
    """Where batches of ours lie elsewhere than the map says: others wrote between our records, and
    the lane that learned of it may have died before it wrote the row.
    """


def find_end(
    request: StartRequest,
    there: LogEnds,
    producer: ProducerTail | None,
    target: LogView,
    known_producers: frozenset[int],
    is_copy: Callable[[int, int], bool | None],
) -> OurEnd:
    """How far our records go, from the map's mark on.

    `known_producers`: of all flows of ours. `is_copy`: whether an upstream offset and a target
    offset hold the same record; None: not both hold one.
    """
    walk = _Walk(request, there, target, known_producers)
    remembered = _remembered(walk.mark, producer)
    expected = walk.mark.ordinal if remembered is None and walk.mark.is_final else remembered
    walk.run(expected)
    if remembered is None:
        _check_forgotten(walk, is_copy)
    if expected is None:
        return walk.end(walk.ordinal)
    if expected < walk.mark.ordinal:  # and no batch behind the mark repeats records
        lost = f"{walk.mark.ordinal - expected} records that were acknowledged"
        raise truncated(request, lost, there)
    if expected < walk.ordinal:
        what = f"the broker remembers our records up to ordinal {expected}, the log holds"
        raise in_target(request.target, f"{what} {walk.ordinal}", code="EXTRA_RECORDS")
    return walk.end(expected)


class LongSearch(TwinlogError):
    """Our end lies further on than may be read here (`StartRequest.most_reads`)."""


class _Walk:
    """The headers from the mark on, and what they say so far."""

    def __init__(
        self, request: StartRequest, there: LogEnds, target: LogView, known: frozenset[int]
    ) -> None:
        first = request.runs[0]
        self.request, self.there, self._target, self._known = request, there, target, known
        self.first = first.ordinal
        self.mark = request.mark or Mark(first.ordinal, max(0, first.downstream))
        self.last = _offset_of(request, self.mark.ordinal - 1)
        """Target offset of our last record at the mark; None: not known."""
        self._check_log_reaches()
        begin = self.mark.downstream
        if begin > there.log_end and self.last is not None:
            begin = self.last + 1  # others' records are gone; ours are there
        self.begin = max(begin, there.log_start)
        self.is_whole = self.begin <= self.mark.downstream and not request.may_lose_batches
        """No batch of ours behind the mark can have been deleted."""
        self.ordinal = self.mark.ordinal
        self._downstream = self.mark.downstream if self.last is None else self.last + 1
        self._foreign: int | None = None
        self._has_company = False
        self._jumps: list[Run] = []

    def _check_log_reaches(self) -> None:
        """The target's log must not end before our last record at the mark.

        A mark may lie further than it: what lies between, others wrote.
        """
        reached = self.mark.downstream if self.last is None else self.last + 1
        if reached > self.there.log_end:
            lost = f"{reached - self.there.log_end} offsets of the copy"
            raise truncated(self.request, lost, self.there)

    def run(self, expected: int | None) -> None:
        """Read on until nothing of ours can follow; `expected`: the ordinal at which that is so."""
        tp, end, reads = self.request.target, self.there.log_end, -1
        headers = Headers(self._target, tp, self.begin, end, self.request.most_reads)
        for header in headers:
            if self.ordinal == expected:
                if reads < 0:
                    reads = headers.reads
                    headers.search_is_over()
                if self._foreign is not None or self.request.is_branch:
                    return
                if self._known and headers.reads - reads > READS_FOR_STRANGERS:
                    return
            if self._is_ours(header):
                self._take(header)
            elif not self._is_foreign(header):
                self._has_company |= not header.is_control
            elif self._foreign is None:
                self._foreign = max(header.base_offset, self.begin)
        if self.ordinal != expected:  # else what others write may come and go
            headers.check_all_read()

    def _is_ours(self, header: BatchHeader) -> bool:
        if header.magic < 2 or header.is_control:
            return False
        return header.producer_id in self.request.our_producers

    def _is_foreign(self, header: BatchHeader) -> bool:
        return not self.request.is_branch and is_foreign(header, self._known)

    def _take(self, header: BatchHeader) -> None:
        """A batch of ours: it must follow those before."""
        request, ordinal = self.request, self.ordinal
        ahead = sequences_ahead(header.base_sequence, sequence_of(ordinal))
        if ahead < 0:
            what = f"the batch at offset {header.base_offset} repeats records that are there before"
            span = Span(header.base_offset, header.next_offset)
            raise in_target(request.target, what, code="EXTRA_RECORDS", span=span)
        if ahead and self.is_whole:
            what = f"{ahead} records of ours are missing before offset {header.base_offset}"
            raise in_target(request.target, what, code="GAP_WRITTEN", source=request.source)
        if not self.request.is_branch:  # whose map knows single records
            self._jumps += self._jump(ordinal + ahead, header)
        self.ordinal = ordinal + ahead + header.last_offset_delta + 1
        self._downstream, self._foreign = header.next_offset, None
        # what was deleted lies before the first batch that is left
        self.is_whole = not request.may_lose_batches

    def _jump(self, first: int, header: BatchHeader) -> Iterator[Run]:
        """The batch as a run, when it does not lie where the map and the jumps so far say."""
        run = run_at(self.request.runs, first)
        if run is None:
            return
        expected = (self._jumps[-1] if self._jumps else run).downstream_of(first)
        if header.base_offset != expected:
            yield Run(first, run.upstream_of(first), header.base_offset)

    def end(self, ordinal: int) -> OurEnd:
        """What was found, with the ordinal that is the right one."""
        # all was read up to where the log ended when the broker was asked what it remembers
        is_gone = ordinal > self.ordinal  # its last batch: where it lay cannot be said
        is_nothing = ordinal == self.first
        return OurEnd(
            ordinal=ordinal,
            downstream=-1 if is_gone or is_nothing else self._downstream,
            foreign=self._foreign,
            has_company=self._has_company,
            jumps=tuple(self._jumps),
        )


def last_known(request: StartRequest) -> tuple[int | None, int]:
    """Upstream and target offset of our last record at the mark, where a start begins to read;
    the former is None where there is none.
    """
    mark = request.mark
    run = None if mark is None else run_at(request.runs, mark.ordinal - 1)
    if mark is None or run is None:
        return None, -1
    return run.upstream_of(mark.ordinal - 1), run.downstream_of(mark.ordinal - 1)


def _offset_of(request: StartRequest, ordinal: int) -> int | None:
    """The target offset of a record of ours by the map; None where the map does not know it.

    Rows of a branch say where a record is at the source; K is a guess there.
    """
    run = run_at(request.runs, ordinal)
    if run is None or request.is_branch or not is_record(run):
        return None
    return run.downstream_of(ordinal)


def _remembered(mark: Mark, producer: ProducerTail | None) -> int | None:
    """The next ordinal by what the broker remembers of our id; None: it does not."""
    if producer is None:
        return None
    return mark.ordinal + sequences_ahead(producer.last_sequence + 1, sequence_of(mark.ordinal))


def _check_forgotten(walk: _Walk, is_copy: Callable[[int, int], bool | None]) -> None:
    """The broker does not remember us, and nothing of ours was found behind the mark: was there
    something?
    """
    request, mark, there = walk.request, walk.mark, walk.there
    if walk.ordinal != mark.ordinal:
        return
    if walk.begin > mark.downstream and not mark.is_final and _may_be_further(request, mark):
        what = (
            f"the target deleted what was written behind offset {mark.downstream}, and does not "
            f"remember how much of it was ours; it holds [{there.log_start}, {there.log_end})"
        )
        raise in_target(request.target, what, code="TARGET_TRUNCATED")
    last = walk.last
    if last is None or mark.ordinal <= walk.first:
        return
    if not there.log_start <= last < there.log_end:
        return
    headers = Headers(walk._target, request.target, last, last + 1)
    header = next(iter(headers), None)
    if header is None:
        headers.check_all_read()
        return
    if header.magic < 2 or header.base_offset > last:
        return  # of a log whose batches are not those that were written nothing is known
    run = run_at(request.runs, mark.ordinal - 1)
    if header.producer_id in request.our_producers or run is None:
        return
    found = is_copy(run.upstream_of(mark.ordinal - 1), last)
    if found is False or (found is None and not request.may_lose_batches):
        lost = f"our records up to ordinal {mark.ordinal - 1}, at offset {last},"
        raise truncated(request, lost, there)


def _may_be_further(request: StartRequest, mark: Mark) -> bool:
    """Whether a batch behind the mark may have been written. Each batch of a branch is announced;
    elsewhere only those that begin a run are.
    """
    if not request.is_branch:
        return True
    last = request.runs[-1]
    return last.ordinal > mark.ordinal or (last.ordinal == mark.ordinal and is_record(last))


def truncated(request: StartRequest, what: str, there: LogEnds) -> PartitionError:
    """The target lost the end of what we wrote: by its mark the copy had come further."""
    gone = f"{what} are gone from the target's log, which ends at {there.log_end}"
    return in_target(request.target, gone, code="TARGET_TRUNCATED")


def record_before(
    raw: memoryview, downstream: int, ours: Container[int]
) -> tuple[Record, bool] | None:
    """Our record at `downstream` - 1 in fetched bytes, and whether its timestamp is still its own.

    None when it is gone, or not ours.
    """
    for header, at in read_headers(raw):
        if header.next_offset == downstream and header.magic >= 2 and header.producer_id in ours:
            records = decode_batch(raw[at : at + header.length])
            if records and records[-1].offset == downstream - 1:
                return records[-1], not header.is_log_append_time
    return None


def with_jumps(runs: Sequence[Run], jumps: Sequence[Run], end: int) -> tuple[Run, ...]:
    """The map's runs from the first jump to ordinal `end`, moved to where the records lie."""
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
    """The headers of all batches of a log between two offsets, as far as a consumer may read."""

    def __init__(
        self,
        view: LogView,
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
        """Fetches so far."""
        self.high_watermark = end
        """As the last of them said."""

    def __iter__(self) -> Iterator[BatchHeader]:
        while self._offset < self._end:
            if self.reads == self._most_reads:
                if not self._is_search:
                    return
                raise LongSearch(f"{self._tp}: [{self._offset}, {self._end}) is still to be read")
            found = self._view.read({self._tp: self._offset}, size=self._size)
            answer = answer_of(found, self._tp, self._view)
            if self._is_search and self._most_reads is None:
                self._size = min(2 * self._size, MOST_BYTES)
            before, self.high_watermark = self._offset, answer.high_watermark
            self.reads += 1
            for header, _ in read_headers(answer.records):
                if header.next_offset > self._offset:
                    yield header
                    self._offset = header.next_offset
            if self._offset == before:
                return  # cleaned up to the end, or up to the high watermark

    def search_is_over(self) -> None:
        """What is sought was found: what is read from now on is a sample."""
        self._is_search, self._size = False, READ_BYTES

    def check_all_read(self) -> None:
        """Raises TARGET_UNDER_MIN_ISR where the last Fetch ended at a high watermark that is lower
        than the end: what lies above it may be ours.
        """
        if max(self._offset, self.high_watermark) < self._end:
            raise under_min_isr(self._tp, self._end - self.high_watermark)


def under_min_isr(target: TopicPartition, count: int) -> PartitionError:
    """Records that may go away with their leader: nobody begins behind them."""
    return PartitionError(
        f"{target}: {count} records are not on enough replicas; waiting until the in-sync replicas "
        "have them",
        code="TARGET_UNDER_MIN_ISR",
        fate=Fate.RETRIABLE,
    )


def is_foreign(header: BatchHeader, known: frozenset[int]) -> bool:
    """Whether no flow of ours wrote the batch."""
    if header.magic < 2:
        return True
    return not header.is_control and header.producer_id not in known
