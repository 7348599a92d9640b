"""Derives offset syncs for MirrorMaker 2's readers from the offset map.

A sync is a pair (u, d): the record at u on the source is at d on the target. Readers use the newest
sync with u at or below a committed offset c, and answer d if c = u, else d + 1. So a sync must
refer to a copied record: if u were a gap, the first record after it would be at d and would be
skipped.

MirrorMaker 2 writes a sync for the first record, for each record after a gap, for a record if there
are `offset.lag.max` others between it and the last one, and once a minute for the newest record.
Twinlog writes the same, and the newest record as soon as no other follows. If many become due at
the same time, some in between are omitted (MirrorMaker 2 also lets newer ones replace them).

A reader keeps 64 syncs, closer together the newer they are, from those that it saw written in
order. A sync below the newest one makes it forget all others. So syncs are written in rising order,
and a flow that has no syncs yet, or different ones, first writes its history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from twinlog.mirror.map.runs import ORDINAL, Run, following, run_at, run_at_upstream

MOST_AT_ONCE: Final = 64


class SyncPoint(NamedTuple):
    """One copied record, to which a sync may refer."""

    ordinal: int
    upstream: int
    downstream: int


def newest_point(runs: Sequence[Run], next_upstream: int, next_downstream: int) -> SyncPoint | None:
    """Return the last record that is certainly copied, or None if there is none.

    Runs are announced before their records are sent, so runs from `next_downstream` on do not
    count.
    """
    for run in reversed(runs):
        count = min(next_upstream - run.upstream, next_downstream - run.downstream)
        if count > 0:
            return _point(run, run.ordinal + count - 1)
    return None


def point_at(runs: Sequence[Run], upstream: int, downstream: int) -> SyncPoint | None:
    """Return the record to which a sync refers, or None if the map has no such record, because the
    sync is of another copy.
    """
    run = run_at_upstream(runs, upstream)
    if run is None:
        return None
    point = _point(run, run.ordinal + upstream - run.upstream)
    return point if point.downstream == downstream and is_still_there(runs, point) else None


def is_still_there(runs: Sequence[Run], point: SyncPoint) -> bool:
    """Return False if the copy resumed at or before the record, and another one replaced it."""
    run = run_at(runs, point.ordinal)
    return run is not None and _point(run, point.ordinal) == point


def history(runs: Sequence[Run], newest: SyncPoint, lag_max: int) -> list[SyncPoint]:
    """Return the whole copy in few syncs, as a reader would keep them: each is twice as far from
    the end as the next one.
    """
    first = runs[0].ordinal
    ordinals = {first, newest.ordinal}
    distance = _step(lag_max)
    while newest.ordinal - distance > first:
        ordinals.add(newest.ordinal - distance)
        distance *= 2
    return _points(runs, ordinals)


def points_after(
    runs: Sequence[Run], before: SyncPoint, newest: SyncPoint, lag_max: int
) -> list[SyncPoint]:
    """Return the points that became due since `before`, in rising order."""
    begin = following(runs, before.ordinal, ORDINAL)
    end = following(runs, newest.ordinal, ORDINAL)
    gaps = [run.ordinal for run in runs[begin:end]]
    ordinals = set(gaps[:: _spacing(len(gaps))])
    copied = newest.ordinal - before.ordinal
    step = max(_step(lag_max), -(-copied // MOST_AT_ONCE))
    ordinals.update(range(before.ordinal + step, newest.ordinal + 1, step))
    return _points(runs, ordinals)


def _step(lag_max: int) -> int:
    # due when d - (last + 1) >= offset.lag.max; with 0 that is every record
    return max(lag_max, 0) + 1


def _spacing(count: int) -> int:
    return max(1, -(-count // MOST_AT_ONCE))


def _points(runs: Sequence[Run], ordinals: set[int]) -> list[SyncPoint]:
    out = []
    for ordinal in sorted(ordinals):
        run = run_at(runs, ordinal)
        if run is not None:
            out.append(_point(run, ordinal))
    return out


def _point(run: Run, ordinal: int) -> SyncPoint:
    return SyncPoint(ordinal, run.upstream_of(ordinal), run.downstream_of(ordinal))
