"""What a flow looks like at one moment: the values behind `status`, progress bars and the final
report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from twinlog.control.watch.groups_report import CheckpointTiming
from twinlog.control.watch.timing_window import TimingView


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """One partition now. Lag is in records; -1 while the source end is not known."""

    topic: str
    partition: int
    target_topic: str
    state: str
    lag: int
    lag_ms: int
    """Age of the last copied record while records wait; 0 without lag."""
    records: int
    bytes: int
    code: str = ""
    message: str = ""
    since_ms: int = 0
    upstream: int = -1
    """The next upstream offset; -1 while it is not known."""
    age: TimingView | None = None
    """Of batches when they were read; None before the first."""
    latency: TimingView | None = None
    """Of batches when they were acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSnapshot:
    """One flow now."""

    flow: str
    state: str
    reason: str
    guarantee: str
    generation: int
    lanes: int
    since_ms: int
    partitions: tuple[PartitionSnapshot, ...]
    code: str = ""
    """Of the error that ended the flow, where one did."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """How often each code came up in this process."""
    skipped_groups: Mapping[str, str] = field(default_factory=dict)
    """Groups whose offsets on the target are left as they are, with the reason."""
    checkpoints: Callable[[], tuple[CheckpointTiming, ...]] = tuple
    """How long they take, asked only for `/metrics`: there may be very many."""

    @property
    def records(self) -> int:
        return sum(p.records for p in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.partitions)

    def as_json(self) -> dict[str, Any]:
        value = asdict(replace(self, checkpoints=tuple))
        for partition in value["partitions"]:
            # for `/metrics` only: the status file is written every second
            del partition["age"], partition["latency"]
        del value["checkpoints"]
        return value
