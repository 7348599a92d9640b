"""`status` shows equal partitions in one row, and the time since when a state lasts."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.snapshots import flow, partition
from twinlog.cli.commands.status import exit_code
from twinlog.cli.main import run
from twinlog.cli.terminal.status import Speeds, rows, screen, totals, troubles
from twinlog.cli.terminal.tables import since, state_style
from twinlog.codes import FlowState, PartitionState, severity_of
from twinlog.control.check import offline_status
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.status_file import RunningMirror, StatusFile
from twinlog.control.watch.verified import Verified

HOUR_MS = 3_600_000


def test_partitions_of_one_state_share_a_row() -> None:
    found = rows(
        flow(
            partition(number=0, lag=3, lag_ms=10),
            partition(number=1, lag=4, lag_ms=20),
            partition(
                number=2, state="FAILED", code="DIVERGED", message="no", since_ms=77, lag=None
            ),
        )
    )
    assert [(row.partitions, row.state, row.lag, row.lag_ms) for row in found] == [
        ("0-1", "AT_END", 7, 20),
        ("2", "FAILED", None, 0),
    ]
    assert found[1].trouble == "no [DIVERGED]"
    assert (found[0].since_ms, found[1].since_ms) == (0, 77), "unknown is not the flow's start"


def test_partitions_that_copy_and_those_at_the_end_are_one_row() -> None:
    states = ("AT_END", "COPYING", "AT_END", "STARTING")
    parts = [
        partition(number=n, state=state, copied=10, lag=n, lag_ms=n)
        for n, state in enumerate(states)
    ]
    (row,) = rows(flow(*parts, rates={"orders": 12.5}))
    assert (row.partitions, row.state, row.lag, row.copied) == ("all 4", "STARTING", 6, 40)
    assert row.records_per_s == 12.5


def test_totals_count_the_copy_and_known_values() -> None:
    one = flow(
        partition(lag=3, lag_ms=10, copied=1000, records=5),
        partition("audit", lag=None, lag_ms=None),
        rates={"orders": 7.0, "gone": 100.0},
    )
    found = totals([one, flow(flow="B->A")])
    assert (found.flows, found.topics, found.partitions) == (2, 2, 2)
    assert (found.lag, found.lag_ms, found.copied, found.records_per_s) == (3, 10, 1000, 7.0)
    assert totals([]).lag is None


def test_the_flows_problem_is_shown_once() -> None:
    away: dict[str, Any] = {
        "state": "RETRYING",
        "code": "UNREACHABLE",
        "message": "B: refused",
    }
    other: dict[str, Any] = {"state": "FAILED", "code": "DIVERGED", "message": "no"}
    one = flow(
        *(partition(name, **away) for name in ("a", "b")),
        *(partition(name, **other) for name in ("c", "d")),
        state="DEGRADED",
        reason="B: refused",
        code="UNREACHABLE",
    )
    ((first, second),) = troubles(one, rows(one))
    assert (first.topic, second.topic, first.trouble) == ("c", "d", "no [DIVERGED]")


def test_partitions_that_the_flow_speaks_for_do_not_part_from_the_others() -> None:
    """At the start of an outage, only some partitions have noticed it. If the whole flow waits
    because of the same problem (`shows_problem`), `status` shows all partitions of the topic in
    one row. If the flow's problem is a different one, that partition has its own row.
    """
    parts = partition(), partition(number=1, code="UNREACHABLE", message="B: refused")
    away = flow(*parts, state="DEGRADED", reason="B: refused", code="UNREACHABLE")
    assert [one.partitions for one in rows(away)] == ["all 2"]
    other = flow(*parts, state="DEGRADED", reason="A: refused", code="UNREACHABLE")
    assert [one.partitions for one in rows(other)] == ["0", "1"]


def mirror_of(*flows: FlowSnapshot, **changes: Any) -> RunningMirror:
    usual: dict[str, Any] = {"pid": 7, "config": "f", "written_ms": 1000}
    return RunningMirror(flows=flows, **(usual | changes))


def shown(width: int, *flows: FlowSnapshot, most: int | None = None, lagging: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    mirror = mirror_of(*flows, config="/etc/twinlog/mm2.properties")
    for part in screen([mirror], width, most, lagging=lagging, now_ms=2000):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_trouble_says_since_when() -> None:
    failed: dict[str, Any] = {"state": "FAILED", "code": "DIVERGED", "message": "no"}
    parts = [partition(name, since_ms=1900 - at, **failed) for at, name in enumerate(("a", "b"))]
    text = shown(120, flow(*parts), flow(partition(state="FAILED", code="X", message="odd")))
    assert re.search(r"2 rows \(a, b\): no \[DIVERGED\], since \S+ \(0\.1 s\)", text)
    assert re.search(r"orders-0: odd \[X\]$", text, re.MULTILINE), "it is not known"


def test_the_lag_before_an_outage_is_a_lower_bound() -> None:
    """During an outage, the source is not queried and may grow. So the lag from before the outage
    is shown as a lower bound.
    """
    away = partition(
        state="RETRYING", lag=500, code="UNREACHABLE", message="B: refused", loss_ms=1000
    )
    one = flow(
        away,
        state="DEGRADED",
        reason="B: refused",
        code="UNREACHABLE",
        loss_records=400,
        loss_ms=1000,
    )
    text = shown(120, one, flow(partition(lag=7), flow="B->A"))
    assert "lag at least 500" in text
    assert "lag 7" in text
    assert "lag at least 507" in text, "in all"
    assert "without the source, at least 400 records of the last 1.0 s would be lost" in text


def test_records_of_unknown_age_are_not_those_of_the_last_0_s() -> None:
    """The age of waiting records is unknown, for example if no mirror runs after a start that has
    copied only some topics. The age must not be shown as 0 s.
    """
    parts = partition("payments"), partition(lag=43, lag_ms=None, state="BEHIND")
    text = shown(120, flow(*parts, loss_records=43, loss_ms=0, loss_unknown=1))
    assert "without the source, 43 records would be lost; unknown for 1 partition" in text


LONG: dict[str, Any] = {
    "target_topic": "primary.a-rather-long-name-of-a-topic",
    "lag": 1_234_567,
    "lag_ms": 93_784_000,
    "copied": 1_234_567_890,
    "loss_ms": 93_784_000,
    "since_ms": 1,
}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    name = str(LONG["target_topic"]).removeprefix("primary.")
    text = shown(
        width,
        flow(
            partition("orders", copied=5),
            partition(name, **LONG),
            partition(
                name, 1, **LONG | {"state": "FAILED", "code": "DIVERGED", "message": "x" * 90}
            ),
            state="PARTLY_FAILED",
            reason="a partition has stopped, and this sentence is so long that it needs more lines",
            rates={"orders": 123_456.0, name: 98_765.0},
        ),
    )
    assert max(map(len, text.splitlines())) <= width
    for needed in ("PARTLY_FAILED", "1,234,567", "123,456", "FAILED", "DIVERGED"):
        assert needed in text, needed
    assert bool(re.search(r" copied  records/s", text)) == (width == 120)
    assert (f"\n  {name}  0 " in text) == (width > 60)


def test_rows_that_do_not_fit_are_counted_and_troubles_stay() -> None:
    parts = [partition(f"t{n}", lag=n) for n in range(40)]
    bad = partition("bad", state="FAILED", code="DIVERGED", message="no")
    text = shown(80, flow(*parts, bad), most=3)
    assert "  and 38 more rows" in text
    assert re.search(r"^  bad .*FAILED", text, re.MULTILINE)
    assert re.search(r"^  t39 ", text, re.MULTILINE)
    assert "total: 1 flow, 41 topics, 41 partitions  lag 780" in text


def test_rates_of_a_flow_on_another_host_come_from_two_reads() -> None:
    speeds = Speeds()
    for copied, now, rates in ((100, 10.0, {}), (150, 12.0, {"orders": 25.0})):
        (mirror,) = speeds.fill_in([mirror_of(flow(partition(copied=copied)))], now)
        assert mirror.flows[0].rates == rates


def test_since_names_the_day_when_it_was_another() -> None:
    now = 1_700_000_000_000
    assert re.fullmatch(r"\d\d:\d\d:\d\d \(5.0 s\)", since(now - 5_000, now))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d \(2 d\)", since(now - 48 * HOUR_MS, now))
    # the timestamp of a record may be in microseconds
    assert since(now * 1000, now) == f"{now}000 ms since 1970"


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (("RUNNING",), 0),
        (("RUNNING", "STANDBY", "PAUSED", "THROTTLED", "STARTING"), 0),
        (("FENCED",), 0),
        (("DEGRADED",), 1),
        (("RUNNING", "FAILED"), 1),
        (("PARTLY_FAILED",), 1),
        (("NOT_RUNNING",), 0),
        (("UNKNOWN",), 3),
        (("UNKNOWN", "DEGRADED"), 1),
        ((), 3),
    ],
)
def test_exit_code_says_whether_all_is_well(states: tuple[str, ...], code: int) -> None:
    flows = [flow(partition(), state=state) for state in states]
    assert exit_code([mirror_of(*flows)] if flows else [], 2000) == code


@pytest.mark.parametrize(("lag", "code"), [(0, 0), (1, 1), (None, 1)])
def test_a_flow_that_does_not_run_has_no_problem_while_nothing_waits(
    lag: int | None, code: int
) -> None:
    gone = partition("gone", lag=None, state="SOURCE_DELETED")
    idle = flow(partition(), partition(number=1, lag=lag), gone, state="NOT_RUNNING")
    assert exit_code([mirror_of(idle, pid=None)], 1) == code


def test_flow_whose_process_was_killed_is_not_well_though_nothing_waits() -> None:
    reason = "it last ran on east-1 (process 7), without a report [PROCESS_GONE]"
    idle = flow(partition(), state="NOT_RUNNING", code="PROCESS_GONE", reason=reason)
    assert exit_code([mirror_of(idle, pid=None)], 1) == 1


def test_exit_code_for_problems_of_partitions() -> None:
    failed = flow(partition(state="FAILED"), state="THROTTLED")
    assert exit_code([mirror_of(failed)], 2000) == 1
    assert exit_code([mirror_of(flow())], 2000) == 0
    assert exit_code([mirror_of(flow())], 60_000) == 1, "the process has said nothing for a minute"
    assert exit_code([mirror_of(flow(), pid=None)], 60_000) == 0, "as the clusters have it"


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a status file as if this process were a mirror. Return the configuration file."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    config = tmp_path / "mm2.properties"
    bad = partition("payments", state="FAILED", code="FOREIGN_DATA", message="A.payments-0: no")
    lost = {"audit": "logs: not mirrored by this flow"}
    alone = {"shop": "in use on the target", "app": "in use on the target"}
    parts = partition(lag=12, lag_ms=1500, loss_ms=800, copied=4321), bad
    StatusFile(config).write(
        [flow(*parts, state="PARTLY_FAILED", skipped_groups=alone, groups_without_checkpoint=lost)]
    )
    return config


def test_a_running_mirror_is_shown(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", str(running)]) == 1
    text = capsys.readouterr().out
    assert "A->B  PARTLY_FAILED  since" in text
    assert re.search(r"orders +A\.orders +all 1 +AT_END +12 +1\.5 s +0\.8 s +4,321 +0", text)
    assert "  payments-0: A.payments-0: no [FOREIGN_DATA]" in text
    assert "  2 groups not changed on the target (app, shop): in use on the target" in text
    assert "  1 group without a checkpoint (audit): logs: not mirrored by this flow" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_flows_that_no_local_mirror_runs_are_queried(
    running: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror on this host runs only some flows of the file, because of `--clusters`. The
    clusters of the other flows are queried.
    """
    monkeypatch.setattr(offline_status, "GIVES_UP_S", 0.3)
    running.write_text(
        "clusters = A, B, C\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
        "C.bootstrap.servers = 127.0.0.1:3\nA->B.enabled = true\nA->C.enabled = true\n"
    )
    assert run(["status", str(running), "--format", "json"]) == 1
    here, elsewhere = json.loads(capsys.readouterr().out)["mirrors"]
    assert [one["flow"] for one in here["flows"]] == ["A->B"]
    assert [(one["flow"], one["code"]) for one in elsewhere["flows"]] == [("A->C", "UNREACHABLE")]
    assert elsewhere["pid"] is None


@pytest.mark.parametrize("name", ["A:C", "A->C", "A -> C"])
def test_one_flow_is_shown_and_judged(
    running: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """With `--flow`, a problem of another flow changes neither the output nor the exit code."""
    StatusFile(running).write([flow(partition("payments", state="FAILED")), flow(flow="A->C")])
    for arguments in ((), (str(running),)):
        assert run(["status", *arguments, "--flow", "A:B"]) == 1
        assert "A->C" not in capsys.readouterr().out
        assert run(["status", *arguments, "--flow", name, "--format", "json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert [one["flow"] for one in answer["mirrors"][0]["flows"]] == ["A->C"]
        assert answer["totals"]["flows"] == 1


def test_one_flow_that_no_local_mirror_runs_is_queried(
    running: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_status, "GIVES_UP_S", 0.3)
    assert run(["status", "--flow", "A:C"]) == 3, "without FILE"
    assert capsys.readouterr().out.startswith("no mirror of A:C runs here; ")
    running.write_text(
        "clusters = A, B, C\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
        "C.bootstrap.servers = 127.0.0.1:3\nA->B.enabled = true\nA->C.enabled = true\n"
    )
    assert run(["status", str(running), "--flow", "A:C", "--format", "json"]) == 3, "unreachable"
    answer = json.loads(capsys.readouterr().out)
    assert answer["source"] == "clusters"
    assert [one["flow"] for mirror in answer["mirrors"] for one in mirror["flows"]] == ["A->C"]
    assert run(["status", str(running), "--flow", "B:A"]) == 2
    assert "B:A is not a flow of the file, which has A->B, A->C" in capsys.readouterr().err


def test_a_leader_and_a_standby_on_one_host_are_one_flow(
    running: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader and a standby run on one host. The leader's own numbers are available, so no cluster
    is queried, and no number counts twice.
    """
    running.write_text(
        "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
        "A->B.enabled = true\n"
    )
    (file,) = running.parent.glob("twinlog/*.json")
    other = json.loads(file.read_text())
    waits = {"state": "STANDBY", "reason": "process 7 leads", "partitions": [], "groups": []}
    other["flows"] = [other["flows"][0] | waits]
    file.with_name(f"0{file.name}").write_text(json.dumps(other))
    file.with_name(f"0{file.name}").chmod(0o600)
    assert run(["status", str(running)]) == 1, "a partition has failed"
    text = capsys.readouterr().out
    assert "A->B  STANDBY" in text
    assert "process 7 leads\n" in text
    assert "total: 1 flow, 2 topics, 2 partitions" in text


@pytest.mark.parametrize("state", [*FlowState, *PartitionState])
def test_a_state_has_the_colour_of_how_much_it_matters(state: FlowState | PartitionState) -> None:
    """A state has the same color as on the page. Only errors are red."""
    style = {"good": "green", "warn": "yellow", "bad": "red"}[severity_of(state)]
    assert state_style(state) == style
    is_error = "FAILED" in state or state is PartitionState.TAKEN_OVER
    assert (style == "red") == is_error


@pytest.mark.parametrize(("every_ms", "is_written"), [(None, True), (1000, True), (60_000, False)])
def test_a_mirror_is_silent_when_it_has_not_written_at_its_pace(
    running: Path, capsys: pytest.CaptureFixture[str], every_ms: int | None, *, is_written: bool
) -> None:
    (file,) = running.parent.glob("twinlog/*.json")
    value = json.loads(file.read_text())
    value["written_ms"] -= 20_000
    value["every_ms"] = every_ms
    if every_ms is None:
        del value["every_ms"]  # earlier releases do not write it
    file.write_text(json.dumps(value))
    assert run(["status", str(running)]) == 1, "a partition of it has failed"
    assert ("silent for 20 s" in capsys.readouterr().out) == is_written


def test_topics_are_chosen_by_either_name_and_by_their_lag(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", "--topic", "ord.*"]) == 1, "something is wrong, shown or not"
    text = capsys.readouterr().out
    assert "orders" in text
    assert "payments" not in text
    run(["status", "--topic", r"A\.pay.*", "--format", "json"])
    answer = json.loads(capsys.readouterr().out)
    (part,) = answer["mirrors"][0]["flows"][0]["partitions"]
    assert part["topic"] == "payments"
    assert answer["totals"]["topics"] == 1
    running_flow = flow(partition(), partition("late", lag=2))
    StatusFile(running).write([running_flow])
    assert run(["status", "--lagging"]) == 0
    text = capsys.readouterr().out
    assert "late" in text
    assert "orders" not in text
    run(["status", "--lagging", "--format", "json"])
    (part,) = json.loads(capsys.readouterr().out)["mirrors"][0]["flows"][0]["partitions"]
    assert part["topic"] == "late", "for programs as for people"
    run(["status", "--topic", "nosuch"])
    assert capsys.readouterr().out.endswith("no topic on the source or the target matches nosuch\n")
    assert run(["status", "--topic", "("]) == 2
    assert run(["status", "--watch", "--format", "json"]) == 2


def test_watched_screen_is_renewed_until_it_is_interrupted(
    running: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt
        StatusFile(running).write([flow(partition(), state="RUNNING")])

    monkeypatch.setattr("twinlog.cli.terminal.status.time.sleep", pause)
    assert run(["status", "--watch"]) == 0, "as it was last"
    first, _, second = capsys.readouterr().out.partition("\n\n")
    assert ("PARTLY_FAILED" in first, "RUNNING" in second) == (True, True)


def test_a_running_mirror_as_json(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--format", "json"]) == 1
    (mirror,) = json.loads(capsys.readouterr().out)["mirrors"]
    assert mirror["config"] == str(running)
    assert mirror["flows"][0]["partitions"][0]["lag"] == 12


def test_the_verification_of_a_mirror_is_shown(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now_ms = int(time.time() * 1000)
    found = Verified(mode="full", at_ms=now_ms - 3_000, records=12_345, is_complete=True)
    StatusFile(running).write([flow(partition(), verified=found)])
    assert run(["status", str(running)]) == 0
    text = capsys.readouterr().out
    assert "  verified: 12,345 records are equal, the last " in text
    assert "ago, all that is copied" in text
    line = "different: orders-0 [17, 18) / A.orders-0 [17, 18)"
    found = replace(found, differences=2, first_differences=(line,), is_complete=False)
    StatusFile(running).write([flow(partition(), verified=found)])
    assert run(["status", str(running)]) == 1
    text = capsys.readouterr().out
    assert "2 ranges differ [COPY_DIFFERS]" in text
    assert f"    {line}\n" in text
    run(["-q", "status", str(running)])
    assert f"A->B: {line} [COPY_DIFFERS]" in "".join(capsys.readouterr())
