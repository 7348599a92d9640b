"""Pushed filters reduce the records that are read, but never leave out a row that they accept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from twinlog.model import TopicPartition
from twinlog.records.batch_reader import RowBounds, bounds_of
from twinlog.records.gaps import LogBounds, OffsetRange, find_losses

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TESTS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda have, value: have == value,
    EqualNullSafe: lambda have, value: have == value,
    GreaterThan: lambda have, value: have > value,
    GreaterThanOrEqual: lambda have, value: have >= value,
    LessThan: lambda have, value: have < value,
    LessThanOrEqual: lambda have, value: have <= value,
    In: lambda have, values: have in values,
    StringStartsWith: lambda have, value: have.startswith(value),
    StringContains: lambda have, value: value in have,
}
COMPARED = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
TOPICS = st.sampled_from(["orders", "order", "a"])
NUMBERS = st.integers(-1, 6)


def filters_on(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    compared = st.builds(
        lambda kind, value: kind((column,), value), st.sampled_from(COMPARED), values
    )
    member = st.lists(values, max_size=3).map(lambda some: In((column,), tuple(some)))
    return compared | member


FILTERS = st.lists(
    filters_on("offset", NUMBERS)
    | filters_on("partition", NUMBERS)
    | filters_on("topic", TOPICS)
    | TOPICS.map(lambda text: StringStartsWith(("topic",), text[:2]))
    | TOPICS.map(lambda text: StringContains(("topic",), text))
    | filters_on("timestamp", NUMBERS.map(lambda ms: EPOCH + timedelta(milliseconds=ms))),
    max_size=4,
)
ROWS = st.tuples(TOPICS, NUMBERS.map(abs), NUMBERS.map(abs), NUMBERS)


def admits(filters: list[Filter], row: dict[str, Any]) -> bool:
    return all(
        TESTS[type(one)](row[one.attribute[0]], one.value)  # type: ignore[attr-defined]
        for one in filters
    )


@given(FILTERS, st.lists(ROWS, max_size=8))
def test_no_row_is_lost(filters: list[Filter], rows: list[tuple[str, int, int, int]]) -> None:
    bounds = bounds_of(filters)
    for topic, partition, offset, ms in rows:
        row = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": EPOCH + timedelta(milliseconds=ms),
        }
        if not admits(filters, row):
            continue
        tp = TopicPartition(topic, partition)
        assert bounds.admit(tp)
        wanted = bounds.within(OffsetRange(tp=tp, first=0, end=100))
        assert wanted.first <= offset < wanted.end
        assert bounds.least_ms is None or bounds.least_ms <= ms


def test_topics_and_partitions_are_left_out() -> None:
    bounds = bounds_of(
        [EqualTo(("topic",), "orders"), In(("partition",), (0, 2)), LessThan(("partition",), 2)]
    )
    parts = [TopicPartition(topic, part) for topic in ("orders", "other") for part in range(3)]
    assert [tp for tp in parts if bounds.admit(tp)] == [TopicPartition("orders", 0)]


def test_offsets_and_times_narrow_a_range() -> None:
    day = datetime(2026, 1, 31, tzinfo=UTC)
    bounds = bounds_of(
        [
            GreaterThan(("offset",), 10),
            LessThanOrEqual(("offset",), 20),
            GreaterThanOrEqual(("timestamp",), day + timedelta(microseconds=1)),
        ]
    )
    wanted = OffsetRange(tp=TopicPartition("orders", 0), first=0, end=100)
    within = bounds.within(wanted)
    assert (within.first, within.end) == (11, 21)
    assert bounds.within(wanted, 15).first == 15
    assert bounds.least_ms == int(day.timestamp() * 1000), "down, to what brokers compare"


@pytest.mark.parametrize("filters", [[], [GreaterThan(("offset",), 10)]], ids=["none", "one"])
def test_a_range_that_begins_after_the_log_is_not_cut_to_an_empty_one(
    filters: list[Filter],
) -> None:
    wanted = OffsetRange(tp=TopicPartition("orders", 0), first=1000, end=100)
    within = bounds_of(filters).within(wanted)
    (loss,) = find_losses(within, LogBounds(start=0, end=100))
    assert (loss.code, loss.lost) == ("TRUNCATED", (100, 1000))


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("topic",), "orders")),
        IsNotNull(("offset",)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        LessThan(("timestamp",), EPOCH),
        GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001 (without a zone)
        GreaterThan(("offset",), 1.5),
    ],
    ids=["not", "null", "value", "nested", "upper", "naive", "float"],
)
def test_unknown_filters_narrow_nothing(one: Filter) -> None:
    assert bounds_of([one]) == RowBounds()
