"""The rows that are computed from a benchmark's runs, and the table of these rows."""

from __future__ import annotations

import pytest

from benchmarks.results import MIRROR_MAKER, TWINLOG, Latency, RunResult
from benchmarks.rows import Goal, Row, make_rows
from benchmarks.scale import CASES, FULL, QUICK, Scale
from benchmarks.table import render_rows, render_table


def backlog(system: str, rate: float, *, number: int = 1, failure: str = "") -> RunResult:
    return RunResult(
        round=number,
        case="backlog",
        system=system,
        alias="A1",
        failure=failure,
        records_per_s=rate,
        cpu_s_per_gb=rate / 1000,
        peak_pss_bytes=int(rate) * 2**20,
        first_record_s=rate / 10,
    )


def steady(system: str, p50: float, case: str) -> RunResult:
    taken = Latency(records=9, expected=9, p50=p50, p99=2 * p50, p99_9=4 * p50, largest=9 * p50)
    return RunResult(round=1, case=case, system=system, alias="A1", latency=taken)


def row(rows: list[Row], case: str, name: str) -> Row:
    return next(row for row in rows if (row.case, row.name) == (case, name))


def test_a_row_is_made_of_the_medians_of_the_rounds() -> None:
    runs = [backlog(MIRROR_MAKER, rate) for rate in (100, 900, 200)]
    runs += [backlog(TWINLOG, rate) for rate in (1, 1000, 1400)]
    found = row(make_rows(runs, ["backlog"]), "backlog", "throughput")
    assert (found.theirs, found.ours, found.ratio) == (200, 1000, 5)
    assert found.verdict == "met"


def test_a_failed_run_counts_for_nothing() -> None:
    runs = [backlog(MIRROR_MAKER, 100), backlog(TWINLOG, 400), backlog(TWINLOG, 9, failure="no")]
    found = row(make_rows(runs, ["backlog"]), "backlog", "throughput")
    assert (found.ours, found.verdict) == (400, "MISSED")


def test_a_side_that_did_not_run_leaves_a_gap() -> None:
    found = row(make_rows([backlog(TWINLOG, 4)], ["backlog"]), "backlog", "throughput")
    assert (found.theirs, found.ratio, found.verdict) == (None, None, "not measured")


def test_only_the_rows_of_the_chosen_cases_are_made() -> None:
    assert {row.case for row in make_rows([], ["latency"])} == {"latency"}
    assert {row.case for row in make_rows([], list(CASES))} == set(CASES)


def groups(system: str, seconds: float | None, p99: float) -> RunResult:
    taken = Latency(records=9, expected=9, p50=p99 / 2, p99=p99, p99_9=p99, largest=p99)
    return RunResult(
        round=1,
        case="groups",
        system=system,
        alias="A1",
        checkpointed_s=seconds,
        committed_s=seconds,
        latency=taken,
    )


def test_goals_of_groups_are_bounds_of_our_number_alone() -> None:
    runs = [groups(MIRROR_MAKER, 2, 5000), groups(TWINLOG, 4.9, 900)]
    found = make_rows(runs, ["groups"])
    assert [one.verdict for one in found] == ["met", "met", "", "met"]
    assert row(found, "groups", "all groups checkpointed").ratio == pytest.approx(2.45)
    late = make_rows([groups(TWINLOG, None, 1001)], ["groups"])
    assert [one.verdict for one in late] == ["not measured", "not measured", "", "MISSED"]


def test_startup_is_taken_from_backlog_runs() -> None:
    runs = [backlog(MIRROR_MAKER, 100), backlog(TWINLOG, 80)]
    found = row(make_rows(runs, ["backlog", "startup"]), "startup", "start to first record")
    assert (found.theirs, found.ours, found.verdict) == (10, 8, "met")


def test_each_steady_case_has_its_own_rows() -> None:
    runs = [steady(MIRROR_MAKER, 6, "latency"), steady(TWINLOG, 3, "latency")]
    runs += [steady(MIRROR_MAKER, 2, "lowest"), steady(TWINLOG, 1, "lowest")]
    rows = make_rows(runs, ["latency", "lowest"])
    assert [(row(rows, case, "p50").theirs, row(rows, case, "p50").ours) for case in
            ("latency", "lowest")] == [(6, 3), (2, 1)]  # fmt: skip


def test_the_warm_up_counts_in_no_row() -> None:
    runs = [backlog(MIRROR_MAKER, 100), backlog(TWINLOG, 1, number=0), backlog(TWINLOG, 500)]
    found = row(make_rows(runs, ["backlog"]), "backlog", "throughput")
    assert (found.ours, found.verdict) == (500, "met")


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (Goal(text="", at_least=5), 5.0, True),
        (Goal(text="", at_least=5), 4.99, False),
        (Goal(text="", at_most=0.5), 0.5, True),
        (Goal(text="", at_most=0.5), 0.51, False),
    ],
)
def test_goals_include_their_bound(goal: Goal, value: float, *, met: bool) -> None:
    assert goal.met_by(value) is met


def test_the_table_aligns_numbers_right_and_names_missing_values() -> None:
    runs = [backlog(MIRROR_MAKER, 50_000), backlog(TWINLOG, 200_000)]
    lines = render_rows(make_rows(runs, ["backlog"])).splitlines()
    assert lines[0].split() == ["case", "measure", "MirrorMaker", "2", "Twinlog", "ratio", "goal"]
    assert lines[2].split()[-7:] == ["50,000", "200,000", "4.00x", "at", "least", "5x", "MISSED"]
    assert lines[0].index("Twinlog") + len("Twinlog") == lines[2].index("200,000") + 7


def test_a_table_without_rows_is_its_head() -> None:
    assert render_table(("a", "bc"), []) == "a  bc\n-  --"


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_exactly_one_lease_change_falls_into_the_window(scale: Scale) -> None:
    end = scale.warm_up_s + scale.window_s
    changes = [n * scale.lease_s for n in (1, 2, 3) if scale.warm_up_s < n * scale.lease_s < end]
    assert changes == [scale.warm_up_s + scale.window_s / 2]


def test_another_version_must_not_be_better_by_more_than_noise() -> None:
    old = "Twinlog 0a1b2c3d"
    runs = [backlog(old, 100), backlog(TWINLOG, 88), backlog(MIRROR_MAKER, 1)]
    rows = make_rows(runs, ["backlog"], reference=old)
    assert [one.theirs for one in rows] == [100, 0.1, 100]
    assert [one.verdict for one in rows] == ["MISSED", "met", "met"]
    assert render_rows(rows, old).startswith("case     measure")
    assert old in render_rows(rows, old).splitlines()[0]
