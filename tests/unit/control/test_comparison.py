"""The output of `twinlog diff` for many topics has totals first, and then a limited number of
rows.
"""

from __future__ import annotations

import pytest

from twinlog.cli.commands.diff import SHOWN_EACH, line, parts
from twinlog.cli.terminal.tables import write_all
from twinlog.control.compare import Aspect, Deviation, FlowComparison, Total

MANY = 10_000


def missing(number: int, left_alone: str = "") -> Deviation:
    return Deviation(
        aspect=Aspect.TOPIC,
        name=f"orders-{number}",
        source="1 partition",
        target="missing",
        left_alone=left_alone,
    )


@pytest.fixture
def comparison() -> FlowComparison:
    out = FlowComparison(flow="A->B")
    out.add(Aspect.TOPIC, 2 * MANY, [missing(n, "" if n % 2 else "excluded") for n in range(MANY)])
    out.add(Aspect.CONFIG, MANY, [])
    out.notes.append("ACLs are not compared: no")
    return out


def test_totals_count_differences_and_ignored_ones(comparison: FlowComparison) -> None:
    half = MANY // 2
    assert comparison.totals() == {
        Aspect.TOPIC: Total(compared=2 * MANY, different=half, left_alone=half),
        Aspect.CONFIG: Total(compared=MANY, different=0, left_alone=0),
    }


def test_many_are_readable_and_programs_get_all(
    comparison: FlowComparison, capsys: pytest.CaptureFixture[str]
) -> None:
    write_all(parts(comparison, with_left_alone=False))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A->B: 5,000 differences"
    assert lines[2].split() == ["topics", "20,000", "5,000", "5,000"]
    assert lines[-1] == f"  and {5_000 - SHOWN_EACH:,} more (--format json has all)"
    assert len(lines) < SHOWN_EACH + 10
    body = comparison.as_json(with_left_alone=False)
    assert (len(body["deviations"]), body["is_equal"]) == (5_000, False)
    assert len(comparison.as_json(with_left_alone=True)["deviations"]) == MANY


def test_ignored_differences_have_a_reason(
    comparison: FlowComparison, capsys: pytest.CaptureFixture[str]
) -> None:
    write_all(parts(comparison, with_left_alone=True))
    assert "excluded" in capsys.readouterr().out


def test_one_line_names_the_item_and_both_sides() -> None:
    one = Deviation(
        aspect=Aspect.CONFIG, name="orders", detail="retention.ms", source="1", target="2"
    )
    assert line(one) == "configs: orders retention.ms: 1 / 2"
