"""Where we are in a topic that others may write to: K moves there, so our own last batch is looked
for.

The map's mark says how far the copy surely got; behind it the headers of all batches are read. A
batch of our producer id moves our end; any other data batch is foreign, unless another flow of ours
wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinlog.errors import PartitionError
from twinlog.mirror.offset_map import Mark
from twinlog.mirror.ports import LogEnds, LogView, ProducerTail
from twinlog.model import SEQUENCE_MODULUS, sequence_of
from twinlog.wire.record_batch import BatchHeader, read_headers

if TYPE_CHECKING:
    from twinlog.mirror.position import StartRequest, StartRules

MAX_READS: Final = 2_000
"""About 2 GB of batches behind the last mark; marks are written every few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OurEnd:
    """The end of our part of a shared topic."""

    ordinal: int
    """Next ordinal."""
    foreign: int | None
    """Target offset of the first foreign record behind our last one."""


def find_our_end(
    request: StartRequest,
    there: LogEnds,
    producer: ProducerTail | None,
    target: LogView,
    rules: StartRules,
) -> OurEnd:
    """Scan from the mark to the log end; the broker's producer state is the cross-check."""
    first = request.runs[0]
    mark = request.mark or Mark(first.ordinal, first.downstream)
    ordinal, foreign = mark.ordinal, None
    begin = max(mark.downstream, there.log_start)
    for header in _headers(request, target, begin, there.log_end):
        if header.magic >= 2 and header.producer_id == rules.producer_id:
            ordinal, foreign = _next_ordinal(ordinal, header), None
        elif foreign is None and _is_foreign(header, rules):
            foreign = max(header.base_offset, begin)
    if producer is not None:
        listed = _ordinal_after(mark.ordinal, producer.last_sequence)
        if listed < ordinal:
            raise PartitionError(
                f"{request.target}: the broker remembers our records up to ordinal {listed}, the "
                f"log holds {ordinal}",
                code="EXTRA_RECORDS",
            )
        ordinal = listed
    return OurEnd(ordinal=ordinal, foreign=foreign)


def _headers(request: StartRequest, target: LogView, begin: int, end: int) -> Iterator[BatchHeader]:
    """Every batch of the target's log between two offsets."""
    offset = begin
    for _ in range(MAX_READS):
        if offset >= end:
            return
        raw = target.read({request.target: offset}).get(request.target)
        if raw is None:
            raise target.problems[request.target]
        before = offset
        for header, _ in read_headers(raw.records):
            if header.next_offset > offset:
                yield header
                offset = header.next_offset
        if offset == before:
            return  # cleaned up to the end


def _is_foreign(header: BatchHeader, rules: StartRules) -> bool:
    if header.magic < 2:
        return True
    return not header.is_control and header.producer_id not in rules.known_producers


def _next_ordinal(ordinal: int, header: BatchHeader) -> int:
    return _ordinal_after(
        ordinal, (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS
    )


def _ordinal_after(ordinal: int, last_sequence: int) -> int:
    """The next ordinal at or above `ordinal`, when the last sequence is this."""
    return ordinal + (last_sequence + 1 - sequence_of(ordinal)) % SEQUENCE_MODULUS
