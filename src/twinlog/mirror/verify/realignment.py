"""Finds where two logs match again after a difference, and classifies the records before that.

    source   5 6 7 8 9 ..            target   5 5 6 7 8 9 ..
               ^ 6 is not 5                     ^ one is extra: all later ones are shifted by 1

The nearest position is used at which ALIKE consecutive records are equal on both sides, or all
remaining ones are. Two equal records alone prove little if records repeat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

ALIKE: Final = 8
WINDOWS: Final = (64, 512, 4096)
"""Number of records of each side to compare. A larger window is used only if a smaller one does not
suffice.
"""
END: Final = object()


class Seen(NamedTuple):
    """A record of one side."""

    offset: int
    at: int
    """Its offset on the target, or the one where it should be."""
    number: int
    """Equal for records with equal content."""


def find_realignment(
    source: Sequence[Seen], target: Sequence[Seen], *, is_whole: bool, may_lack: bool
) -> tuple[int, int] | None:
    """Return the indexes at which both sides match again, or None if they do not within these
    records.

    `is_whole`: no records follow. `may_lack`: single records may be missing on either side.
    """
    source_indexes, target_indexes = range(len(source)), range(len(target))
    if may_lack:
        known_there = {seen.number for seen in target}
        known_here = {seen.number for seen in source}
        here_kept = [at for at in source_indexes if source[at].number in known_there]
        there_kept = [at for at in target_indexes if target[at].number in known_here]
    else:
        here_kept, there_kept = list(source_indexes), list(target_indexes)
    ends = [END] * ALIKE if is_whole else []
    source_numbers: list[object] = [source[at].number for at in here_kept] + ends
    target_numbers: list[object] = [target[at].number for at in there_kept] + ends
    match = _nearest(source_numbers, target_numbers)
    if match is None:
        return None
    return (
        here_kept[match[0]] if match[0] < len(here_kept) else len(source),
        there_kept[match[1]] if match[1] < len(there_kept) else len(target),
    )


def _nearest(
    source_numbers: Sequence[object], target_numbers: Sequence[object]
) -> tuple[int, int] | None:
    starts: dict[tuple[object, ...], list[int]] = {}
    for at in range(len(target_numbers) - ALIKE + 1):
        starts.setdefault(tuple(target_numbers[at : at + ALIKE]), []).append(at)
    best: tuple[int, int] | None = None
    for at in range(len(source_numbers) - ALIKE + 1):
        if best is not None and at >= sum(best):
            break
        # if distances are equal, the match that keeps the pairing is preferred
        for other in starts.get(tuple(source_numbers[at : at + ALIKE]), ()):
            rank = at + other, abs(at - other)
            if best is None or rank < (sum(best), abs(best[0] - best[1])):
                best = at, other
    return best


class Classified(NamedTuple):
    """The classified records before the position at which both sides match again."""

    same: list[tuple[Seen, Seen]]
    """Pairs of equal records at the right positions."""
    different: list[tuple[Seen, Seen]]
    moved_here: list[Seen]
    moved_there: list[Seen]
    missing: list[Seen]
    extra: list[Seen]


def classify(source: Sequence[Seen], target: Sequence[Seen]) -> Classified:
    """Classify records that do not match. Each record is in one list."""
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
    return Classified(
        same=same,
        different=different,
        moved_here=moved_here,
        moved_there=moved_there,
        missing=[seen for seen in left_here if seen.offset not in pairs[0]],
        extra=[seen for seen in left_there if seen.offset not in pairs[1]],
    )


def _at_their_offset(
    source: Sequence[Seen], target: Sequence[Seen], *, is_equal: bool
) -> Iterator[tuple[Seen, Seen]]:
    """Yield pairs at the same position. Each record is used once, because a wrong map may contain a
    position twice.
    """
    by_offset = {seen.at: seen for seen in target}
    for seen in source:
        other = by_offset.get(seen.at)
        if other is not None and (seen.number == other.number) is is_equal:
            yield seen, by_offset.pop(seen.at)


def _take_common(records: Sequence[Seen], common: Mapping[int, int]) -> Iterator[Seen]:
    left = dict(common)
    for seen in records:
        if left.get(seen.number, 0):
            left[seen.number] -= 1
            yield seen
