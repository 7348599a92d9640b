"""The offset map is built from its rows (`mirror.map.offset_map`). Whatever was written in whatever
order, the runs of the newest term (cold start) are valid.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.folded_rows import fold
from twinlog.errors import CorruptData
from twinlog.mirror.map.map_tail import RUNS_PER_CHUNK, MapTail
from twinlog.mirror.map.offset_map import (
    ChunkRow,
    Mark,
    PartitionKey,
    PartitionMap,
    Run,
    Term,
    map_partition,
    run_at,
    run_at_upstream,
)
from twinlog.model import TopicId, TopicPartition

KEY = PartitionKey(TopicId("a" * 32), TopicId("b" * 32), 3)


def row(term: Term, *runs: Run, chunk: int = 0, mark: Mark | None = None) -> ChunkRow:
    return ChunkRow(key=KEY, term=term, chunk=chunk, topic="orders", runs=runs, mark=mark)


def folded(*rows: ChunkRow) -> list[Run]:
    return list(fold(rows)[KEY].runs)


def gapped_runs() -> st.SearchStrategy[tuple[Run, ...]]:
    step = st.tuples(st.integers(1, 50), st.integers(0, 1000), st.integers(0, 3))

    def build(steps: list[tuple[int, int, int]]) -> tuple[Run, ...]:
        runs, last = [Run(0, 10, 0)], Run(0, 10, 0)
        for length, up, down in steps:
            last = Run(
                last.ordinal + length, last.upstream + length + up, last.downstream + length + down
            )
            runs.append(last)
        return tuple(runs)

    return st.lists(step, max_size=20).map(build)


@given(gapped_runs(), st.none() | st.builds(Mark, st.integers(0, 9), st.integers(0, 9)))
def test_row_survives_encoding(runs: tuple[Run, ...], mark: Mark | None) -> None:
    written = row(Term(7, 2), *runs, chunk=5, mark=mark)
    assert ChunkRow.decode(*written.encode()) == written


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"v":1}', b"\xff", b'{"v":1,"runs":[1,2]}'])
def test_bytes_that_are_no_row_are_corrupt_data(value: bytes) -> None:
    key, _ = row(Term(0, 0), Run(0, 0, 0)).encode()
    with pytest.raises(CorruptData, match="STATE_CORRUPT"):
        ChunkRow.decode(key, value)


def test_newer_version_is_refused_in_one_line() -> None:
    key, _ = row(Term(0, 0), Run(0, 0, 0)).encode()
    with pytest.raises(CorruptData, match=r"version 9.*upgrade Twinlog.*STATE_TOO_NEW"):
        ChunkRow.decode(key, b'{"v":9}')


def test_growing_chunk_replaces_itself() -> None:
    first, second = Run(0, 100, 0), Run(3, 104, 3)
    assert folded(row(Term(1, 0), first), row(Term(1, 0), first, second)) == [first, second]


def test_new_term_voids_rows_written_ahead_of_its_cut() -> None:
    ahead = Run(1010, 3000, 1010)
    cut = Run(1003, 2100, 1003)
    assert folded(row(Term(1, 0), Run(0, 0, 0), ahead), row(Term(2, 1), cut)) == [Run(0, 0, 0), cut]


def test_row_of_an_older_term_written_after_a_newer_cut_is_void_from_the_cut_on() -> None:
    zombie = row(Term(1, 0), Run(0, 0, 0), Run(50, 90, 50))
    assert folded(row(Term(2, 1), Run(0, 0, 0), Run(40, 40, 40)), zombie) == [
        Run(0, 0, 0),
        Run(40, 40, 40),
    ]
    assert folded(row(Term(2, 1), Run(40, 40, 40)), zombie) == [Run(0, 0, 0), Run(40, 40, 40)]


def test_late_row_of_a_broken_connection_is_ignored() -> None:
    late = row(Term(1, 0), Run(0, 0, 0), chunk=0)
    moved_on = row(Term(1, 0), Run(0, 0, 0), Run(5, 9, 5), chunk=1)
    assert folded(moved_on, late) == [Run(0, 0, 0), Run(5, 9, 5)]


@given(gapped_runs(), st.data())
def test_map_written_in_chunks_by_several_terms_reads_as_one(
    runs: tuple[Run, ...], data: st.DataObject
) -> None:
    """Several terms write the same runs in chunks, each of which is a row. Some rows are written
    twice. A term's last row may announce a run of which no record was copied. The first row of the
    next term makes that run void. All rows together must be read as the original runs.
    """
    rows: list[ChunkRow] = []
    term, chunk, begin = Term(1, 0), 0, 0
    for end in range(1, len(runs) + 1):
        rows.append(row(term, *runs[begin:end], chunk=chunk))
        match data.draw(st.sampled_from(["grow", "chunk", "term", "repeat"])):
            case "chunk":
                chunk, begin = chunk + 1, end
            case "term":
                beyond = runs[end - 1]
                ahead = Run(beyond.ordinal + 100_000, beyond.upstream + 200_000, 9_000_000)
                rows.append(row(term, *runs[begin:end], ahead, chunk=chunk))
                term, chunk, begin = Term(term.generation + 1, 0), 0, end - 1
                rows.append(row(term, runs[end - 1]))
            case "repeat":
                rows.append(rows[-1])
    assert folded(*rows) == list(runs)
    compacted = {r.encode()[0]: r for r in rows}
    survivors = [r for at, r in enumerate(rows) if r is compacted[r.encode()[0]] and r in rows[at:]]
    assert folded(*survivors) == list(runs)


@given(gapped_runs(), st.integers(0, 900))
def test_every_ordinal_is_in_the_last_run_at_or_below_it(
    runs: tuple[Run, ...], ordinal: int
) -> None:
    found = run_at(runs, ordinal)
    assert found == max(r for r in runs if r.ordinal <= ordinal)
    upstream = found.upstream_of(ordinal)
    last_of_run = all(r.ordinal > ordinal or r.ordinal <= found.ordinal for r in runs)
    if last_of_run and (following := run_at_upstream(runs, upstream)) is not None:
        assert following.upstream <= upstream


def test_tail_waits_for_rows_to_be_durable() -> None:
    tail = MapTail(key=KEY, topic="orders", term=Term(1, 0), chunk=0, runs=[Run(0, 0, 0)])
    tail.on_durable(Run(0, 0, 0))
    tail.announce(Run(5, 9, 5), None)
    assert (tail.dirty, tail.durable_ordinal) == (True, 0)
    tail.on_durable(Run(5, 9, 5))
    assert tail.durable_ordinal == 5


def test_tail_does_not_take_an_answer_for_a_run_that_was_replaced() -> None:
    tail = MapTail(key=KEY, topic="orders", term=Term(1, 0), chunk=0, runs=[Run(0, 0, 0)])
    tail.announce(Run(5, 9, 5), None)
    tail.announce(Run(5, 12, 5), None)
    tail.on_durable(Run(5, 9, 5))
    assert tail.durable_ordinal < 5


def test_tail_opens_a_new_chunk_when_one_is_full_and_durable() -> None:
    tail = MapTail(key=KEY, topic="orders", term=Term(1, 0), chunk=0, runs=[Run(0, 0, 0)])
    for number in range(1, RUNS_PER_CHUNK + 5):
        tail.announce(Run(number, 2 * number, number), None)
        tail.on_durable(Run(number, 2 * number, number))
    row = tail.next_row()
    assert row is not None
    assert (tail.chunk, len(row[0].runs)) == (1, 5)


def test_partition_map_forgets_a_mark_beyond_its_cut() -> None:
    known = PartitionMap(key=KEY, topic="orders")
    known.apply(row(Term(1, 0), Run(0, 0, 0), mark=Mark(90, 90)))
    known.apply(row(Term(2, 0), Run(40, 40, 40)))
    assert known.mark is None


def test_rows_of_a_partition_always_go_to_the_same_map_partition() -> None:
    homes = {map_partition(TopicPartition("orders", n), 8) for n in range(64)}
    assert homes == set(range(8))
    assert map_partition(TopicPartition("orders", 3), 8) == map_partition(
        TopicPartition("orders", 3), 8
    )


def test_tail_never_repeats_a_lost_write_under_its_key() -> None:
    """The write of a map row is lost, and a larger row with the same key replaces it. The lost row
    may still arrive before or after the larger one. The map must be the same in both cases.
    """
    tail = MapTail(key=KEY, topic="orders", term=Term(1, 0), chunk=0, runs=[Run(0, 0, 0)])
    tail.announce(Run(5, 9, 5), None)
    lost = tail.next_row()
    tail.on_lost()
    tail.announce(Run(7, 20, 7), None)
    written = tail.next_row()
    assert lost is not None and written is not None
    for order in ((lost[0], written[0]), (written[0], lost[0])):
        assert folded(*order) == [Run(0, 0, 0), Run(5, 9, 5), Run(7, 20, 7)]


def test_a_fetch_answer_of_many_gaps_becomes_rows_of_a_few_kilobytes() -> None:
    tail = MapTail(key=KEY, topic="orders", term=Term(1, 0), chunk=0, runs=[Run(0, 0, 0)])
    runs = [Run(number, 2 * number, number) for number in range(1, 150_000)]
    for run in runs:
        tail.announce(run, None)
    rows = []
    while (made := tail.next_row()) is not None:
        rows.append(made)
    assert max(len(row.encode()[1]) for row, _ in rows) < 8_000
    assert tail.durable_ordinal < 0
    for _, last in rows:
        tail.on_durable(last)
        assert tail.durable_ordinal == last.ordinal
    assert folded(*(row for row, _ in rows)) == [Run(0, 0, 0), *runs]


def test_hand_over_ends_where_the_copy_does_and_voids_what_was_announced_ahead() -> None:
    """Map rows announce runs (ranges of consecutive offsets) of batches that were never sent. A
    hand-over must end with the last copied record. The next lane's first row must make the
    announced runs after this record void.
    """
    tail = MapTail(key=KEY, topic="orders", term=Term(1, 0), chunk=0, runs=[Run(0, 0, 0)])
    for number in range(1, 3 * RUNS_PER_CHUNK):
        tail.announce(Run(number, 2 * number, number), None)
    ahead = []
    while (made := tail.next_row()) is not None:
        ahead.append(made[0])
        tail.on_durable(made[1])
    at = RUNS_PER_CHUNK + 10
    handed = tail.hand_over(at)
    assert handed is not None
    assert handed.runs[-1] == Run(at - 1, 2 * (at - 1), at - 1)
    resumed = MapTail(
        key=KEY,
        topic="orders",
        term=Term(1, 0),
        chunk=handed.chunk,
        runs=list(handed.runs),
        durable_ordinal=handed.durable_ordinal,
    )
    resumed.announce(Run(at, 9_000, at), None)
    assert handed.durable_ordinal < 0, "nothing is sent before the row that voids them"
    row = resumed.next_row()
    assert row is not None
    assert folded(*ahead, row[0])[-2:] == [handed.runs[-1], Run(at, 9_000, at)]


def test_null_values_take_chunks_away_but_never_the_first() -> None:
    rows = [row(Term(1, 0), Run(100 * n, 110 * n, 100 * n), chunk=n) for n in range(6)]
    known = fold(rows)[KEY]
    behind = known.prunable(350)
    assert behind == [(Term(1, 0), 1), (Term(1, 0), 2)], "what holds ordinal 350 stays"
    for term, chunk in [*behind, (Term(1, 0), 0)]:
        known.remove(term, chunk)
    assert [run.ordinal for run in known.runs] == [0, 300, 400, 500]


def test_rows_of_two_partitions_of_the_topic_read_as_one_map_in_any_order() -> None:
    """Partitions were added to the map topic between two terms (cold starts), so rows of one map
    are in two partitions. They are read as one map, in any order.
    """
    before = [row(Term(1, 0), Run(0, 0, 0), Run(5, 7, 5))]
    after = [row(Term(2, 0), Run(0, 0, 0), Run(5, 7, 5), Run(8, 11, 8))]
    assert folded(*before, *after) == folded(*after, *before)
    assert folded(*after, *before) == list(after[0].runs)


def test_answer_for_a_run_that_was_replaced_in_a_chunk_that_filled_up_in_the_meantime() -> None:
    tail = MapTail(key=KEY, topic="orders", term=Term(1, 0), chunk=0, runs=[Run(0, 0, 0)])
    tail.dirty = True
    written = tail.next_row()
    for number in range(RUNS_PER_CHUNK + 1):
        tail.announce(Run(number, 2 * number + 1, number), None)
    assert written is not None
    tail.on_durable(written[1])
    assert tail.durable_ordinal < 0, "the row said that ordinal 0 is another record"
