"""Where two logs diverge, and where the reverse flow begins, without brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.failback import divergence, failback
from twinlog.control.failback.copy_end import CopyEnd, SearchReads
from twinlog.control.failback.divergence import MARKER, Comparing, LogDivergence
from twinlog.control.failback.failback import BEFORE_ALL, Reverse, reverse_start
from twinlog.errors import FlowError
from twinlog.mirror.map.offset_map import Mark, PartitionKey, PartitionMap, Term
from twinlog.mirror.map.runs import Run
from twinlog.mirror.map.translation import Reach
from twinlog.model import Flow, TopicId, TopicPartition
from twinlog.wire.records import Record

TP = TopicPartition("orders", 0)
HERE, THERE = TopicId("a" * 32), TopicId("b" * 32)
KEY = PartitionKey(HERE, THERE, 0)
BACK = PartitionKey(THERE, HERE, 0)
RUNS = (Run(0, 100, 0), Run(3, 104, 3))
"""The runs of five copied records: offsets 100, 101, 102, 104 and 105 of A are offsets 0 to 4
of B.
"""
A_HELD, B_HELD = (100, 101, 102, 104, 105), (0, 1, 2, 3, 4)


def known(*runs: Run, **more: Any) -> PartitionMap:
    found = SimpleNamespace(key=KEY, runs=runs, before=None, term=Term(0, 0))
    vars(found).update(more)
    return cast("PartitionMap", found)


def copied(*runs: Run, ordinal: int = 5, downstream: int = 5, **more: Any) -> CopyEnd:
    return CopyEnd(
        key=KEY, partition_map=known(*runs, **more), ordinal=ordinal, reach=Reach(106, downstream)
    )


def partition(**more: Any) -> LogDivergence:
    given: dict[str, Any] = {
        "at": 106,
        "log": (0, 110),
        "stable": 110,
        "copy": copied(*RUNS),
    } | more
    return LogDivergence(
        source=TP, target=TP, topic_id=HERE, target_id=THERE, target_log=(0, 9), **given
    )


def test_the_flow_back_has_the_map_turned_round_and_begins_behind_it() -> None:
    start = reverse_start("A->B", partition())
    assert start is not None
    assert start.runs == (Run(0, 0, 100), Run(3, 3, 104), Run(5, 5, 110))
    assert (start.key, start.mark, start.begin) == (BACK, Mark(5, 110), 5)
    no_tail = reverse_start("A->B", partition(log=(0, 106)))
    assert no_tail is not None
    assert no_tail.runs == (Run(0, 0, 100), Run(3, 3, 104))


def test_records_that_a_lost_are_copied_back_to_it() -> None:
    start = reverse_start("A->B", partition(at=102, log=(0, 102), lost_records=3))
    assert start is not None
    assert start.runs == (Run(0, 0, 100),)
    assert start.mark == Mark(2, 102)


def test_a_topic_that_was_never_copied_comes_whole() -> None:
    start = reverse_start("A->B", partition(copy=None, at=0))
    assert start is not None
    assert (start.runs, start.mark) == ((Run(0, 0, 110),), Mark(0, 110))
    alone = LogDivergence(source=TP, target=TP)
    assert reverse_start("A->B", alone) is None


@pytest.mark.parametrize(
    "copy",
    [
        copied(Run(0, 100, 0), Run(3, 104, 5), downstream=7),
        copied(*RUNS, downstream=6),
        copied(Run(0, 100, 4), ordinal=2, downstream=6),
    ],
    ids=["between", "at the end", "before"],
)
def test_where_b_has_records_among_the_copied_ones_there_is_no_one_place(copy: CopyEnd) -> None:
    with pytest.raises(FlowError) as caught:
        reverse_start("A->B", partition(copy=copy))
    assert caught.value.code == "REVERSE_UNKNOWN"


def test_records_copied_by_a_mirror_maker_2_are_on_both_sides() -> None:
    copy = copied(Run(0, 100, 4), ordinal=2, downstream=6, before=())
    start = reverse_start("A->B", partition(copy=copy))
    assert start is not None
    assert start.begin == 6


def test_rows_are_of_a_size_that_lanes_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failback, "RUNS_PER_ROW", 2)
    start = reverse_start("A->B", partition())
    assert start is not None
    rows = [*start.rows()]
    assert [len(row.runs) for row in rows] == [2, 1]
    assert [row.mark for row in rows] == [None, Mark(5, 110)]
    assert {row.term for row in rows} == {BEFORE_ALL}


def flow_back() -> Reverse:
    flow = Flow("A", "B")
    setup = SimpleNamespace(is_identity=True)
    scope = SimpleNamespace(config=SimpleNamespace(flow=flow), setup=setup, name="A->B")
    return Reverse(cast("CutoverScope", scope), print)


def test_rows_of_a_flow_that_was_ever_started_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    start, work = reverse_start("A->B", partition()), flow_back()
    assert start is not None
    ours = {BACK: known(*start.runs, term=BEFORE_ALL)}
    led = {BACK: known(*start.runs, term=Term(0, 0))}
    assert not work._has_begun(cast("Any", {}), start)
    assert not work._has_begun(cast("Any", ours), start)
    assert work._has_begun(cast("Any", led), start)
    less = reverse_start("A->B", partition(at=102, log=(0, 102), lost_records=3))
    assert less is not None
    with pytest.raises(FlowError, match="has lost records since"):
        work._has_begun(cast("Any", ours), less)
    monkeypatch.setattr(work, "_maps", lambda: led)
    (one,) = work.without_reverse_records([partition(log=(0, 200), stable=200)])
    assert (one.log, one.is_copied_back, one.is_open) == ((0, 110), True, False)


def comparing(end: int = 106) -> Comparing:
    """Return a comparison of the five records. `end`: the end of A's log."""
    sides = SearchReads(*cast("Any", ("A", "B")))
    return Comparing("A->B", sides, partition(log=(0, end)), copied(*RUNS))


def test_where_a_was_written_to_again_under_the_same_offsets_the_place_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for wrong_from in range(6):  # one of the five copied records, or none
        monkeypatch.setattr(divergence, "record_at", written_anew(wrong_from))
        assert comparing().common() == (min(wrong_from, 5), True)


@pytest.mark.parametrize("cleaned", range(1, 4))
@pytest.mark.parametrize("side", ["A", "B"])
def test_where_that_place_is_cleaned_away_no_new_record_is_taken_for_a_common_one(
    monkeypatch: pytest.MonkeyPatch, cleaned: int, side: str
) -> None:
    """All records of A from the second one on were rewritten, and some were compacted away on one
    cluster. A rewritten record must not be treated as one that both clusters have. If B's records
    are missing, the offset where the logs diverge is unknown (TAIL_UNKNOWN).
    """
    anew, gone = written_anew(1), range(1, 1 + cleaned)

    def record(client: str, tp: TopicPartition, offset: int) -> Any:
        held = A_HELD if client == "A" else B_HELD
        is_gone = client == side and offset in held and held.index(offset) in gone
        return None if is_gone else anew(client, tp, offset)

    def batches(*_: Any) -> Any:
        left = [ordinal for ordinal in gone if side == "B"]
        header = SimpleNamespace(magic=1, is_control=False)
        return [(header, [SimpleNamespace(offset=A_HELD[ordinal]) for ordinal in left])]

    monkeypatch.setattr(divergence, "record_at", record)
    monkeypatch.setattr(divergence, "_batches", batches)
    monkeypatch.setattr(divergence, "decode", lambda _, batch: batch)
    work = comparing()
    if side == "A":  # A has no record at these offsets, so no record of A can be missed
        assert work.common() == (1 + cleaned, True)
        return
    with pytest.raises(
        FlowError, match=r"from offset \d+ on. Whether \[\d+, \d+\) differs is unknown"
    ) as caught:
        work.common()
    assert caught.value.code == "TAIL_UNKNOWN"


def test_the_end_of_a_transaction_in_place_of_a_record_was_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lost its last two records. The marker of a new transaction and another record are at their
    offsets. The comparison must find that the logs diverge at the marker, and not after it.
    """
    anew = written_anew(3)

    def record(client: str, tp: TopicPartition, offset: int) -> Any:
        return MARKER if (client, offset) == ("A", 104) else anew(client, tp, offset)

    monkeypatch.setattr(divergence, "record_at", record)
    for end in (106, 105):  # the marker is before the other record, or at the end of the log
        assert comparing(end).common() == (3, True)


def written_anew(wrong_from: int) -> Any:
    """Return a function that reads records. Those of A from the ordinal `wrong_from` on are
    rewritten.
    """

    def record(client: str, _: TopicPartition, offset: int) -> tuple[Record, bool] | None:
        held = A_HELD if client == "A" else B_HELD
        if offset not in held:
            return None
        ordinal = held.index(offset)
        value = b"new" if client == "A" and ordinal >= wrong_from else b"%d" % ordinal
        return Record(offset=offset, timestamp=1, key=None, value=value, headers=()), False

    return record


@pytest.mark.parametrize(
    ("end", "ordinal"), [(100, 0), (101, 1), (103, 3), (104, 3), (105, 4), (106, 5), (200, 5)]
)
def test_records_after_the_end_of_a_are_lost_there(
    monkeypatch: pytest.MonkeyPatch, end: int, ordinal: int
) -> None:
    monkeypatch.setattr(divergence, "record_at", lambda *_: None)
    assert comparing(end).common() == (ordinal, False)
