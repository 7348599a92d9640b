"""Splits partitions into sections that tasks walk in parallel, and combines the results.

A section is walked by the map. After a lost record, each section finds the records before its limit
missing and its last ones extra. That is right for the section but wrong for the partition. So
adjacent sections that both differ are walked again as one section. A section that differs alone
keeps its result: its neighbours are identical, so both logs match the map at both of its limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from twinlog.mirror.map.runs import UPSTREAM, following
from twinlog.mirror.verify.difference import Compared
from twinlog.survey.verify.partition import VerifyTask

LEAST_OFFSETS: Final = 100_000
"""Minimum number of offsets per section. A smaller one is not worth a separate task."""
MOST_OFFSETS: Final = 1_000_000
"""Maximum number of offsets per section, because a lost task is repeated, and because the part of
the map that a section needs is one message.
"""
TASKS: Final = 64
"""Minimum number of sections of all partitions together, unless they would be too small."""


def size(wanted: Sequence[VerifyTask]) -> int:
    """Return the number of offsets per section for these partitions."""
    total = sum(max(0, task.there.end - task.there.start) for task in wanted)
    return min(max(total // TASKS, LEAST_OFFSETS), MOST_OFFSETS)


def split(wanted: VerifyTask, offsets: int) -> list[VerifyTask]:
    """Split partitions into sections of at most `offsets` source offsets, in order.

    There is only one if other clients write to the topic, too: which records are this flow's is
    then known only by reading from the map's mark on.
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


def with_needed_runs(wanted: VerifyTask) -> VerifyTask:
    """Return the section with only the part of the map that it needs: its runs, and one more run
    that ends the last of them. A map may have millions of runs.
    """
    runs, reach = wanted.written.runs, wanted.written.reach
    if reach is None:
        return wanted
    low = max(0, following(runs, wanted.since, UPSTREAM) - 1)
    high = len(runs) if wanted.until is None else following(runs, wanted.until, UPSTREAM) + 1
    return replace(wanted, written=replace(wanted.written, runs=tuple(runs[low:high])))


def doubtful(sections: Sequence[VerifyTask], results: Sequence[Compared]) -> list[tuple[int, int]]:
    """Return ranges [first, next) of adjacent sections that must be walked again as one."""
    out: list[tuple[int, int]] = []
    first = 0
    for at in range(len(sections) + 1):
        if at < len(sections) and not results[at].is_identical:
            continue
        if at - first > 1:
            out.append((first, at))
        first = at + 1
    return out


def joined(sections: Sequence[VerifyTask]) -> VerifyTask:
    """Join adjacent sections of a partition."""
    return replace(sections[0], until=sections[-1].until)


def together(results: Sequence[Compared]) -> Compared:
    """Combine the results for the sections of a partition, in order."""
    out = Compared()
    for result in results:
        out.add(result)
    return out
