"""Splits partitions into sections that tasks walk side by side, and puts together what they find.

A section is walked by what the map says, so behind a lost record each of them finds the records
before its limit missing and its last ones extra. That is right of the section and wrong of the
partition. So neighbours that both differ are walked once more as one section. One that differs
alone stays: its neighbours are identical, so both logs go by the map at both of its limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from twinlog.mirror.map.runs import UPSTREAM, following
from twinlog.mirror.verify.difference import Compared
from twinlog.survey.verify.partition import VerifyTask

LEAST_OFFSETS: Final = 100_000
"""A smaller section is not worth a task of its own."""
MOST_OFFSETS: Final = 1_000_000
"""A task that is lost is done again, and what its section needs of the map is one message."""
TASKS: Final = 64
"""So many sections at least, of all partitions together, where they are not too small."""


def size(wanted: Sequence[VerifyTask]) -> int:
    """How many offsets a section of these partitions has."""
    total = sum(max(0, one.there.end - one.there.start) for one in wanted)
    return min(max(total // TASKS, LEAST_OFFSETS), MOST_OFFSETS)


def split(wanted: VerifyTask, offsets: int) -> list[VerifyTask]:
    """Sections of at most so many offsets of the source, in order; one where others write to the
    topic, too: which records of it are ours is known by reading from the map's mark on.
    """
    reach = wanted.written.reach
    if reach is None:
        return [wanted]
    first = max(wanted.here.start, wanted.written.runs[0].upstream, wanted.since)
    end = reach.upstream if wanted.until is None else min(reach.upstream, wanted.until)
    count = max(1, -(-(end - first) // offsets))
    limits = [first + (end - first) * at // count for at in range(1, count)]
    begins = [wanted.since, *limits]
    ends = [*limits, wanted.until]
    return [
        replace(wanted, since=begin, until=until, is_first=wanted.is_first and not at)
        for at, (begin, until) in enumerate(zip(begins, ends, strict=True))
    ]


def narrowed(wanted: VerifyTask) -> VerifyTask:
    """With no more of the map than the section needs: the runs that say something of it, and one
    behind, which ends the last of them. A map may have millions.
    """
    runs, reach = wanted.written.runs, wanted.written.reach
    if reach is None:
        return wanted
    low = max(0, following(runs, wanted.since, UPSTREAM) - 1)
    high = len(runs) if wanted.until is None else following(runs, wanted.until, UPSTREAM) + 1
    return replace(wanted, written=replace(wanted.written, runs=tuple(runs[low:high])))


def doubtful(sections: Sequence[VerifyTask], found: Sequence[Compared]) -> list[tuple[int, int]]:
    """Ranges [first, next) of neighbouring sections that are to be walked as one."""
    out: list[tuple[int, int]] = []
    first = 0
    for at in range(len(sections) + 1):
        if at < len(sections) and not found[at].is_identical:
            continue
        if at - first > 1:
            out.append((first, at))
        first = at + 1
    return out


def joined(sections: Sequence[VerifyTask]) -> VerifyTask:
    """Neighbouring sections of a partition as one."""
    return replace(sections[0], until=sections[-1].until)


def together(found: Sequence[Compared]) -> Compared:
    """What the sections of a partition found, in order."""
    out = Compared()
    for one in found:
        out.add(one)
    return out
