"""Rows with a flow's events are read back within their limits. Invalid rows are rejected."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from tests.support.snapshots import DIVERGED, HAPPENED, PUBLISHED
from twinlog.errors import CorruptData
from twinlog.mirror.state.published import (
    LONGEST_MESSAGE,
    MOST_CHARACTERS,
    MOST_EVENTS,
    published_events,
    published_status,
    within_bounds,
)

EVENT = json.loads(HAPPENED.encode()[1])["events"][0]


def test_rows_of_all_leaders_are_read_beside_the_status() -> None:
    other = structs.replace(HAPPENED, host="west-1")
    rows = [HAPPENED.encode(), PUBLISHED.encode(), other.encode()]
    assert published_events("A->B", rows) == (HAPPENED, other)
    assert published_events("C->B", rows) == ()
    assert published_events("A->B", [PUBLISHED.encode()]) == (), "of an earlier release"
    assert published_status("A->B", rows) == PUBLISHED


def test_a_row_has_its_run_unless_an_earlier_release_wrote_it() -> None:
    key, value = structs.replace(HAPPENED, run="5f2c").encode()
    older = json.loads(value)
    assert older.pop("run") == "5f2c"
    rows = [(key, value), (key, json.dumps(older).encode())]
    assert [one.run for one in published_events("A->B", rows)] == ["5f2c", ""]


@pytest.mark.parametrize(
    "change",
    [
        {"events": [{}]},
        {"events": 5},
        {"pid": "1"},
        {"host": None},
        {"v": 99},
        {"events": [{**EVENT, "at_ms": 10**15}]},
        {"events": [{**EVENT, "level": "<b>"}]},
        {"events": [{**EVENT, "at_ms": -(10**14) + 1}]},
        {"events": [{**EVENT, "person": "x" * MOST_CHARACTERS}]},
        {"host": "x" * (MOST_CHARACTERS + 1)},
        {"run": "x" * (MOST_CHARACTERS + 1)},
        {"run": 5},
    ],
)
def test_invalid_rows_are_an_error_if_there_are_no_valid_ones(
    change: dict[str, object],
) -> None:
    key, value = HAPPENED.encode()
    bad = key, json.dumps(json.loads(value) | change).encode()
    assert published_events("A->B", [bad, HAPPENED.encode()]) == (HAPPENED,)
    with pytest.raises(CorruptData):
        published_events("A->B", [bad])


def test_a_row_is_bounded_and_has_the_newest_events() -> None:
    many = [structs.replace(DIVERGED, number=n, message="no") for n in range(100)]
    assert [one.number for one in within_bounds(many)] == [*range(100 - MOST_EVENTS, 100)]
    long = [structs.replace(one, message="x" * LONGEST_MESSAGE) for one in many]
    kept = within_bounds(long)
    assert kept[-1].number == 99
    assert sum(len(one.message) for one in kept) <= MOST_CHARACTERS
    assert len(structs.replace(HAPPENED, events=kept).encode()[1]) < 5000
