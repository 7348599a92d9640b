"""Pairs of offsets that MirrorMaker 2 has written never lead to an offset after a record that is
still to be read.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinlog.mirror.map.mm2_offsets import (
    NEWEST_KEPT,
    OLDER_KEPT,
    Pair,
    downstream_before,
    kept,
    upstream_before,
)

FAR = 1 << 40


@st.composite
def copies(draw: st.DrawFn) -> tuple[list[int], int, list[Pair]]:
    """Generate copies: the upstream offset of each target record by its target offset (-1: a
    marker), the target offset where Twinlog's part begins, and the syncs.

    MirrorMaker 2 starts several times, each time at or before the position where it stopped. Then
    Twinlog continues after the last record.
    """
    source = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=40)))
    target: list[int] = []
    pairs: list[Pair] = []
    last = 0
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, last))
        end = draw(st.integers(begin + 1, len(source))) if begin < len(source) else begin
        for number in range(begin, end):
            target.extend([-1] * draw(st.integers(0, 2)))
            if number == begin or draw(st.booleans()):
                pairs.append(Pair(source[number], len(target)))
            target.append(source[number])
            last = number + 1
    return [*target, *source[last:]], len(target), pairs


@given(copies())
def test_nothing_is_skipped_there_and_back(copy: tuple[list[int], int, list[Pair]]) -> None:
    target, ours, pairs = copy
    known = kept(pairs, FAR, ours)
    for upstream in range(62):
        begin = downstream_before(known, upstream)
        read = target[0 if begin is None else begin :]
        assert {at for at in target if at >= upstream} <= set(read)
    for downstream in range(ours):
        begin = upstream_before(known, downstream) or 0
        assert all(at >= begin for at in target[downstream:] if at >= 0)


def test_a_recreated_log_voids_earlier_pairs() -> None:
    pairs = [Pair(0, 0), Pair(500, 400), Pair(600, 10), Pair(700, 90)]
    assert kept(pairs, FAR, FAR) == (Pair(600, 10), Pair(700, 90))


def test_a_record_copied_again_has_its_newest_offset() -> None:
    assert kept([Pair(0, 0), Pair(7, 7), Pair(5, 9), Pair(5, 10)], FAR, FAR) == (
        Pair(0, 0),
        Pair(5, 10),
    )


def test_no_pair_at_or_after_the_beginning_of_the_map() -> None:
    pairs = [Pair(0, 0), Pair(7, 7), Pair(9, 9)]
    assert kept(pairs, 9, FAR) == tuple(pairs[:2])
    assert kept(pairs, FAR, 7) == tuple(pairs[:1])


def test_of_many_pairs_the_newest_and_some_others_are_kept() -> None:
    pairs = [Pair(n, n) for n in range(100_000)]
    found = kept(pairs, FAR, FAR)
    assert found[-NEWEST_KEPT:] == tuple(pairs[-NEWEST_KEPT:])
    assert OLDER_KEPT // 2 < len(found) - NEWEST_KEPT <= OLDER_KEPT
    assert found[0] == pairs[0]
