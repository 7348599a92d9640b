"""Snapshots of flows for tests of displays. Every field has an ordinary value by default."""

from __future__ import annotations

from typing import Any, Final

from twinlog.codes import FlowState, PartitionState
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.mirror.state.published import PublishedEvent, PublishedEvents, PublishedStatus, Unusual

__all__ = ["PUBLISHED", "flow", "partition"]


def partition(topic: str = "orders", number: int = 0, **changes: Any) -> PartitionSnapshot:
    """Return a partition that has copied 100 records and is at its end. `changes`: fields with
    other values.
    """
    usual: dict[str, Any] = {
        "target_topic": f"A.{topic}",
        "state": "AT_END",
        "lag": 0,
        "lag_ms": 0,
        "records": 100,
        "bytes": 10_000,
    }
    values = usual | changes
    values["state"] = PartitionState(values["state"])
    return PartitionSnapshot(topic=topic, partition=number, **values)


def flow(*partitions: PartitionSnapshot, **changes: Any) -> FlowSnapshot:
    """Return a running flow. `changes`: fields with other values."""
    usual: dict[str, Any] = {
        "flow": "A->B",
        "state": "RUNNING",
        "reason": "",
        "guarantee": "exact",
        "generation": 0,
        "lanes": 2,
        "since_ms": 1_700_000_000_000,
    }
    values = usual | changes
    values["state"] = FlowState(values["state"])
    return FlowSnapshot(partitions=partitions, **values)


PUBLISHED: Final = PublishedStatus(
    flow="A->B",
    at_ms=1_800_000_000_000,
    every_ms=5000,
    host="east-1",
    pid=77,
    generation=4,
    state="RUNNING",
    reason="",
    guarantee="exact",
    lanes=2,
    since_ms=1_799_999_000_000,
    records=100,
    bytes=10_000,
    loss_records=3,
    loss_ms=1200,
    loss_unknown=0,
    partitions=12,
    unusual_partitions=1,
    unusual=(
        Unusual(topic="pay", partition=3, state="FAILED", code="DIVERGED", message="pay-3: no"),
    ),
)
"""The status row that a leader has published about a flow."""

DIVERGED: Final = PublishedEvent(
    number=7,
    at_ms=1_800_000_000_000,
    level="WARNING",
    message="A->B: orders-3: no",
    code="DIVERGED",
    topic="orders",
    partition=3,
    person="",
)
HAPPENED: Final = PublishedEvents(flow="A->B", host="east-1", pid=77, events=(DIVERGED,))
"""Events of the flow that another process has published."""
