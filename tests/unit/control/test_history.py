"""The last hour of flows is kept, of those that this process leads."""

from __future__ import annotations

from tests.support.snapshots import flow, partition
from twinlog.codes import FlowState
from twinlog.control.watch.history import EVERY_S, KEPT, LastHour


def test_a_row_every_ten_seconds_for_an_hour() -> None:
    history = LastHour()
    for second in range(int(EVERY_S) * (KEPT + 5)):
        history.update(second, second * 1000, [flow(partition("orders", lag=second))])
    rows = history.rows("A->B")
    assert len(rows) == KEPT
    assert [row.at_ms for row in rows[:2]] == [50_000, 60_000]
    assert [row.lag for row in rows[-2:]] == [3630, 3640]


def test_what_is_not_known_is_none_and_a_standby_has_no_row() -> None:
    history = LastHour()
    unknown = flow(partition("orders", lag=-1), loss_records=-1, loss_ms=-1, latency=None)
    standby = flow(flow="C->B", state=FlowState.STANDBY)
    history.update(0.0, 1, [unknown, standby])
    (row,) = history.rows("A->B")
    assert (row.lag, row.loss_records, row.loss_ms, row.p50_ms) == (None, None, None, None)
    assert history.rows("C->B") == history.rows("nobody") == []
