"""A flow's run as far as it matters for its risk: its partitions and lanes, blocking work outside
the supervisor's thread, and the limits that the risk is measured against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from twinlog.clock import Clock
from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.pacing import Pacer
from twinlog.control.lanes.partitions import Partition
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition


class InBackground(Protocol):
    """Runs a job in another thread, then calls back in the supervisor's thread."""

    def __call__(
        self,
        job: Callable[[], Any],
        then: Callable[[Any], None],
        otherwise: Callable[[TwinlogError], None],
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskLimits:
    """The configured objective, and the source's retention."""

    rpo_seconds: int | None = None
    """The value of twinlog.rpo.seconds."""
    retentions: Mapping[str, int] = field(default_factory=dict)
    """retention.ms of the source's topics, as far as known."""


NO_LIMITS: Final = RiskLimits()
"""For a flow whose source is not watched, as with `--once`."""


class RunningFlow(Protocol):
    """A flow's run, used in the supervisor's thread."""

    partitions: dict[TopicPartition, Partition]
    clock: Clock
    is_stopping: bool
    errors: Counter[str]
    pacer: Pacer | None

    def lanes(self) -> list[Lane]:
        """Return all lanes of all leases."""
