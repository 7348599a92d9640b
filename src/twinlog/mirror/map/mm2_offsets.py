"""Where records lie that a MirrorMaker 2 copied before our map begins, as far as its offset syncs
tell.

A sync is a pair (u, d): the record at u on the source lies at d on the target. Everything behind u
that was copied has a copy behind d, also where a restart of MirrorMaker 2 copied some of it twice,
for each start continues at or before where the last one stopped, and so does the take-over.
So from the newest pair at or below an offset follows a place that skips nothing: by MirrorMaker 2's
own rule, d for u itself and d + 1 for what lies behind it.

    pairs  (0, 0) (101, 101) (202, 198)      our map begins at (300, 290)

    202 -> 198    250 -> 199: between it and 290 lies what is read again    100 -> 1

Rules:

A. A pair with an upstream offset at or below an earlier one's takes its place: copied again.
B. One with a downstream offset at or below an earlier one's is of another log: all before are void.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

NEWEST_KEPT: Final = 200
"""Groups are near the end."""
OLDER_KEPT: Final = 200
"""Evenly spread over all that is older; both together are about 4 KB."""


class Pair(NamedTuple):
    """One copied record."""

    upstream: int
    downstream: int


def kept(pairs: Iterable[Pair], upstream: int, downstream: int) -> tuple[Pair, ...]:
    """What stays of pairs in the order of their log, below the place where our map begins."""
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
    """A place on the target at or before all records from `upstream` on; None: no pair tells."""
    return _after(pairs, upstream, _UPSTREAM, _DOWNSTREAM)


def upstream_before(pairs: Sequence[Pair], downstream: int) -> int | None:
    """The other way round."""
    return _after(pairs, downstream, _DOWNSTREAM, _UPSTREAM)


_UPSTREAM: Final = attrgetter("upstream")
_DOWNSTREAM: Final = attrgetter("downstream")


def _after(
    pairs: Sequence[Pair], at: int, here: attrgetter[int], there: attrgetter[int]
) -> int | None:
    following = bisect_right(pairs, at, key=here)
    if following == 0:
        return None
    pair = pairs[following - 1]
    return there(pair) if here(pair) == at else there(pair) + 1
