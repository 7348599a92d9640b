"""Where we are in a topic that others may write to: K moves there, so our own last batch is looked
for.

The map's mark says how far the copy surely got; behind it the headers of all batches are read. A
batch of our producer id moves our end; any other data batch is foreign, unless another flow of ours
wrote it.

A target that lost its end (unclean election) and was written to by others since is longer than the
mark again, and nothing behind the mark is ours. While the broker knows our id it says how far we
are; where it has forgotten us, the place of our last record decides: a log gives an offset once, so
a batch of somebody else that covers it proves the loss (`TARGET_TRUNCATED`). That counts only where
the place is known and its batch cannot be gone: by the map, up to the mark, in a topic that is not
compacted; and not where the record that lies there is the one that the source has. Such a one was
there before us: a flow back begins behind the records that both sides have. It is a look and
changes nothing, whoever else looks or dies.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from twinlog.errors import PartitionError
from twinlog.mirror.findings import Span, extra_records, gap_written, target_truncated
from twinlog.mirror.map.offset_map import Mark, Run, run_at
from twinlog.mirror.ports import LogEnds, LogView, ProducerTail, answer_of
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.model import SEQUENCE_MODULUS, TopicPartition, sequence_of, sequences_ahead
from twinlog.wire.record_batch import BatchHeader, read_headers
from twinlog.wire.records import Record, decode_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class OurEnd:
    """The end of our part of a shared topic."""

    ordinal: int
    """Next ordinal."""
    downstream: int
    """Target offset behind our last record, as far as it is known."""
    foreign: int | None
    """Target offset of the first foreign record behind our last one."""
    jumps: tuple[Run, ...]
    """Where batches of ours lie elsewhere than the map says: others wrote between our records, and
    the lane that learned of it may have died before it wrote the row.
    """


def find_our_end(
    request: StartRequest,
    there: LogEnds,
    producer: ProducerTail | None,
    target: LogView,
    rules: StartRules,
    is_copy: Callable[[int, int], bool],
) -> OurEnd:
    """Scan from the mark to the log end; the broker's producer state is the cross-check.

    `is_copy`: whether an upstream offset and a target offset hold the same record.
    """
    first = request.runs[0]
    mark = request.mark or Mark(first.ordinal, first.downstream)
    ordinal, foreign, downstream = mark.ordinal, None, mark.downstream
    check_mark(request, mark, there)
    begin = max(mark.downstream, there.log_start)
    jumps: list[Run] = []
    for header in headers_between(target, request.target, begin, there.log_end):
        if header.magic >= 2 and header.producer_id in request.our_producers:
            jumps += _jump(ordinal, header, request.runs, jumps)
            is_whole = begin == mark.downstream or ordinal > mark.ordinal
            is_whole &= not request.may_lose_batches
            ordinal = ordinal_behind(request, ordinal, header, is_whole=is_whole)
            foreign = None
            downstream = header.next_offset
        elif foreign is None and _is_foreign(header, rules.known_producers):
            foreign = max(header.base_offset, begin)
    if producer is None and ordinal == mark.ordinal > first.ordinal:
        _check_place(request, ordinal - 1, there, target, is_copy)
    if producer is not None:
        ahead = sequences_ahead(producer.last_sequence + 1, sequence_of(mark.ordinal))
        if ahead < 0:
            raise _truncated(request, f"{-ahead} records that were acknowledged", there)
        listed = mark.ordinal + ahead
        if listed < ordinal:
            raise PartitionError(
                extra_records(
                    f"{request.target}: the broker remembers our records up to ordinal {listed}, "
                    f"the log holds {ordinal}",
                    request.target,
                ),
                code="EXTRA_RECORDS",
            )
        if listed > ordinal:
            downstream = -1  # its last batch is gone: where it lay cannot be said
        ordinal = listed
    if ordinal == first.ordinal:
        downstream = -1  # nothing of ours was ever written
    return OurEnd(ordinal=ordinal, downstream=downstream, foreign=foreign, jumps=tuple(jumps))


def check_mark(request: StartRequest, mark: Mark, there: LogEnds) -> None:
    """Raises TARGET_TRUNCATED where the target's log ends before a place that the copy reached."""
    if mark.downstream > there.log_end:
        raise _truncated(request, f"{mark.downstream - there.log_end} offsets of the copy", there)


def _check_place(
    request: StartRequest,
    ordinal: int,
    there: LogEnds,
    target: LogView,
    is_copy: Callable[[int, int], bool],
) -> None:
    """Raises TARGET_TRUNCATED where somebody else's batch covers the place of a record of ours."""
    run = run_at(request.runs, ordinal)
    if run is None or request.may_lose_batches:
        return
    place = run.downstream_of(ordinal)
    if not there.log_start <= place < there.log_end:
        return
    header = next(headers_between(target, request.target, place, place + 1), None)
    if header is None or header.magic < 2 or header.base_offset > place:
        return  # of a log whose batches are not those that were written nothing is known
    is_ours = header.producer_id in request.our_producers
    if not is_ours and not is_copy(run.upstream_of(ordinal), place):
        raise _truncated(request, f"our records up to ordinal {ordinal}, at offset {place},", there)


def _truncated(request: StartRequest, what: str, there: LogEnds) -> PartitionError:
    """The target lost the end of what we wrote: by its mark the copy had come further."""
    return PartitionError(
        target_truncated(
            f"{request.target}: {what} are gone from the target's log, which ends at "
            f"{there.log_end}",
            request.target,
        ),
        code="TARGET_TRUNCATED",
    )


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


def first_foreign(
    target: LogView, tp: TopicPartition, begin: int, end: int, known: frozenset[int]
) -> int | None:
    """Offset of the first record in [begin, end) that no flow of ours wrote."""
    for header in headers_between(target, tp, begin, end):
        if _is_foreign(header, known):
            return max(header.base_offset, begin)
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


def _jump(
    ordinal: int, header: BatchHeader, runs: Sequence[Run], jumps: Sequence[Run]
) -> Iterator[Run]:
    """The batch as a run, when it does not lie where the map and the jumps so far say."""
    first = ordinal + (header.base_sequence - sequence_of(ordinal)) % SEQUENCE_MODULUS
    run = run_at(runs, first)
    if run is None:
        return
    expected = (jumps[-1] if jumps else run).downstream_of(first)
    if header.base_offset != expected:
        yield Run(first, run.upstream_of(first), header.base_offset)


def headers_between(
    target: LogView, tp: TopicPartition, begin: int, end: int
) -> Iterator[BatchHeader]:
    """Every batch of the target's log between two offsets."""
    offset = begin
    while offset < end:  # without a bound: what lies behind it might be ours
        raw = answer_of(target.read({tp: offset}), tp, target)
        before = offset
        for header, _ in read_headers(raw.records):
            if header.next_offset > offset:
                yield header
                offset = header.next_offset
        if offset == before:
            return  # cleaned up to the end


def _is_foreign(header: BatchHeader, known: frozenset[int]) -> bool:
    if header.magic < 2:
        return True
    return not header.is_control and header.producer_id not in known


def ordinal_behind(
    request: StartRequest, ordinal: int, header: BatchHeader, *, is_whole: bool
) -> int:
    """The ordinal behind a batch of ours; `is_whole`: none before it can have been deleted."""
    ahead = sequences_ahead(header.base_sequence, sequence_of(ordinal))
    if ahead < 0:
        raise PartitionError(
            extra_records(
                f"{request.target}: the batch at offset {header.base_offset} repeats records that "
                "are there before",
                request.target,
                Span(header.base_offset, header.next_offset),
            ),
            code="EXTRA_RECORDS",
        )
    if ahead and is_whole:
        raise PartitionError(
            gap_written(
                f"{request.target}: {ahead} records of ours are missing before offset "
                f"{header.base_offset}",
                request.source,
                request.target,
            ),
            code="GAP_WRITTEN",
        )
    return ordinal + ahead + header.last_offset_delta + 1
