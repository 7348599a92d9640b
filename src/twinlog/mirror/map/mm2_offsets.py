"""Translates offsets of records that MirrorMaker 2 copied before the map begins, by MirrorMaker 2's
offset syncs.

A sync is a pair (u, d): the record at u on the source is at d on the target. Every copied record
after u has a copy after d, even if a restart of MirrorMaker 2 copied some records twice. The reason
is that each start continues at or before the point where the previous one stopped copying. When
Twinlog takes over the copy, it also resumes at or before that point. So the newest pair at or below
an offset yields a position that skips nothing. By MirrorMaker 2's own rule, u is translated to d,
and a later offset to d + 1.

    pairs  (0, 0) (101, 101) (202, 198)      the map begins at (300, 290)
    202 -> 198    250 -> 199 (records up to 290 are read again)    100 -> 1

Rules:

A. A pair with an upstream offset at or below that of an earlier pair replaces the earlier pair,
   because the record was copied again.
B. A pair with a downstream offset at or below that of an earlier pair belongs to another target
   log, so all earlier pairs are void.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

NEWEST_KEPT: Final = 200
"""Number of the newest pairs to keep, because most groups are near the end of the log."""
OLDER_KEPT: Final = 200
"""Number of older pairs to keep, evenly spread. All pairs together take about 4 KB."""


class Pair(NamedTuple):
    """The source offset and the target offset of one copied record."""

    upstream: int
    downstream: int


def kept(pairs: Iterable[Pair], upstream: int, downstream: int) -> tuple[Pair, ...]:
    """Return the pairs before the begin of the map (source offset `upstream`, target offset
    `downstream`), because the map translates all later offsets. The newest of these pairs are all
    returned, and the older ones are thinned out. `pairs`: all pairs in the order of the offset
    syncs topic.
    """
    out: list[Pair] = []
    for pair in pairs:
        if out and pair.downstream <= out[-1].downstream:
            out.clear()
        while out and pair.upstream <= out[-1].upstream:
            out.pop()
        out.append(pair)
    out = [pair for pair in out if pair.upstream < upstream and pair.downstream < downstream]
    older, newest = out[:-NEWEST_KEPT], out[-NEWEST_KEPT:]
    return (*older[:: max(1, -(-len(older) // OLDER_KEPT))], *newest)


def downstream_before(pairs: Sequence[Pair], upstream: int) -> int | None:
    """Return a target offset at or before the copies of all records from `upstream` on, or None if
    no pair is at or below `upstream`.
    """
    return _offset_after(pairs, upstream, _UPSTREAM, _DOWNSTREAM)


def upstream_before(pairs: Sequence[Pair], downstream: int) -> int | None:
    """Return a source offset at or before all records whose copies are at or after `downstream`, or
    None if no pair is at or below `downstream`.
    """
    return _offset_after(pairs, downstream, _DOWNSTREAM, _UPSTREAM)


_UPSTREAM: Final = attrgetter("upstream")
_DOWNSTREAM: Final = attrgetter("downstream")


def _offset_after(
    pairs: Sequence[Pair], offset: int, from_side: attrgetter[int], to_side: attrgetter[int]
) -> int | None:
    following = bisect_right(pairs, offset, key=from_side)
    if following == 0:
        return None
    pair = pairs[following - 1]
    return to_side(pair) if from_side(pair) == offset else to_side(pair) + 1
