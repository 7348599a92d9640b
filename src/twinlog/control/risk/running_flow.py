"""The part of a flow's run that matters for its risk."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from twinlog.clock import Clock
from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.pacing import Pacer
from twinlog.control.lanes.partitions import Partition
from twinlog.model import TopicPartition


class RunningFlow(Protocol):
    """A flow's run, used in the supervisor's thread."""

    partitions: dict[TopicPartition, Partition]
    clock: Clock
    is_stopping: bool
    errors: Counter[str]
    pacer: Pacer | None

    def lanes(self) -> list[Lane]:
        """Return all lanes of all leases."""
