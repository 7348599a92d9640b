"""Finds where a target log violates the K invariant: the first batch whose offset does not match
its sequence.

Before that point, every batch of this flow is at `K + ordinal`. After it, all are off by the number
of missing or surplus records. A foreign batch is surplus as well. So a binary search over batch
headers finds the point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twinlog.model import sequence_of, sequences_ahead
from twinlog.wire.record_batch import BatchHeader, read_headers


class Break(NamedTuple):
    """The first batch at a wrong offset."""

    offset: int
    """Its target offset."""
    distance: int
    """Number of records missing before it; negative: surplus records; 0: the batch is foreign."""


def find_break(
    read: Callable[[int], memoryview], *, low: int, high: int, k: int, producers: frozenset[int]
) -> Break | None:
    """Search [low, high) and return the first wrong batch, or None if all batches are right.

    `read` fetches whole batches from an offset on.
    """
    first: Break | None = None
    while low < high:
        middle = (low + high) // 2
        header = _first_batch(read(middle), middle)
        if header is None or header.base_offset >= high:
            high = middle  # compaction has removed all batches from here to `high`
            continue
        wrong = _break_of(header, k, producers)
        if wrong is None:
            low = header.next_offset
        else:
            first, high = wrong, min(middle, header.base_offset)
    return first


def _first_batch(raw: memoryview, offset: int) -> BatchHeader | None:
    return next((header for header, _ in read_headers(raw) if header.next_offset > offset), None)


def _break_of(header: BatchHeader, k: int, producers: frozenset[int]) -> Break | None:
    if header.magic < 2 or header.is_control or header.producer_id not in producers:
        return Break(header.base_offset, 0)
    off = sequences_ahead(header.base_sequence, sequence_of(header.base_offset - k))
    return Break(header.base_offset, off) if off else None
