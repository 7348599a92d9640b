"""What people and programs are told at the end."""

from __future__ import annotations

import json
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


def report(load: float = 0.0) -> Report:
    cases = ["backlog", "unprotected"]
    return Report(
        scale=QUICK,
        rounds=1,
        cases=cases,
        seconds=90,
        linger="linger 0",
        runs=RUNS,
        rows=make_rows(RUNS, cases, "linger 0"),
        load_at_start=load,
        floor=Latency(records=9, expected=9, p50=1, p99=4, p99_9=20, largest=30),
    )


def test_people_read_goals_failures_duplicates_and_costs() -> None:
    text = report().text()
    assert "6.67x  at least 5x   met" in text
    assert "FAILED: round 1, unprotected, MirrorMaker 2 : no brokers" in text
    assert "3 records twice on the target: round 1, backlog, Twinlog" in text
    assert "copies 100,000 records/s instead of 400,000 (0.25x)" in text
    assert "without a copier: p50 1.0, p99 4.0, p99.9 20.0 ms" in text


def test_a_busy_machine_is_named() -> None:
    assert "the machine was busy" not in report().text()
    assert "the machine was busy before the start (load 3.2)" in report(3.2).text()


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
