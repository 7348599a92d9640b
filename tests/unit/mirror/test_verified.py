"""The state row with the result of a verification."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from twinlog.mirror.state.copies import MappedCopies, copy_rows, mapped_copies
from twinlog.mirror.state.generations import (
    fan_producers,
    producers_of,
    producers_of_others,
    winning_claims,
)
from twinlog.mirror.state.held_producers import is_held_row
from twinlog.mirror.state.intents import FlowIntents, flow_intents, is_intent_row
from twinlog.mirror.state.rows import RowFolder
from twinlog.mirror.state.state_row import encode_row
from twinlog.mirror.state.verified import VerifyRun, verify_runs
from twinlog.survey.newcomers import first_survey

WHOLE = VerifyRun(
    flow="A->B",
    began_ms=1000,
    ended_ms=2000,
    who="ann@ops-1",
    answer="different",
    topics=None,
    since=None,
    until=None,
    deep=True,
    partitions=3,
    equal_records=70,
    ranges={"missing": 1, "shifted": 2},
    not_compared=0,
    configs=1,
    groups=2,
    sha256="0" * 64,
)
PART = structs.replace(WHOLE, began_ms=1500, topics="orders.*", answer="identical", ranges={})


def test_a_partial_result_does_not_replace_the_whole_one() -> None:
    rows = [WHOLE.encode(), PART.encode()]
    assert verify_runs("A->B", rows) == (PART, WHOLE)
    assert verify_runs("A->C", rows) == ()
    later = structs.replace(WHOLE, began_ms=3000, answer="identical")
    assert verify_runs("A->B", [*rows, later.encode()]) == (later, PART)


def test_the_later_begun_result_counts_and_a_deleted_one_is_gone() -> None:
    late, long = structs.replace(WHOLE, began_ms=1500), structs.replace(WHOLE, ended_ms=9000)
    assert verify_runs("A->B", [late.encode(), long.encode()]) == (late,)
    assert verify_runs("A->B", [late.encode(), (late.encode()[0], None)]) == ()


def test_a_clock_that_is_ahead_hides_no_later_run() -> None:
    ahead = structs.replace(
        WHOLE, began_ms=WHOLE.began_ms + 10**11, ended_ms=WHOLE.ended_ms + 10**11
    )
    assert verify_runs("A->B", [ahead.encode(), WHOLE.encode()]) == (WHOLE,)
    assert not WHOLE.is_outdated_by(ahead), "it is written"


@pytest.mark.parametrize("value", [b"", b"\xff", b'{"v":1}', b'{"v":2}', b"[]"])
def test_an_unreadable_result_is_ignored(value: bytes) -> None:
    rows = [PART.encode(), (WHOLE.encode()[0], value), (None, b"x"), (b"\xff", b"x")]
    assert verify_runs("A->B", rows) == (PART,)


def test_additional_fields_of_a_later_release_are_ignored() -> None:
    values = {name: getattr(PART, name) for name in PART.__struct_fields__ if name != "flow"}
    row = encode_row(["flow", "A->B", "verified", "part"], values | {"new": 1})
    assert verify_runs("A->B", [row]) == (PART,)
    changes: list[dict[str, Any]] = [{"partitions": "3"}, {"ranges": []}, {"who": None}]
    for change in [*changes, {"ranges": {"missing": True}}]:
        wrong = encode_row(["flow", "A->B", "verified", "part"], values | change)
        assert verify_runs("A->B", [wrong]) == ()


def test_other_readers_of_the_state_ignore_it() -> None:
    """Readers of other rows, in all releases, ignore the row of a verification, because they do not
    know the kind in its key.
    """
    rows = [WHOLE.encode(), PART.encode()]
    folder = RowFolder()
    for key, value in rows:
        folder.add(key, value)
        assert not is_intent_row(key, "A->B")
        assert not is_held_row(key, "A->B")
    assert folder.rows().producers == frozenset()
    assert flow_intents("A->B", rows) == FlowIntents()
    assert mapped_copies("A->B", rows) == MappedCopies()
    assert winning_claims(rows) == {} == fan_producers(rows)
    assert producers_of("A->B", rows) == frozenset() == producers_of_others("A->B", rows)
    assert not copy_rows(rows)
    assert first_survey("A->B", rows) is None
