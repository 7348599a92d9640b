"""Where a target log left the K invariant: the first batch that does not lie where its sequence
says.

Before that place every batch of ours lies at `K + ordinal`; from it on all of them are off by what
is missing or too much, and a foreign batch is too much by itself. So a binary search over the
headers finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twinlog.model import sequence_of, sequences_ahead
from twinlog.wire.record_batch import BatchHeader, read_headers


class Break(NamedTuple):
    """The first batch at the wrong place."""

    offset: int
    """Its target offset."""
    distance: int
    """How many records are missing before it; negative: how many are too many; 0: it is not
    ours.
    """


def find_break(
    read: Callable[[int], memoryview], *, low: int, high: int, k: int, producers: frozenset[int]
) -> Break | None:
    """Search [low, high); `read` fetches whole batches from an offset on. None when all lies
    right.
    """
    found: Break | None = None
    while low < high:
        middle = (low + high) // 2
        header = _first_batch(read(middle), middle)
        if header is None or header.base_offset >= high:
            high = middle  # cleaned: nothing lies there
            continue
        wrong = _judge(header, k, producers)
        if wrong is None:
            low = header.next_offset
        else:
            found, high = wrong, min(middle, header.base_offset)
    return found


def _first_batch(raw: memoryview, offset: int) -> BatchHeader | None:
    return next((header for header, _ in read_headers(raw) if header.next_offset > offset), None)


def _judge(header: BatchHeader, k: int, producers: frozenset[int]) -> Break | None:
    if header.magic < 2 or header.is_control or header.producer_id not in producers:
        return Break(header.base_offset, 0)
    off = sequences_ahead(header.base_sequence, sequence_of(header.base_offset - k))
    return Break(header.base_offset, off) if off else None
