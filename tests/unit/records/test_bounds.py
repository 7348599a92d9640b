"""Offsets in options, given as words, JSON, times or groups, and offsets in a checkpoint."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import ConfigError
from twinlog.model import TopicPartition
from twinlog.records.bounds import (
    Bound,
    BoundKind,
    from_json,
    parse_assignment,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
    to_json,
)

ORDERS_0, ORDERS_10 = TopicPartition("orders", 0), TopicPartition("orders", 10)


def parsed(text: str) -> Bound:
    return parse_offsets("startingOffsets", text, may_use_names=True)


@pytest.mark.parametrize("word", ["earliest", "latest", " Latest "])
def test_words(word: str) -> None:
    assert parsed(word).kind == word.strip().lower()


def test_offsets_of_partitions() -> None:
    bound = parsed('{"orders": {"0": 23, "10": -2}}')
    assert bound.kind is BoundKind.OFFSETS
    assert bound.values == {ORDERS_0: 23, ORDERS_10: -2}


def test_a_group() -> None:
    assert parsed("group: billing ").group == "billing"


def test_a_time_in_iso_or_in_milliseconds() -> None:
    assert parsed("time:2026-01-31T12:00:00Z").time_ms == 1769860800000
    assert parsed("time:1769860800000").time_ms == 1769860800000
    assert not parsed("time:1769860800000").needs_match


def test_times_of_partitions() -> None:
    bound = parse_timestamps("startingOffsetsByTimestamp", '{"orders":{"0":5}}', needs_match=True)
    assert (bound.kind, bound.values, bound.time_ms) == (BoundKind.TIMES, {ORDERS_0: 5}, None)
    assert parse_timestamp("startingTimestamp", "5", needs_match=True).time_ms == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a valid position; write earliest, latest (streams), time:"),
        ("erliest", "is not a valid position"),
        ("group:", "names no group"),
        ("time:yesterday", "is not a time"),
        ("time:2026-01-31T12:00:00", "has no time zone"),
        ("{", "it is not valid JSON"),
        ('{"orders": 5}', "topic orders has no object"),
        ('{"orders": {"zero": 5}}', "'zero' is not a partition number"),
        ('{"orders": {"-1": 5}}', "'-1' is not a partition number"),
        ('{"orders": {"99999999999": 5}}', "is not a partition number"),
        ('{"orders": {"0": true}}', "True is not a whole number"),
        ('{"orders": {"0": 1.5}}', "1.5 is not a whole number"),
        ('{"orders": {"0": 99999999999999999999}}', "is not a whole number"),
        ('{"orders": {"0": -3}}', "write -2 for earliest, -1 for latest"),
        ("[" * 100_000, "is not a valid position"),
        ('{"a":' * 100_000, "it is not valid JSON"),
    ],
    ids=[*"abcdefghijklmnop"],
)
def test_invalid_places(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="option startingOffsets: ") as error:
        parsed(text)
    assert said in error.value.message


@pytest.mark.parametrize("text", ["now", "-5", "1" * 30, "\u0665"], ids=["a", "b", "c", "d"])
def test_invalid_timestamps(text: str) -> None:
    with pytest.raises(ConfigError, match="write milliseconds since 1970"):
        parse_timestamp("startingTimestamp", text, needs_match=True)


def test_a_group_has_no_end() -> None:
    with pytest.raises(ConfigError, match="is not a valid position"):
        parse_offsets("endingOffsets", "group:billing", may_use_names=False)


def test_assigned_partitions() -> None:
    assert parse_assignment("assign", '{"orders": [10, 0, 0]}') == (ORDERS_0, ORDERS_10)


@pytest.mark.parametrize(
    "text",
    ["orders", "{}", '{"orders": 0}', '{"orders": ["0"]}', '{"orders": [-1]}'],
    ids=[*"abcde"],
)
def test_invalid_assignments(text: str) -> None:
    with pytest.raises(ConfigError, match="option assign: "):
        parse_assignment("assign", text)


@given(
    st.dictionaries(st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 12)), st.integers(0))
)
def test_offsets_of_a_checkpoint_are_read_back(offsets: dict[tuple[str, int], int]) -> None:
    known = {TopicPartition(*tp): offset % 2**62 for tp, offset in offsets.items()}
    text = json.dumps(to_json(known))
    assert from_json(json.loads(text)) == known
    backwards = dict(reversed(known.items()))
    assert json.dumps(to_json(backwards)) == text, "Spark compares the text"


def test_a_checkpoint_is_written_as_sparks_own_kafka_source_writes_it() -> None:
    assert to_json({ORDERS_10: 1, ORDERS_0: 23}) == {"orders": {"0": 23, "10": 1}}
    assert [*to_json({ORDERS_10: 1, ORDERS_0: 23})["orders"]] == ["0", "10"]
