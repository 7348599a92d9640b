"""Numbers of the last hour are stored for the flows that this process leads."""

from __future__ import annotations

import pytest

from tests.support.snapshots import flow, partition
from twinlog.codes import FlowState
from twinlog.control.watch import monitor as history_module
from twinlog.control.watch.monitor import EVERY_S, KEPT, TOPIC_ROWS, BusyTopics, LastHour


def test_a_row_every_ten_seconds_for_an_hour() -> None:
    history = LastHour()
    for second in range(int(EVERY_S) * (KEPT + 5)):
        history.update(second, second * 1000, [flow(partition("orders", lag=second))])
    rows = history.rows("A->B")
    assert len(rows) == KEPT
    assert [row.at_ms for row in rows[:2]] == [50_000, 60_000]
    assert [row.lag for row in rows[-2:]] == [3630, 3640]


def test_unknown_values_are_none_and_a_standby_has_no_row() -> None:
    history = LastHour()
    unknown = flow(partition("orders", lag=None), loss_records=None, loss_ms=None, latency=None)
    standby = flow(flow="C->B", state=FlowState.STANDBY)
    history.update(0.0, 1, [unknown, standby])
    (row,) = history.rows("A->B")
    assert (row.lag, row.loss_records, row.loss_ms, row.p50_ms) == (None, None, None, None)
    assert history.rows("C->B") == history.rows("nobody") == []


def test_a_topic_has_a_row_every_half_minute_for_an_hour() -> None:
    history = LastHour()
    for second in range(0, 3600 + 120, 10):
        parts = [partition("orders", n, lag=second if n else None, bytes=second) for n in range(3)]
        history.update(second, second * 1000, [flow(*parts, partition("dark", lag=None))])
    rows = history.topics.rows("A->B", "orders")
    assert len(rows) == TOPIC_ROWS
    assert (rows[0].at_ms, rows[-1].at_ms) == (120_000, 3_690_000)
    assert rows[-1][1:] == (2 * 3690, 3 * 3690)
    assert {row.lag for row in history.topics.rows("A->B", "dark")} == {None}
    assert history.topics.rows("A->B", "nothing") == []
    kept = history.topics._rows["A->B", "orders"]
    assert kept.itemsize * len(kept) == 2880, "bytes of a topic"


def busy(topics: BusyTopics, *moved: int) -> list[str]:
    """Return the topics that are stored after each topic has copied this many bytes in total."""
    parts = [partition(f"t{number}", bytes=total) for number, total in enumerate(moved)]
    topics.update(1, [flow(*parts)])
    return [f"t{number}" for number in range(len(moved)) if topics.rows("A->B", f"t{number}")]


def test_of_many_topics_those_with_the_most_traffic_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_module, "MOST_TOPICS", 2)
    topics = BusyTopics()
    assert len(busy(topics, 0, 0, 0, 0)) == 2
    assert busy(topics, 0, 0, 50, 70) == ["t2", "t3"]
    assert busy(topics, 40, 0, 50, 170) == ["t0", "t3"], "one that was busy before it was known"
    assert busy(topics, 40, 0, 50, 170) == ["t0", "t3"], "nothing has moved"
    assert busy(topics, 40, 30, 50, 270) == ["t1", "t3"]
    topics.update(1, [flow(partition("t9"))])
    assert topics.rows("A->B", "t3") == [], "its topic is gone"


def test_the_topics_of_a_flow_that_is_no_longer_led_have_no_rows() -> None:
    history = LastHour()
    history.update(0, 0, [flow(partition("orders"))])
    assert history.topics.rows("A->B", "orders")
    history.update(
        60, 60_000, [flow(partition("orders"), state=FlowState.STANDBY, generation=None)]
    )
    assert history.topics.rows("A->B", "orders") == []
