"""The rows of the state topic that list the topics which the source had when a flow first read
it.
"""

from __future__ import annotations

import itertools

import pytest

from twinlog.errors import CorruptData
from twinlog.mirror.state.copies import copy_rows
from twinlog.mirror.state.generations import fan_producers, winning_claims
from twinlog.survey.newcomers import TOPICS_A_ROW, first_survey, first_survey_rows

FLOW = "A->B"
SEEN = frozenset({("a" * 32, 0), ("a" * 32, 1), ("orders", 0)})
LATER = SEEN | {("b" * 32, 0)}
MANY = frozenset((f"topic-{number}", 0) for number in range(2 * TOPICS_A_ROW + 1))


def test_what_was_written_is_read() -> None:
    assert first_survey(FLOW, first_survey_rows(FLOW, SEEN)) == SEEN
    assert first_survey(FLOW, first_survey_rows(FLOW, MANY)) == MANY
    assert first_survey(FLOW, first_survey_rows(FLOW, ())) == frozenset()
    assert first_survey(FLOW, first_survey_rows("B->A", SEEN)) is None
    assert first_survey(FLOW, []) is None


def test_first_whole_survey_counts_despite_later_ones() -> None:
    assert (
        first_survey(FLOW, [*first_survey_rows(FLOW, SEEN), *first_survey_rows(FLOW, LATER)])
        == SEEN
    )


def test_survey_that_is_not_whole_counts_for_nothing() -> None:
    broken = first_survey_rows(FLOW, MANY)
    for missing in range(len(broken)):
        rest = broken[:missing] + broken[missing + 1 :]
        assert first_survey(FLOW, rest) is None
        assert first_survey(FLOW, [*rest, *first_survey_rows(FLOW, SEEN)]) == SEEN


def test_concurrent_writers_are_not_mixed() -> None:
    mine, other = first_survey_rows(FLOW, MANY), first_survey_rows(FLOW, MANY | LATER)
    for order in set(itertools.permutations([0] * len(mine) + [1] * len(other))):
        rows = {0: iter(mine), 1: iter(other)}
        log = [next(rows[who]) for who in order]
        first = MANY if order[-1] == 1 else MANY | LATER
        assert first_survey(FLOW, log) == first


def test_lost_response_and_repeated_row() -> None:
    rows = first_survey_rows(FLOW, MANY)
    assert first_survey(FLOW, [rows[0], *rows]) == MANY


def test_rows_of_other_flows_are_not_parsed() -> None:
    newer = (b'["flow","B->A","intent"]', b'{"v":99}')
    assert first_survey(FLOW, [newer, (b"\xff", b""), *first_survey_rows(FLOW, SEEN)]) == SEEN
    with pytest.raises(CorruptData):
        first_survey(FLOW, [(first_survey_rows(FLOW, SEEN)[0][0], b"{")])


def test_readers_of_other_rows_ignore_them() -> None:
    rows = first_survey_rows(FLOW, SEEN)
    assert (winning_claims(rows), copy_rows(rows), fan_producers(rows)) == ({}, {}, {})
