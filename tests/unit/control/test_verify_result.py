"""The result of `twinlog verify`: one word, an exit code, a digest, and lines for people."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.cli.commands.verify import explained_gaps, problems
from twinlog.control.verify import result, verification
from twinlog.control.verify.result import (
    GroupStanding,
    ResultWriter,
    VerifiedFlow,
    VerifiedGroup,
    VerifiedPartition,
    VerifyAnswer,
    VerifyRequest,
    digest,
    run_of,
    worst,
)
from twinlog.encoded import encoded
from twinlog.errors import FlowError, Unauthorized
from twinlog.mirror.findings import Span
from twinlog.mirror.verify.difference import MOST_KEPT, Compared, DifferenceKind, GapCause
from twinlog.model import TopicPartition

HERE = TopicPartition("orders", 0)
THERE = TopicPartition("A.orders", 0)
GROUP = VerifiedGroup(
    group="billing",
    source=HERE,
    target=THERE,
    committed=20,
    translated_offset=18,
    target_committed=18,
)


def partition(compared: Compared | None = None, why_not: str = "") -> VerifiedPartition:
    return VerifiedPartition(
        source=HERE, target=THERE, compared=compared or Compared(), why_not=why_not
    )


def with_one(kind: DifferenceKind = DifferenceKind.MISSING) -> Compared:
    out = Compared()
    out.add_difference(kind, Span(3, 5), None, 2, "why")
    return out


@pytest.mark.parametrize(
    ("answers", "expected", "exit_code"),
    [
        ([], VerifyAnswer.IDENTICAL, 0),
        ([VerifyAnswer.IDENTICAL], VerifyAnswer.IDENTICAL, 0),
        ([VerifyAnswer.IDENTICAL, VerifyAnswer.UNKNOWN], VerifyAnswer.UNKNOWN, 2),
        (
            [VerifyAnswer.UNKNOWN, VerifyAnswer.DIFFERENT, VerifyAnswer.IDENTICAL],
            VerifyAnswer.DIFFERENT,
            1,
        ),
    ],
    ids=["none", "one", "unknown", "different"],
)
def test_the_worst_answer_counts(
    answers: Iterable[VerifyAnswer], expected: VerifyAnswer, exit_code: int
) -> None:
    found = worst(list(answers))
    assert (found, found.exit_code) == (expected, exit_code)


def test_a_difference_takes_precedence_over_an_uncompared_rest() -> None:
    assert partition(with_one(), "UNREACHABLE").answer is VerifyAnswer.DIFFERENT
    assert partition(None, "UNREACHABLE").answer is VerifyAnswer.UNKNOWN


@pytest.mark.parametrize(
    ("stands", "standing", "is_wrong"),
    [
        (18, GroupStanding.EQUAL, False),
        (19, GroupStanding.AHEAD, True),
        (17, GroupStanding.BEHIND, False),
        (None, GroupStanding.ABSENT, False),
    ],
    ids=["equal", "ahead", "behind", "absent"],
)
def test_only_a_group_that_would_skip_records_is_wrong(
    stands: int | None, standing: GroupStanding, is_wrong: bool
) -> None:
    group = replace(GROUP, target_committed=stands)
    assert (group.standing, group.is_wrong) == (standing, is_wrong)
    flow = VerifiedFlow(flow="A->B", partitions=[partition()], groups=[group])
    assert (flow.answer is VerifyAnswer.DIFFERENT) is is_wrong
    assert not replace(group, left_alone="in use on the target").is_wrong


def test_lines_name_ranges_of_both_sides() -> None:
    compared = with_one()
    compared.add_equal(1)
    compared.add_difference(DifferenceKind.DIFFERENT, Span(7, 8), Span(6, 7), 1)
    compared.gaps[GapCause.MARKERS] += 1200
    flow = VerifiedFlow(
        flow="A->B", partitions=[partition(compared)], groups=[replace(GROUP, target_committed=19)]
    )
    assert list(problems(flow)) == [
        "missing: orders-0 [3, 5), 2 records: why",
        "different: orders-0 [7, 8) / A.orders-0 [6, 7), 1 record",
        "group billing is at 19 in A.orders-0, but its translated offset is 18 (orders-0 20): it "
        "would skip records",
    ]
    assert list(explained_gaps(flow)) == ["1,200 transaction markers"]


def test_pending_records_are_reported_while_a_mirror_runs() -> None:
    compared = Compared()
    compared.pending = Span(9, 12)
    flow = VerifiedFlow(flow="A->B", is_led=True, partitions=[partition(compared)])
    assert flow.answer is VerifyAnswer.IDENTICAL
    assert list(explained_gaps(flow)) == ["not copied yet by the running mirror: orders-0 [9, 12)"]


def test_ranges_continue_until_something_is_equal() -> None:
    found = Compared()
    for offset in range(5):
        found.add_difference(DifferenceKind.EXTRA, None, Span(offset, offset + 1), 1)
    found.add_equal(1)
    found.add_difference(DifferenceKind.EXTRA, None, Span(6, 7), 1)
    found.add_difference(DifferenceKind.MISSING, Span(6, 7), None, 1)
    assert [(one.kind, one.target, one.records) for one in found.differences] == [
        (DifferenceKind.EXTRA, Span(0, 5), 5),
        (DifferenceKind.EXTRA, Span(6, 7), 1),
        (DifferenceKind.MISSING, None, 1),
    ]


def test_ranges_of_a_log_that_is_wrong_everywhere_are_counted() -> None:
    found = Compared()
    for offset in range(MOST_KEPT + 3):
        found.add_difference(DifferenceKind.EXTRA, None, Span(offset, offset + 1), 1)
        found.add_equal(1)
    assert (len(found.differences), found.unlisted_count) == (MOST_KEPT, 3)


def test_digest_is_of_all_but_itself() -> None:
    report = {"answer": "identical", "flows": [{"b": 1, "a": 2}]}
    whole = digest(report)
    assert digest({**report, "sha256": whole}) == whole
    assert digest({"flows": [{"a": 2, "b": 1}], "answer": "identical"}) == whole
    assert digest({**report, "answer": "different"}) != whole


def test_a_group_without_a_response_is_not_called_identical() -> None:
    unasked = FlowError("its coordinator is away", code="UNREACHABLE")
    survey = SimpleNamespace(
        selected=(SimpleNamespace(name="billing"),), offsets={"billing": {}}, counterparts={}
    )
    for here, there in (({}, unasked), (unasked, {})):
        flow = VerifiedFlow(flow="A->B", partitions=[partition()])
        survey.offsets = {"billing": here}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(verification, "survey_groups", lambda *_: survey)
            nobody = cast("Any", None)
            verification.verify_groups(nobody, nobody, nobody, {"billing": there}, flow)
        assert (flow.answer, len(flow.notes)) == (VerifyAnswer.UNKNOWN, 1)


ASKED = VerifyRequest(began_ms=5, topics="orders.*", since=None, until=None, deep=True)


def test_the_recorded_counts_equal_the_report() -> None:
    ahead = replace(GROUP, target_committed=19)
    parts = [partition(with_one()), partition(None, "UNREACHABLE")]
    found = VerifiedFlow(flow="A->B", partitions=parts, groups=[GROUP, ahead])
    run = run_of(found, ASKED)
    assert (run.answer, run.began_ms, run.topics, run.deep) == ("different", 5, "orders.*", True)
    assert (run.partitions, run.not_compared, run.ranges) == (2, 1, {"missing": 1})
    assert (run.groups, run.configs) == (1, 0)
    assert run.sha256 == digest(encoded(found))


def test_a_user_who_may_not_record_gets_a_line_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Unauthorized("grant DESCRIBE")

    monkeypatch.setattr(result, "flow_setup", lambda _: SimpleNamespace(target=None))
    monkeypatch.setattr(result, "prompt_client", refuse)
    config = cast("Any", SimpleNamespace(flow="A->B"))
    found = VerifiedFlow(flow="A->B", partitions=[partition()])
    (line,) = ResultWriter([config], ASKED, is_off=False).add(found)
    assert line.startswith("A->B: the result is not recorded: grant DESCRIBE")
    assert ResultWriter([config], ASKED, is_off=True).add(found) == []
    nothing = VerifiedFlow(flow="A->B")
    assert ResultWriter([config], ASKED, is_off=False).add(nothing) == [], (
        "it has none of the topics"
    )


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under a user ID that has no name. The result then has the number, so that
    the result of hours is not lost.
    """

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 10002")

    monkeypatch.setattr(getpass, "getuser", nameless)
    monkeypatch.setattr(os, "getuid", lambda: 10002)
    assert run_of(VerifiedFlow(flow="A->B"), ASKED).who.startswith("10002@")
