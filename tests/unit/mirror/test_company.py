"""A copy in a topic to which other clients write, too: what it sends, what it announces in the
offset map, and its mark (`mirror.map.offset_map.Mark`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.one_copy import DAY, NOW, K, a_copy, answer, batch, fetched, sent
from twinlog.mirror.copy.partition import PIPELINE, CopyState, PartitionCopy
from twinlog.mirror.copy.target_log import MARK_AFTER
from twinlog.mirror.findings import Span
from twinlog.mirror.map.map_tail import RUNS_PER_CHUNK, SHIFTS_PER_ROW, MapTail
from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, Run, Term
from twinlog.model import NO_TOPIC_ID


def running(count: int = 40) -> PartitionCopy:
    """Return a copy whose first batch, of one record, was acknowledged."""
    copy = a_copy(alone=False)
    copy.on_fetched(fetched(*(batch(n, 1) for n in range(count))), (), NOW)
    sent(copy)
    answer(copy, K)
    return copy


def test_nothing_is_sent_until_the_writer_between_own_records_is_known() -> None:
    copy = running()
    on_the_way = len(sent(copy))
    answer(copy, K + 1 + 5)
    assert copy.others.unknown == Span(K + 1, K + 6)
    assert copy.trouble is None
    assert not sent(copy)
    for number in range(2, 1 + on_the_way):
        answer(copy, K + number + 5)
    assert copy.others.unknown == Span(K + 1, K + 6), "the others moved no further"
    copy.others.has_other_flow, copy.others.unknown = True, None
    assert sent(copy)


def test_several_foreign_ranges_are_checked_together() -> None:
    copy = running()
    sent(copy)
    answer(copy, K + 1 + 5)
    answer(copy, K + 2 + 9)
    assert copy.others.unknown == Span(K + 1, K + 11)


def test_copy_continues_if_another_twinlog_flow_writes() -> None:
    copy = running()
    copy.others.has_other_flow = True
    for number in range(1, 20):
        sent(copy)
        answer(copy, K + 3 * number)
        assert copy.trouble is None
        assert copy.others.unknown is None
    assert copy.acked_downstream == K + 3 * 19 + 1
    assert [run.downstream for run in copy.tail.runs[-3:]] == [K + 51, K + 54, K + 57]


def test_records_that_are_read_after_a_move_need_no_row_of_their_own() -> None:
    copy = running(1)
    copy.others.has_other_flow = True
    for number in range(1, 5):
        copy.on_fetched(fetched(batch(number, 1)), (), NOW)
        assert len(sent(copy)) == 1, "no row of the map is waited for"
        answer(copy, K + 3 * number)


def test_rows_of_records_that_moved_are_written_for_many_together() -> None:
    copy = running(SHIFTS_PER_ROW + 20)
    copy.others.has_other_flow = True
    copy.tail.next_row()
    written = 0
    for number in range(1, SHIFTS_PER_ROW + 10):
        sent(copy)
        answer(copy, K + 3 * number)
        written += copy.tail.next_row() is not None
    assert written == 1


@pytest.mark.parametrize("listed", [True, False])
def test_one_request_is_in_flight_if_the_target_may_forget_the_id(listed: bool) -> None:
    copy = a_copy(alone=False, listed=listed, expiry=DAY if listed else None)
    copy.on_fetched(fetched(*(batch(n, 1) for n in range(40))), (), NOW + 3_600_000)
    sent(copy, NOW + 3_600_000)
    answer(copy, K, now=NOW + 3_600_000)
    assert len(sent(copy, NOW + 3_600_000)) == (PIPELINE if listed else 1)


# -- marks


def test_the_mark_of_a_copy_at_rest_is_final() -> None:
    copy = running(1)
    assert copy.mark(at_rest=True) == Mark(1, K + 1, is_final=True)
    assert copy.mark() == Mark(1, K + 1)


@pytest.mark.parametrize("why", ["lost answers", "late requests", "in flight"])
def test_no_mark_is_final_while_own_requests_may_arrive(why: str) -> None:
    copy = running(5)
    copy.has_unknown_outcomes = why == "lost answers"
    copy.late_requests = why == "late requests"
    if why == "in flight":
        sent(copy)
    assert not copy.mark(at_rest=True).is_final


def test_mark_of_an_idle_copy_moves_past_foreign_records() -> None:
    copy = running(1)
    copy.others.reach = K + 1 + MARK_AFTER - 1
    assert copy.mark() == Mark(1, K + 1), "not worth a row"
    copy.others.reach += 1
    assert copy.mark() == Mark(1, K + 1 + MARK_AFTER)
    copy.on_fetched(fetched(batch(1, 1)), (), NOW)
    assert copy.mark() == Mark(1, K + 1), "something of ours is about to be written"


def test_a_copy_that_was_taken_over_has_a_final_mark() -> None:
    copy = running(1)
    copy.state = CopyState.TAKEN_OVER
    assert copy.mark(at_rest=True).is_final


def test_a_final_mark_is_in_the_row_and_an_older_row_has_none() -> None:
    row = ChunkRow(
        key=PartitionKey(NO_TOPIC_ID, NO_TOPIC_ID, 0),
        term=Term(1, 0),
        chunk=0,
        topic="orders",
        runs=(Run(0, 0, 0),),
        mark=Mark(5, 9, is_final=True),
    )
    assert ChunkRow.decode(*row.encode()) == row
    assert b'"mark":[5,9]' in row.encode()[1], "as earlier releases read it"
    plain = replace(row, mark=Mark(5, 9))
    assert ChunkRow.decode(*plain.encode()).mark == Mark(5, 9)


# -- the map's tail


def a_tail(runs: int) -> MapTail:
    key = PartitionKey(NO_TOPIC_ID, NO_TOPIC_ID, 0)
    tail = MapTail(key=key, topic="orders", term=Term(1, 0), producer_id=9)
    return tail.begin([Run(n, 2 * n, n) for n in range(0, 2 * runs, 2)])


def test_runs_announced_after_a_moved_record_move_with_it() -> None:
    tail = a_tail(4)  # the ordinals are 0, 2, 4 and 6
    tail.shift(Run(3, 5, 13), 10)
    assert tail.runs == [
        Run(0, 0, 0),
        Run(2, 4, 2),
        Run(3, 5, 13),
        Run(4, 8, 14),
        Run(6, 12, 16),
    ]
    assert (tail.chunk, tail.dirty) == (0, True)


def test_a_full_chunk_is_followed_by_another() -> None:
    tail = a_tail(RUNS_PER_CHUNK)
    tail.durable_ordinal = tail.runs[-1].ordinal
    last = tail.runs[-1]
    tail.shift(Run(last.ordinal + 1, last.upstream + 1, last.downstream + 11), 10)
    assert tail.chunk == 1
    assert tail.runs == [Run(last.ordinal + 1, last.upstream + 1, last.downstream + 11)]


def test_a_record_before_the_open_chunk_makes_another_one() -> None:
    tail = a_tail(RUNS_PER_CHUNK + 1)
    before = tail.chunk
    tail.shift(Run(1, 2, 11), 10)
    assert tail.chunk > before, "the first run of a chunk never changes"
