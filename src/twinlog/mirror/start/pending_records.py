"""Finds out whether part of a source log holds records that a reader sees. Markers and aborted
records do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from twinlog.mirror.skips import Skip, skip_at
from twinlog.model import Isolation
from twinlog.wire.record_batch import BatchHeader, read_headers
from twinlog.wire.records import control_type

MAX_READS: Final = 20
"""Maximum fetches of about 1 MB. If the range is longer, it is assumed to hold a record."""


def holds_records(
    read: Callable[[int], memoryview],
    *,
    low: int,
    high: int,
    isolation: Isolation,
    skips: Sequence[Skip] = (),
) -> bool:
    """Return True if a reader of [low, high) would see a record that is not skipped (`skips`).

    `read` fetches whole batches.
    """
    open_producers: set[int] = set()
    for _ in range(MAX_READS):
        if low >= high:
            return False
        before = low
        raw = read(low)
        for header, at in read_headers(raw):
            if header.next_offset <= low:
                continue
            if header.base_offset >= high:
                return False
            skip = skip_at(skips, max(low, header.base_offset))
            if skip is not None and (skip.is_batch or header.next_offset <= skip.next):
                low = max(skip.next, low) if skip.is_batch else header.next_offset
                continue
            low = header.next_offset
            if _decides(header, raw[at : at + header.length], open_producers, isolation):
                return True
        if low == before:
            return False  # compaction has removed all further batches
    return True


def _decides(
    header: BatchHeader, batch: memoryview, open_producers: set[int], isolation: Isolation
) -> bool:
    """Return True if this batch proves that there is a record."""
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
    """Return the offsets in fetched bytes whose transactions were aborted, by the markers in the
    same bytes.

    Responses may overlap, and may be in any order.
    """
    batches = {
        header.base_offset: (header, raw[at : at + header.length])
        for raw in answers
        for header, at in read_headers(raw)
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
