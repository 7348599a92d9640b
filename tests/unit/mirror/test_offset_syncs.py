"""Offset syncs that are derived from the offset map: only of copied records, in ascending order,
and never too far apart.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinlog.control.duties.offset_syncs import (
    MOST_AT_ONCE,
    SyncPoint,
    history,
    newest_point,
    point_at,
    points_after,
)
from twinlog.mirror.map.offset_map import Run

#   upstream   100 101 102  .  104 105  .   .  108
#   downstream  70  71  72      73  74          75
RUNS = (Run(0, 100, 70), Run(3, 104, 73), Run(5, 108, 75))


def pairs(points: list[SyncPoint]) -> list[tuple[int, int]]:
    return [(point.upstream, point.downstream) for point in points]


def test_the_newest_is_the_last_copied_record() -> None:
    assert newest_point(RUNS, 109, 76) == SyncPoint(5, 108, 75)
    assert newest_point(RUNS, 108, 75) == SyncPoint(4, 105, 74), "108 is only announced"
    assert newest_point(RUNS, 104, 73) == SyncPoint(2, 102, 72)
    assert newest_point(RUNS, 101, 71) == SyncPoint(0, 100, 70)
    assert newest_point(RUNS, 100, 70) is None
    assert newest_point((), 0, 0) is None


def test_a_record_after_every_gap() -> None:
    last = SyncPoint(5, 108, 75)
    assert pairs(points_after(RUNS, SyncPoint(0, 100, 70), last, 100)) == [(104, 73), (108, 75)]
    assert points_after(RUNS, last, last, 100) == []


def test_lag_max_is_how_many_records_may_lie_between() -> None:
    runs = (Run(0, 0, 0),)
    found = points_after(runs, SyncPoint(0, 0, 0), SyncPoint(25, 25, 25), 10)
    assert pairs(found) == [(11, 11), (22, 22)]
    every = points_after(runs, SyncPoint(0, 0, 0), SyncPoint(3, 3, 3), 0)
    assert pairs(every) == [(1, 1), (2, 2), (3, 3)]


def test_much_at_once_is_thinned_evenly() -> None:
    runs = [Run(n, 2 * n, n) for n in range(100_000)]
    last = SyncPoint(99_999, 199_998, 99_999)
    found = points_after(runs, SyncPoint(0, 0, 0), last, 0)
    assert MOST_AT_ONCE / 2 < len(found) <= 2 * MOST_AT_ONCE
    assert last.ordinal - found[-1].ordinal <= len(runs) / MOST_AT_ONCE


def test_history_has_more_syncs_near_the_end() -> None:
    runs = (Run(0, 0, 0),)
    found = history(runs, SyncPoint(10_000, 10_000, 10_000), 10)
    assert found[0] == SyncPoint(0, 0, 0)
    assert [10_000 - point.ordinal for point in found[-4:]] == [44, 22, 11, 0]
    assert len(found) < 15
    assert history(runs, SyncPoint(0, 0, 0), 10) == [SyncPoint(0, 0, 0)]


def test_a_sync_of_another_copy_is_not_continued() -> None:
    assert point_at(RUNS, 105, 74) == SyncPoint(4, 105, 74)
    assert point_at(RUNS, 105, 90) is None
    assert point_at(RUNS, 103, 73) is None, "a gap"
    assert point_at(RUNS, 99, 69) is None
    assert point_at((), 0, 0) is None


def translate(syncs: list[SyncPoint], offset: int) -> int:
    """Translate an offset as MirrorMaker 2's readers do. Return -1 if no sync is at or before
    it.
    """
    known = [sync for sync in syncs if sync.upstream <= offset]
    if not known:
        return -1
    newest = max(known)
    return newest.downstream + (0 if newest.upstream == offset else 1)


@given(
    steps=st.lists(
        st.tuples(st.integers(1, 30), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=20
    ),
    lag_max=st.integers(0, 20),
    cut=st.integers(1, 200),
    data=st.data(),
)
def test_no_reader_ever_continues_after_the_right_record(
    steps: list[tuple[int, int, int]], lag_max: int, cut: int, data: st.DataObject
) -> None:
    """A client that translates by the offset syncs never gets an offset after the right record.
    This is so whatever gaps the source has, and whatever foreign records the target has.
    """
    runs: list[Run] = []
    downstream_of: dict[int, int] = {}
    ordinal, upstream, downstream = 0, 7, 3
    for length, gap, foreign in steps:
        if gap or foreign or not runs:
            runs.append(Run(ordinal, upstream + gap, downstream + foreign))
        upstream, downstream = upstream + gap, downstream + foreign
        for at in range(length):
            downstream_of[upstream + at] = downstream + at
        ordinal, upstream, downstream = ordinal + length, upstream + length, downstream + length
    copied = sorted(downstream_of)[: min(cut, len(downstream_of))]
    middle = data.draw(st.sampled_from(copied))
    first = newest_point(runs, middle + 1, downstream_of[middle] + 1)
    last = newest_point(runs, copied[-1] + 1, downstream_of[copied[-1]] + 1)
    assert first is not None
    assert last is not None
    assert (last.upstream, last.downstream) == (copied[-1], downstream_of[copied[-1]])
    syncs = history(runs, first, lag_max)
    syncs += points_after(runs, first, last, lag_max)
    syncs += [last] if syncs[-1] != last else []
    assert syncs == sorted(set(syncs)), "rising, and none twice"
    assert all(downstream_of.get(sync.upstream) == sync.downstream for sync in syncs)
    for offset in range(upstream + 5):
        following = [downstream_of[at] for at in downstream_of if at >= offset]
        exact = min(following) if following else downstream
        assert translate(syncs, offset) <= exact
    assert translate(syncs, copied[-1] + 1) == downstream_of[copied[-1]] + 1
