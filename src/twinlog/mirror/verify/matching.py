"""Pairs the records of two logs: by the offset map, or by content after a difference.

Realignment finds the position at which two logs match again, and classifies the records before it.

    source   5 6 7 8 9 ..            target   5 5 6 7 8 9 ..
               ^ 6 is not 5                     ^ one is extra: all later ones are shifted by 1

The nearest position is used at which ALIKE consecutive records are equal on both sides, or all
remaining ones are. Two equal records alone prove little if records repeat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from twinlog.mirror.map.offset_map import Mark
from twinlog.mirror.map.runs import DOWNSTREAM, UPSTREAM, Run, following
from twinlog.model import SEQUENCE_MODULUS
from twinlog.wire.record_batch import BatchHeader

ENDLESS: Final = 1 << 62


class MappedOffset(NamedTuple):
    """The translation of an offset to the other side by the offset map."""

    offset: int
    is_known: bool
    """Whether the map has a record at the offset that was looked up. If not, `offset` is where its
    counterpart would be if the map had no gap there.
    """
    room: int
    """Number of records from the looked-up offset to the end of its run: their offsets are
    consecutive on both sides. 0 if not `is_known`. For the last run, whose end is unknown, it is
    about `ENDLESS`.
    """


class OffsetPairs:
    """Translates offsets between source and target by `runs`, which has at least one run."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self._at = [0, 0, 0]
        """Index of the run that the last lookup found, by field of `Run`. The next lookup begins
        there, because offsets are looked up in rising order.
        """

    @property
    def first(self) -> Run:
        return self.runs[0]

    def counterpart(self, upstream: int) -> MappedOffset | None:
        """Return the target offset for a source offset, or None if it is before all runs."""
        return self._mapped(upstream, UPSTREAM, DOWNSTREAM)

    def origin(self, downstream: int) -> MappedOffset | None:
        """Return the source offset for a target offset, or None if it is before all runs."""
        return self._mapped(downstream, DOWNSTREAM, UPSTREAM)

    def first_counterpart(self, upstream: int) -> int:
        """Return the target offset of the first record at or after a source offset."""
        return self._first(upstream, UPSTREAM, DOWNSTREAM)

    def first_origin(self, downstream: int) -> int:
        """Return the source offset of the first copied record at or after a target offset."""
        return self._first(downstream, DOWNSTREAM, UPSTREAM)

    def _first(self, offset: int, from_field: int, to_field: int) -> int:
        mapped = self._mapped(offset, from_field, to_field)
        if mapped is None:
            return self.first[to_field]
        if mapped.is_known:
            return mapped.offset
        return self.runs[self._at[from_field] + 1][to_field]

    def _mapped(self, offset: int, from_field: int, to_field: int) -> MappedOffset | None:
        number = self._at[from_field]
        run = self.runs[number]
        length = self._length(number)
        distance = offset - run[from_field]
        if not 0 <= distance < length:
            number = following(self.runs, offset, from_field) - 1
            if number < 0:
                return None
            self._at[from_field] = number
            run, length = self.runs[number], self._length(number)
            distance = offset - run[from_field]
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
    """Return (runs, mark) of a topic to which other clients write, too. `runs`: those of the map,
    but after `mark` with the target offsets of the batches in `headers`. The returned mark is at
    the end of this flow's batches.

    Rows announce a record at its planned offset. If other clients wrote first, the map is corrected
    a moment later, or never if the lane died. But the sequences of this flow's batches are ordinals
    (counts of this flow's records, mod 2^31), so headers identify the records. `headers`: those of
    all batches in the target log from `mark` on.
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


ALIKE: Final = 8
WINDOWS: Final = (64, 512, 4096)
"""Numbers of records per side in which a realignment is searched. If the search fails with one
number, the next larger one is used.
"""
END: Final = object()


class SideRecord(NamedTuple):
    """A record of one side, reduced to its offset, its position and a number for its content."""

    offset: int
    at: int
    """The position: for a target record its offset; for a source record the target offset that its
    copy should have.
    """
    number: int
    """A number that is equal for records with equal content."""


def find_realignment(
    source: Sequence[SideRecord], target: Sequence[SideRecord], *, is_whole: bool, may_lack: bool
) -> tuple[int, int] | None:
    """Return (index in `source`, index in `target`) from which on both sides match again, or None
    if there is no such position.

    `is_whole`: no records follow on either side. `may_lack`: either side may lack single records.
    """
    source_indexes, target_indexes = range(len(source)), range(len(target))
    if may_lack:
        target_numbers_known = {seen.number for seen in target}
        source_numbers_known = {seen.number for seen in source}
        source_kept = [
            index for index in source_indexes if source[index].number in target_numbers_known
        ]
        target_kept = [
            index for index in target_indexes if target[index].number in source_numbers_known
        ]
    else:
        source_kept, target_kept = list(source_indexes), list(target_indexes)
    ends = [END] * ALIKE if is_whole else []
    source_numbers: list[object] = [source[index].number for index in source_kept] + ends
    target_numbers: list[object] = [target[index].number for index in target_kept] + ends
    match = _nearest(source_numbers, target_numbers)
    if match is None:
        return None
    return (
        source_kept[match[0]] if match[0] < len(source_kept) else len(source),
        target_kept[match[1]] if match[1] < len(target_kept) else len(target),
    )


def _nearest(
    source_numbers: Sequence[object], target_numbers: Sequence[object]
) -> tuple[int, int] | None:
    starts: dict[tuple[object, ...], list[int]] = {}
    for index in range(len(target_numbers) - ALIKE + 1):
        starts.setdefault(tuple(target_numbers[index : index + ALIKE]), []).append(index)
    best: tuple[int, int] | None = None
    for index in range(len(source_numbers) - ALIKE + 1):
        if best is not None and index >= sum(best):
            break
        # of equally near matches, the one with the most similar indexes is preferred
        for other in starts.get(tuple(source_numbers[index : index + ALIKE]), ()):
            rank = index + other, abs(index - other)
            if best is None or rank < (sum(best), abs(best[0] - best[1])):
                best = index, other
    return best


class ClassifiedRecords(NamedTuple):
    """The records before the position at which both sides match again, by kind of difference."""

    same: list[tuple[SideRecord, SideRecord]]
    """Pairs of equal records at the right positions."""
    different: list[tuple[SideRecord, SideRecord]]
    moved_source: list[SideRecord]
    moved_target: list[SideRecord]
    missing: list[SideRecord]
    extra: list[SideRecord]


def classify(source: Sequence[SideRecord], target: Sequence[SideRecord]) -> ClassifiedRecords:
    """Classify records that do not match. Each record is put into exactly one list."""
    same = list(_at_their_offset(source, target, is_equal=True))
    done_here = {seen.offset for seen, _ in same}
    done_there = {seen.offset for _, seen in same}
    source_left = [seen for seen in source if seen.offset not in done_here]
    target_left = [seen for seen in target if seen.offset not in done_there]
    common = Counter(seen.number for seen in source_left) & Counter(
        seen.number for seen in target_left
    )
    moved_here, moved_there = (
        list(_take_common(source_left, common)),
        list(_take_common(target_left, common)),
    )
    moved = {seen.offset for seen in moved_here}, {seen.offset for seen in moved_there}
    left_here = [seen for seen in source_left if seen.offset not in moved[0]]
    left_there = [seen for seen in target_left if seen.offset not in moved[1]]
    different = list(_at_their_offset(left_here, left_there, is_equal=False))
    pairs = {seen.offset for seen, _ in different}, {seen.offset for _, seen in different}
    return ClassifiedRecords(
        same=same,
        different=different,
        moved_source=moved_here,
        moved_target=moved_there,
        missing=[seen for seen in left_here if seen.offset not in pairs[0]],
        extra=[seen for seen in left_there if seen.offset not in pairs[1]],
    )


def _at_their_offset(
    source: Sequence[SideRecord], target: Sequence[SideRecord], *, is_equal: bool
) -> Iterator[tuple[SideRecord, SideRecord]]:
    """Yield pairs of a source and a target record at the same position, either those with equal
    content or those with different content (`is_equal`). Each target record is used once, although
    a wrong map may give two source records the same position.
    """
    by_offset = {seen.at: seen for seen in target}
    for seen in source:
        other = by_offset.get(seen.at)
        if other is not None and (seen.number == other.number) is is_equal:
            yield seen, by_offset.pop(seen.at)


def _take_common(records: Sequence[SideRecord], common: Mapping[int, int]) -> Iterator[SideRecord]:
    left = dict(common)
    for seen in records:
        if left.get(seen.number, 0):
            left[seen.number] -= 1
            yield seen
