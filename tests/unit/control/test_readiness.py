"""A flow's readiness depends on its progress and not on its state. The tests follow flows over
time.
"""

from __future__ import annotations

import pytest

from tests.support.snapshots import flow, partition
from twinlog.control.watch.readiness import Readiness
from twinlog.control.watch.snapshot import FlowSnapshot


class Watch:
    """One flow that is updated once per second."""

    def __init__(self) -> None:
        self._readiness = Readiness()
        self._now = 0.0

    def after(self, seconds: int, snapshot: FlowSnapshot) -> bool:
        """Update the flow for this many seconds. Return True if it is ready after that."""
        ready = False
        for _ in range(seconds):
            self._now += 1
            (one,) = self._readiness.update(self._now, [snapshot])
            ready = one.is_ready
        return ready


def copying(records: int, upstream: int, **changes: object) -> FlowSnapshot:
    part = partition(records=records, upstream=upstream, state="COPYING", lag=50, lag_ms=9)
    return flow(part, **changes)


def test_a_flow_that_never_moved_is_not_ready() -> None:
    watch = Watch()
    assert not watch.after(1, flow(state="STARTING", generation=None))
    assert not watch.after(5, copying(0, 1000)), "where it continues is no movement"
    assert watch.after(1, copying(1, 1001))


def test_running_without_movement_is_ready_for_a_minute_and_no_longer() -> None:
    watch = Watch()
    assert watch.after(1, copying(10, 1010))
    assert watch.after(60, copying(10, 1010))
    assert not watch.after(1, copying(10, 1010))
    assert watch.after(1, copying(11, 1011))


def test_the_counts_of_the_run_before_are_no_movement_of_the_next_run() -> None:
    watch = Watch()
    assert watch.after(1, copying(10, 1010))
    assert watch.after(30, flow(state="STARTING", generation=None))
    assert watch.after(30, copying(10, 1010))
    assert not watch.after(1, copying(10, 1010))


def test_at_its_end_a_flow_is_ready_forever() -> None:
    watch = Watch()
    assert watch.after(1000, flow(partition(state="AT_END"), partition(number=1, state="DONE")))


def test_one_partition_with_lag_is_not_the_end() -> None:
    watch = Watch()
    stuck = partition(number=1, state="FAILED", lag=None, code="X", message="it is stuck")
    assert not watch.after(61, flow(partition(records=0), stuck))


def test_markers_move_a_flow_without_a_record() -> None:
    watch = Watch()
    for upstream in range(1000, 1200):
        ready = watch.after(1, copying(0, upstream))
    assert ready


def test_going_back_and_forth_is_no_movement() -> None:
    watch = Watch()
    watch.after(1, copying(10, 1010))
    for _ in range(40):
        watch.after(1, copying(10, 1005))
        ready = watch.after(1, copying(10, 1010))
    assert not ready


def test_degraded_while_it_moves_is_ready() -> None:
    watch = Watch()
    for count in range(200):
        ready = watch.after(1, copying(count, count, state="DEGRADED", code="UNREACHABLE"))
        assert ready or not count, "one broker of several is away"


@pytest.mark.parametrize(
    ("state", "code", "seconds"),
    [
        ("DEGRADED", "UNREACHABLE", 10),
        ("DEGRADED", "DISCONNECTED", 10),
        ("FAILED", "CLUSTER_CHANGED", 10),
        # the flow waits for a condition that ends by itself, or that does not hinder the copy
        ("DEGRADED", "NOT_LEADER", 60),
        ("DEGRADED", "", 60),
    ],
)
def test_flow_that_reports_why_it_stopped_has_seconds_instead_of_a_minute(
    state: str, code: str, seconds: int
) -> None:
    watch = Watch()
    assert watch.after(1, flow(partition()))
    away = flow(partition(), state=state, code=code, reason="it says why")
    assert watch.after(seconds, away), "an end that nobody can see is none"
    assert not watch.after(1, away)
    assert watch.after(1, flow(partition())), "it is at its end again"


def test_outage_that_is_over_is_ready_when_something_moves_again() -> None:
    watch = Watch()
    assert watch.after(1, copying(10, 1010))
    assert not watch.after(11, copying(10, 1010, state="DEGRADED", code="UNREACHABLE"))
    assert not watch.after(5, copying(10, 1010)), "nothing has moved yet"
    assert watch.after(1, copying(11, 1011))


def test_a_flow_without_topics_is_at_its_end() -> None:
    watch = Watch()
    assert watch.after(1, flow())
    assert not Watch().after(1, flow(generation=None)), "it is not known yet that there are none"


def test_the_reason_is_reported() -> None:
    stuck = partition(state="FAILED", lag=None, code="RECORD_TOO_LARGE", message="too large")
    (one,) = Readiness().update(0.0, [flow(stuck)])
    assert (one.is_ready, one.reason) == (False, "too large [RECORD_TOO_LARGE]")


def test_a_flow_that_another_process_leads_is_ready() -> None:
    """Another process leads the flow, which is the intended state of a standby, so the flow is
    ready. After a takeover, it has a minute to become ready.
    """
    watch = Watch()
    standby = flow(state="STANDBY", generation=None, reason="standing by [CONFIG_MISMATCH]")
    assert watch.after(1000, standby)
    starting = flow(state="STARTING", generation=None)
    assert watch.after(60, starting)
    assert not watch.after(1, starting)
