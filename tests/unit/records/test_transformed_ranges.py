"""Ranges of lanes are converted to rows, and rows to answers, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.support.range_port import batches_of, range_of, records_of, source_records
from twinlog.errors import ClusterError, CorruptData
from twinlog.mirror.copy.ranges import RangeAnswer, SourceRange
from twinlog.records import ranges as ranges_module
from twinlog.records.decoding import arrow_schema
from twinlog.records.ranges import COLUMNS, PayloadTurn, RangeEncoder, rows_of_range
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record

pytestmark = pytest.mark.usefixtures("each_kernels")

NOW: Final = 1_800_000_000_000
RECORDS: Final = [
    Record(10, 1_700_000_000_123, b"k", b"first", (("a", b"1"), ("a", None))),
    Record(11, -1, None, b"", ()),  # a record without a timestamp
    Record(12, 0, b"", None, (("", b""),)),
    Record(20, 1_700_000_000_000, b"k", b"x" * 2000, ()),
]


def answer_to(
    one: SourceRange,
    change: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows,
    *,
    codec: Codec = Codec.LZ4,
    max_bytes: int = 1 << 20,
    left_out: tuple[int, ...] = (),
) -> RangeAnswer:
    encoder = RangeEncoder([one], codec=codec, max_bytes=max_bytes, now_ms=NOW)
    for rows in rows_of_range(one, left_out):
        encoder.add(change(rows))
    (answer,) = encoder.answers()
    return answer


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_nothing_changes_stay_the_same(codec: Codec) -> None:
    answer = answer_to(range_of(RECORDS, end=25), codec=codec)
    assert records_of(answer) == RECORDS
    assert (answer.end, answer.failure) == (25, None)


def test_only_the_part_is_answered() -> None:
    answer = answer_to(range_of(RECORDS, first=11, end=20))
    assert [one.offset for one in records_of(answer)] == [11, 12]
    assert answer.end == 20
    assert not answer_to(range_of(RECORDS, first=13, end=20)).batches


def test_records_are_left_out() -> None:
    answer = answer_to(range_of(RECORDS), left_out=(11, 20))
    assert [one.offset for one in records_of(answer)] == [10, 12]


def test_workers_take_turns_with_large_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers take turns to read large batches. A worker keeps its turn until all rows of the batch
    were read. Another worker waits only for a while, because the first one may hang.
    """
    monkeypatch.setattr(ranges_module, "LARGE_BYTES", 1000)
    small = Record(9, 0, None, b"x", ())
    one = range_of([small, *RECORDS], first=9, batches=batches_of([small]) + batches_of(RECORDS))
    here, there = PayloadTurn(str(tmp_path)), PayloadTurn(str(tmp_path))

    def is_free() -> bool:
        before, there.left_s = time.monotonic(), 0.05
        there.begin()
        there.end()
        return time.monotonic() - before < 0.05

    monkeypatch.setattr(ranges_module, "CHUNK_BYTES", 1)
    free = [is_free() for _ in rows_of_range(one, turn=here)]
    assert free == [True, True, True, True, False]
    assert is_free()
    rows = rows_of_range(one, turn=here)
    assert [next(rows).num_rows for _ in free] == [1] * 5 and not is_free()
    rows.close()  # type: ignore[attr-defined]
    assert is_free()


def test_a_batch_has_a_maximum_payload() -> None:
    with pytest.raises(CorruptData, match="more than 1000 bytes"):
        list(rows_of_range(range_of(RECORDS), limit_bytes=1000))


def test_rows_that_a_filter_keeps_have_their_offsets() -> None:
    keeps = pa.array([True, False, False, True])
    answer = answer_to(range_of(RECORDS), lambda rows: rows.filter(keeps))
    assert records_of(answer) == [RECORDS[0], RECORDS[3]]


def test_a_batch_has_at_most_the_given_size() -> None:
    many = [Record(at, 0, None, b"%d" % at * 50, ()) for at in range(100)]
    answer = answer_to(range_of(many, per=7), codec=Codec.NONE, max_bytes=1000)
    assert len(answer.batches) > 5
    assert max(map(len, answer.batches)) <= 1000
    assert records_of(answer) == many


def _with(name: str, column: Any) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def change(rows: pa.RecordBatch) -> pa.RecordBatch:
        at = rows.schema.get_field_index(name)
        return rows.set_column(at, rows.schema.field(at), column)

    return change


@pytest.mark.parametrize(
    "change",
    [
        _with("topic", pa.array(["other"] * 4)),
        _with("topic", pa.array(["orders", None, "orders", "orders"])),
        _with("partition", pa.array([3, 3, 3, 4], pa.int32())),
        _with("offset", pa.array([10, 11, 11, 20])),
        _with("offset", pa.array([10, 12, 11, 20])),
        _with("offset", pa.array([10, 11, 12, 25])),
        _with("offset", pa.array([9, 11, 12, 20])),
        _with("offset", pa.array([10, None, 12, 20])),
        _with("timestamp", pa.array([-2000] * 4, pa.timestamp("us", tz="UTC"))),
        lambda rows: pa.concat_batches([rows, rows]),
    ],
)
def test_rows_that_are_not_row_by_row_are_refused(
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> None:
    with pytest.raises(ClusterError) as raised:
        answer_to(range_of(RECORDS, first=10, end=25), change)
    assert raised.value.code == "ROW_INVALID"


def test_rows_of_a_later_batch_follow_those_before() -> None:
    one = range_of(RECORDS)
    encoder = RangeEncoder([one], codec=Codec.NONE, max_bytes=1 << 20, now_ms=NOW)
    (rows,) = rows_of_range(one)
    encoder.add(rows.slice(1))
    with pytest.raises(ClusterError, match="repeats rows"):
        encoder.add(rows.slice(0, 1))


RANGES: Final = [
    range_of(RECORDS, number=1, partition=1, end=25),
    range_of(RECORDS, number=2, partition=2, end=25),
    range_of(RECORDS, number=3, partition=2, first=25, end=30),
    range_of(
        [Record(at, 5, None, b"%d" % at, ()) for at in range(30, 40)],
        number=4,
        partition=2,
        first=30,
    ),
]


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("kept", [{1, 2, 3, 4}, {1, 4}, {2}, {4}, set()])
def test_a_task_answers_several_ranges(size: int, kept: set[int]) -> None:
    """Spark may split the rows of several ranges into other batches, and a filter may drop all rows
    of a range. Each row still gets into the answer of its own range.
    """
    encoder = RangeEncoder(RANGES, codec=Codec.LZ4, max_bytes=1 << 20, now_ms=NOW)
    given = [rows for one in RANGES if one.number in kept for rows in rows_of_range(one)]
    table = pa.Table.from_batches(given, arrow_schema(COLUMNS)).combine_chunks()
    for rows in table.to_batches(max_chunksize=size):
        encoder.add(rows)
    answers = encoder.answers()
    assert [(one.number, one.end) for one in answers] == [(1, 25), (2, 25), (3, 30), (4, 40)]
    expected = {1: RECORDS, 2: RECORDS, 3: [], 4: source_records(RANGES[3])}
    for answer in answers:
        assert records_of(answer) == (expected[answer.number] if answer.number in kept else [])


@pytest.mark.parametrize(("first", "end"), [(0, 25), (5, 11), (20, 30)])
def test_ranges_with_the_same_records_are_refused(first: int, end: int) -> None:
    """Two ranges have records in common, because one of them was withdrawn. The withdrawn range has
    no rows, but would get rows of the other one. So the task must refuse both.
    """
    withdrawn = range_of(RECORDS, number=0, partition=1, first=first, end=end)
    for ranges in ([withdrawn, *RANGES], [*RANGES, withdrawn]):
        with pytest.raises(ClusterError) as raised:
            RangeEncoder(ranges, codec=Codec.LZ4, max_bytes=1 << 20, now_ms=NOW)
        assert raised.value.code == "ROW_INVALID"


def test_rows_of_an_earlier_range_are_refused() -> None:
    encoder = RangeEncoder(RANGES, codec=Codec.LZ4, max_bytes=1 << 20, now_ms=NOW)
    first, second = (next(rows_of_range(RANGES[at])) for at in (0, 1))
    encoder.add(second)
    with pytest.raises(ClusterError, match="changes their order"):
        encoder.add(first)


def test_a_row_without_a_timestamp_gets_the_current_one() -> None:
    none = pa.array([None] * 4, pa.timestamp("us", tz="UTC"))
    answer = answer_to(range_of(RECORDS), _with("timestamp", none))
    assert {one.timestamp for one in records_of(answer)} == {NOW}


def test_damaged_bytes_are_refused() -> None:
    data = bytearray(batches_of(RECORDS))
    data[-1] ^= 1
    with pytest.raises(CorruptData):
        list(rows_of_range(range_of(RECORDS, batches=bytes(data))))
