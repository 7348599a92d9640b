"""Snapshots of flows for tests of what is shown; every field has an unremarkable value."""

from __future__ import annotations

from typing import Any

from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot

__all__ = ["flow", "partition"]


def partition(topic: str = "orders", number: int = 0, **changes: Any) -> PartitionSnapshot:
    """A partition that has copied 100 records and is at its end."""
    usual: dict[str, Any] = {
        "target_topic": f"A.{topic}",
        "state": "AT_END",
        "lag": 0,
        "lag_ms": 0,
        "records": 100,
        "bytes": 10_000,
    }
    return PartitionSnapshot(topic=topic, partition=number, **(usual | changes))


def flow(*partitions: PartitionSnapshot, **changes: Any) -> FlowSnapshot:
    """A flow that runs."""
    usual: dict[str, Any] = {
        "flow": "A->B",
        "state": "RUNNING",
        "reason": "",
        "guarantee": "exact",
        "generation": 0,
        "lanes": 2,
        "since_ms": 1_700_000_000_000,
    }
    return FlowSnapshot(partitions=partitions, **(usual | changes))
