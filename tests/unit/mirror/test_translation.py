"""Translation by the offset map gives the same results as a list of all records, whatever gaps
there are.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, PartitionMap, Run, Term
from twinlog.mirror.map.translation import (
    Reach,
    Translation,
    downstream_of,
    upstream_of,
)
from twinlog.model import TopicId
from twinlog.survey.replica import Witness, by_mark, copied_below

KEY = PartitionKey(TopicId("a" * 32), TopicId("b" * 32), 0)


class Pair(NamedTuple):
    """The offsets of one record on both sides."""

    upstream: int
    downstream: int


class Copy(NamedTuple):
    """The state of a copy at one moment, record by record."""

    pairs: list[Pair]
    """The records on the target, followed by those that are only announced."""
    copied: int
    """Number of records that are on the target."""
    reach: Reach
    runs: list[Run]

    def first_at_or_after(self, upstream: int) -> int:
        """Return the right translation, found by comparing all records."""
        found = (p.downstream for p in self.pairs[: self.copied] if p.upstream >= upstream)
        return next(found, self.reach.downstream)

    def first_back(self, downstream: int) -> int:
        found = (p.upstream for p in self.pairs[: self.copied] if p.downstream >= downstream)
        return next(found, self.reach.upstream)


def runs_of(pairs: list[Pair]) -> list[Run]:
    runs: list[Run] = []
    for ordinal, pair in enumerate(pairs):
        run = Run(ordinal, *pair)
        if not runs or not run.continues(runs[-1]):
            runs.append(run)
    return runs


@st.composite
def copies(draw: st.DrawFn, *, foreign: int = 0) -> Copy:
    """Generate copies with gaps on the source, foreign records on the target, rows ahead of the
    data, and a gap at the end.
    """
    upstream, downstream = draw(st.integers(0, 50)), draw(st.integers(0, 50))
    pairs: list[Pair] = []
    for gap, other in draw(
        st.lists(st.tuples(st.sampled_from((0, 0, 1, 7)), st.integers(0, foreign)), max_size=30)
    ):
        upstream, downstream = upstream + gap, downstream + other
        pairs.append(Pair(upstream, downstream))
        upstream, downstream = upstream + 1, downstream + 1
    copied = draw(st.integers(0, len(pairs)))
    low, below = pairs[copied - 1] if copied else Pair(-1, -1)
    high = pairs[copied].upstream if copied < len(pairs) else upstream + 5
    if copied:
        reach = Reach(draw(st.integers(low + 1, max(high, low + 1))), below + 1)
    else:
        reach = Reach(high, pairs[0].downstream if pairs else downstream)
    return Copy(pairs, copied, reach, runs_of(pairs))


@given(copies())
def test_every_committed_offset_continues_at_the_next_record(copy: Copy) -> None:
    for upstream in range(copy.reach.upstream + 1):
        expected = Translation(offset=copy.first_at_or_after(upstream), is_exact=True)
        assert downstream_of(copy.runs, copy.reach, upstream) == expected


@given(copies(foreign=3))
def test_foreign_records_in_between_move_nothing(copy: Copy) -> None:
    for upstream in range(copy.reach.upstream + 1):
        expected = copy.first_at_or_after(upstream)
        assert downstream_of(copy.runs, copy.reach, upstream).offset == expected


@given(copies(), st.integers(1, 100))
def test_an_offset_ahead_of_the_copy_skips_nothing(copy: Copy, ahead: int) -> None:
    found = downstream_of(copy.runs, copy.reach, copy.reach.upstream + ahead)
    assert found == Translation(offset=copy.reach.downstream, is_exact=False)


@given(copies(foreign=3))
def test_translation_back_gives_the_same_record(copy: Copy) -> None:
    for downstream in range(copy.reach.downstream + 1):
        expected = Translation(offset=copy.first_back(downstream), is_exact=True)
        assert upstream_of(copy.runs, copy.reach, downstream) == expected


@given(copies(foreign=3))
def test_there_and_back_reads_the_same_record_next(copy: Copy) -> None:
    for upstream in range(copy.reach.upstream + 1):
        there = downstream_of(copy.runs, copy.reach, upstream).offset
        back = upstream_of(copy.runs, copy.reach, there).offset
        between = [p for p in copy.pairs[: copy.copied] if upstream <= p.upstream < back]
        assert not between
        assert back >= upstream or back == copy.reach.upstream


def map_of(copy: Copy) -> PartitionMap:
    known = PartitionMap(key=KEY, topic="orders")
    if copy.runs:
        row = ChunkRow(key=KEY, term=Term(1, 1), chunk=0, topic="orders", runs=tuple(copy.runs))
        known.apply(row)
    return known


@given(copies())
def test_log_end_shows_the_reach_in_an_own_topic(copy: Copy) -> None:
    known = map_of(copy)
    if not copy.runs:
        return
    reach = copied_below(known, copy.reach.downstream, Witness.LOG_END).reach
    assert reach is not None
    assert reach.upstream <= copy.reach.upstream
    for upstream in range(copy.reach.upstream + 1):
        found = downstream_of(copy.runs, reach, upstream)
        assert found.offset == copy.first_at_or_after(upstream)


@given(copies(foreign=3), st.integers(0, 30))
def test_an_old_mark_of_a_shared_topic_skips_nothing(copy: Copy, behind: int) -> None:
    marked = max(copy.copied - behind, 0)
    known = map_of(copy)
    if marked:
        known.mark = Mark(marked, copy.pairs[marked - 1].downstream + 1)
    reach = by_mark(known).reach if copy.runs else None
    for upstream in range(copy.reach.upstream + 1):
        if reach is not None:
            found = downstream_of(copy.runs, reach, upstream)
            assert found.offset <= copy.first_at_or_after(upstream)


def test_a_map_older_than_the_reach_is_why_the_reach_comes_first() -> None:
    pairs = [Pair(0, 0), Pair(1, 1), Pair(5, 2), Pair(6, 3)]
    stale, reach = runs_of(pairs[:2]), Reach(7, 4)
    assert downstream_of(runs_of(pairs), reach, 4).offset == 2
    assert downstream_of(stale, reach, 4).offset == 4  # records 5 and 6 would be skipped


@pytest.mark.parametrize(("offset", "expected"), [(3, 10), (15, 15), (99, 20)])
def test_answer_is_moved_into_the_log(offset: int, expected: int) -> None:
    assert Translation(offset=offset, is_exact=True).within(10, 20) == expected
