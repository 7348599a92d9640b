"""The result of a run of a mirror: its exit code, JSON fields and lines."""

from __future__ import annotations

import pytest

from tests.support.snapshots import flow, partition
from twinlog.cli.commands.mirror import MirrorReport
from twinlog.control.process.run import MirrorResult
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import ConfigError, TwinlogError, Unreachable


def report(
    *flows: FlowSnapshot, once: bool = True, errors: tuple[TwinlogError, ...] = ()
) -> MirrorReport:
    return MirrorReport(MirrorResult(flows=flows, seconds=2.0, errors=errors), once=once)


def done(number: int = 0) -> FlowSnapshot:
    return flow(partition(number=number, state="DONE"), state="STOPPED")


def test_all_copied() -> None:
    found = report(done())
    assert found.exit_code == 0
    assert found.flows == [
        {
            "flow": "A->B",
            "partitions": 1,
            "records": 100,
            "bytes": 10_000,
            "seconds": 2.0,
            "failed": [],
        }
    ]
    assert list(found.lines()) == [
        "A->B: 100 records, 10.0 KB of 1 partition in 2.0 s (50 records/s, 5.0 KB/s)"
    ]


def test_a_failed_partition_is_reported_with_its_code() -> None:
    bad = partition(number=3, state="FAILED", code="FOREIGN_DATA", message="A.orders-3: not ours")
    found = report(flow(partition(state="DONE"), bad))
    assert found.exit_code == 1
    assert found.flows[0]["failed"] == [
        {
            "topic": "orders",
            "partition": 3,
            "code": "FOREIGN_DATA",
            "message": "A.orders-3: not ours",
        }
    ]
    (line,) = found.lines()
    assert line.endswith("; 1 FAILED")


def test_once_that_was_stopped_has_not_copied_all() -> None:
    found = report(flow(partition(state="RELEASED", lag=5)))
    assert found.exit_code == 1
    assert found.flows[0]["failed"][0]["code"] == "NOT_FINISHED"


def test_a_mirror_that_is_stopped_in_order_has_not_failed() -> None:
    assert report(flow(partition(state="RELEASED")), once=False).exit_code == 0


@pytest.mark.parametrize(
    ("errors", "flows", "code"),
    [
        ((Unreachable("no broker"),), 1, 1),
        ((ConfigError("factor"),), 1, 2),
        ((ConfigError("factor"),), 2, 1),
        ((ConfigError("factor"), Unreachable("no broker")), 2, 1),
    ],
)
def test_exit_code_of_flows_that_never_ran(
    errors: tuple[TwinlogError, ...], flows: int, code: int
) -> None:
    assert report(*(done() for _ in range(flows)), errors=errors).exit_code == code


def test_the_error_of_a_whole_flow_is_reported_once_with_its_code() -> None:
    error = Unreachable("cluster B: no broker answers")
    whole = flow(state="FAILED", reason=str(error), code=error.code, error=error)
    found = report(whole, errors=(error,))
    assert list(found.lines()) == []
    assert list(found.flow_failures()) == ["A->B: cluster B: no broker answers [UNREACHABLE]"]
    assert found.flows[0]["failed"] == [
        {"topic": None, "partition": None, "code": error.code, "message": error.message}
    ]


@pytest.mark.parametrize("state", ["DEGRADED", "FAILED"])
def test_flow_that_could_not_begin_until_the_end_has_failed(state: str) -> None:
    why = "the source is another cluster [CLUSTER_CHANGED]"
    away = flow(state=state, reason=why, code="CLUSTER_CHANGED", generation=None)
    found = report(away, once=False)
    assert found.exit_code == 1
    assert list(found.lines()) == []
    assert list(found.flow_failures()) == [f"A->B: {why}"]


def test_a_standby_has_not_failed() -> None:
    found = report(flow(state="STANDBY", reason="east leads it", generation=None), once=False)
    assert found.exit_code == 0
    assert list(found.lines()) == ["A->B: STANDBY: east leads it"]


def test_a_flow_that_was_stopped_while_it_was_set_up_copied_nothing() -> None:
    (line,) = report(flow(state="STARTING", reason="", generation=None), once=False).lines()
    assert line == "A->B: stopped before it started copying"


def test_a_flow_without_topics_reports_it() -> None:
    assert "no topic of the source matches" in next(iter(report(flow()).lines()))


def test_quiet_report_has_only_flows_that_are_not_whole() -> None:
    found = report(done(), flow(partition(state="RELEASED", lag=5)))
    assert len(list(found.lines())) == 2
    (line,) = found.lines(only_failed=True)
    assert line.endswith("; 1 FAILED")


def test_a_flow_that_another_process_led_to_the_end_names_its_state_once() -> None:
    error = TwinlogError("standing by: process 7 on east-1 leads this flow", code="STANDBY")
    led = flow(state="STANDBY", generation=None, reason=str(error), error=error)
    (line,) = report(led, once=False).lines()
    assert line == f"A->B: {error}"
    (line,) = report(
        flow(state="PAUSED", generation=None, reason="paused by ann"), once=False
    ).lines()
    assert line == "A->B: PAUSED: paused by ann"
