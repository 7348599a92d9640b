"""The final report of the benchmark, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from benchmarks.report import Report
from benchmarks.results import MIRROR_MAKER, TWINLOG, Latency, RunResult
from benchmarks.rows import make_rows
from benchmarks.scale import QUICK

RUNS = [
    RunResult(round=1, case="backlog", system=MIRROR_MAKER, alias="A1", records_per_s=60_000),
    RunResult(
        round=1,
        case="backlog",
        system=TWINLOG,
        alias="A2",
        records_per_s=400_000,
        excess_records=3,
        phases={"Spark's JVM started": 0.4, "first record on the target": 6.0},
    ),
    RunResult(round=1, case="unprotected", system=TWINLOG, alias="A3", records_per_s=100_000),
    RunResult(round=1, case="unprotected", system=MIRROR_MAKER, alias="A4", failure="no brokers"),
]


def report(runs: list[RunResult] = RUNS) -> Report:
    cases = ["backlog", "unprotected"]
    return Report(
        scale=QUICK,
        rounds=1,
        cases=cases,
        seconds=90,
        runs=runs,
        rows=make_rows(runs, cases),
        floor=Latency(records=9, expected=9, p50=1, p99=4, p99_9=20, largest=30),
    )


def test_people_read_goals_failures_duplicates_and_costs() -> None:
    text = report().text()
    assert "6.67x  at least 5x   met" in text
    assert "FAILED: round 1, unprotected, MirrorMaker 2: no brokers" in text
    assert "3 records twice on the target: round 1, backlog, Twinlog" in text
    assert "copies 100,000 records/s instead of 400,000 (0.25x)" in text
    assert "without a copier: p50 1.0, p99 4.0, p99.9 20.0 ms" in text


def test_reasons_why_runs_are_less_comparable_are_named() -> None:
    assert "NOT COMPARABLE" not in report().text()
    disturbed = replace(RUNS[1], used_by_others=0.34, processes_started_in_window=0)
    text = report([RUNS[0], disturbed]).text()
    assert "(round, case, system, share): 1 backlog Twinlog 34%" in text
    assert "no lease change was seen inside the window: round 1" in text


def test_records_that_did_not_arrive_are_named() -> None:
    taken = Latency(records=900, expected=1000, p50=1, p99=4, p99_9=20, largest=30)
    lossy = RunResult(round=2, case="latency", system=TWINLOG, alias="A9", latency=taken)
    assert "100 records never arrived" in report([*RUNS, lossy]).text()


def test_people_read_where_the_start_goes() -> None:
    lines = report().text().splitlines()
    at = lines.index(next(line for line in lines if line.startswith("start of Twinlog")))
    assert [" ".join(line.split()) for line in lines[at + 2 : at + 4]] == [
        "Spark's JVM started 0.4 s",
        "first record on the target 6.0 s",
    ]


def test_programs_read_rows_runs_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bench.json"
    report().write(path)
    read = json.loads(path.read_text())
    assert (read["command"], read["version"]) == ("bench", 1)
    assert read["rows"][0]["verdict"] == "met"
    assert read["runs"][3] == {
        "round": 1,
        "case": "unprotected",
        "system": "MirrorMaker 2",
        "alias": "A4",
        "failure": "no brokers",
    }
    assert read["settings"]["latency_rate"] == 1000
    assert read["machine"]["cores"] >= 1
