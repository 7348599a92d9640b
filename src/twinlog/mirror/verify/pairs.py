"""The pairing of target and source records, by the offset map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from twinlog.mirror.map.offset_map import Mark
from twinlog.mirror.map.runs import DOWNSTREAM, UPSTREAM, Run, following
from twinlog.model import SEQUENCE_MODULUS
from twinlog.wire.record_batch import BatchHeader

ENDLESS: Final = 1 << 62


class MappedOffset(NamedTuple):
    """The offset on the other side that corresponds to an offset."""

    offset: int
    is_known: bool
    """Whether the map has a record at that offset. If not, `offset` is where it would be if the map
    had no gap.
    """
    room: int
    """Number of records from this one on that are contiguous on both sides."""


class Pairs:
    """Translates offsets in both directions. Needs at least one run."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self._at = [0, 0, 0]
        """The run of the last lookup, by field, because lookups rise."""

    @property
    def first(self) -> Run:
        return self.runs[0]

    def counterpart(self, upstream: int) -> MappedOffset | None:
        """Return the target offset for a source offset, or None before the map begins."""
        return self._mapped(upstream, UPSTREAM, DOWNSTREAM)

    def origin(self, downstream: int) -> MappedOffset | None:
        """Return the source offset for a target offset, or None before the map begins."""
        return self._mapped(downstream, DOWNSTREAM, UPSTREAM)

    def first_counterpart(self, upstream: int) -> int:
        """Return the target offset of the first record at or after a source offset."""
        return self._first(upstream, UPSTREAM, DOWNSTREAM)

    def first_origin(self, downstream: int) -> int:
        """Return the source offset of the first copied record at or after a target offset."""
        return self._first(downstream, DOWNSTREAM, UPSTREAM)

    def _first(self, at: int, from_field: int, to_field: int) -> int:
        mapped = self._mapped(at, from_field, to_field)
        if mapped is None:
            return self.first[to_field]
        if mapped.is_known:
            return mapped.offset
        return self.runs[self._at[from_field] + 1][to_field]

    def _mapped(self, at: int, from_field: int, to_field: int) -> MappedOffset | None:
        number = self._at[from_field]
        run = self.runs[number]
        length = self._length(number)
        distance = at - run[from_field]
        if not 0 <= distance < length:
            number = following(self.runs, at, from_field) - 1
            if number < 0:
                return None
            self._at[from_field] = number
            run, length = self.runs[number], self._length(number)
            distance = at - run[from_field]
        is_known = distance < length
        return MappedOffset(
            run[to_field] + distance, is_known, length - distance if is_known else 0
        )

    def _length(self, number: int) -> int:
        if number + 1 == len(self.runs):
            return ENDLESS
        return self.runs[number + 1].ordinal - self.runs[number].ordinal


def with_own_batches(
    runs: Sequence[Run], mark: Mark, headers: Iterable[BatchHeader], producers: frozenset[int]
) -> tuple[list[Run], Mark]:
    """Return the runs of a shared topic with actual offsets after the mark, and how far they reach.

    Rows announce a record at its planned offset. If other clients wrote first, the map is corrected
    a moment later, or never if the lane died. But the sequences of this flow's batches are ordinals
    (mod 2^31), so their headers identify the records. `headers`: of all batches from the mark on.
    """
    out = [run for run in runs if run.ordinal < mark.ordinal] or [runs[0]]
    reached = mark
    for header in headers:
        is_ours = header.magic >= 2 and header.producer_id in producers and not header.is_control
        if not is_ours or header.base_offset < reached.downstream:
            continue
        ahead = (header.base_sequence - reached.ordinal) % SEQUENCE_MODULUS
        if ahead > SEQUENCE_MODULUS // 2:
            continue  # the batch belongs to an earlier copy of this flow
        ordinal = reached.ordinal + ahead
        end = ordinal + header.last_offset_delta + 1
        out += _pieces(runs, ordinal, end, header.base_offset)
        reached = Mark(end, header.next_offset)
    return out, reached


def _pieces(runs: Sequence[Run], ordinal: int, end: int, downstream: int) -> Iterable[Run]:
    at = max(1, following(runs, ordinal, 0)) - 1
    yield Run(ordinal, runs[at].upstream_of(ordinal), downstream)
    while (at := at + 1) < len(runs) and runs[at].ordinal < end:
        begin = runs[at].ordinal
        yield Run(begin, runs[at].upstream, downstream + begin - ordinal)
