"""A flow's run, as far as it matters for what is at risk."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from twinlog.clock import Clock
from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.pacing import Pacer
from twinlog.control.lanes.partitions import Partition
from twinlog.model import TopicPartition


class RunningFlow(Protocol):
    """In the supervisor's thread."""

    partitions: dict[TopicPartition, Partition]
    clock: Clock
    is_stopping: bool
    errors: Counter[str]
    pacer: Pacer | None

    def lanes(self) -> list[Lane]:
        """All lanes of all leases."""
