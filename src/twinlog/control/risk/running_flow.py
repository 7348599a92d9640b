"""The interface of a flow's run for the modules of `control.risk`: partitions and lanes, and the
limits for the risk. `InBackground` runs blocking calls outside the supervisor's thread.
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
    """Runs `job` in another thread, then calls `then` with its result, or `otherwise` with its
    error, in the supervisor's thread.
    """

    def __call__(
        self,
        job: Callable[[], Any],
        then: Callable[[Any], None],
        otherwise: Callable[[TwinlogError], None],
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskLimits:
    """The configured RPO, and the retention of the source's topics."""

    rpo_seconds: int | None = None
    """The value of twinlog.rpo.seconds, or None if it is not set."""
    retentions: Mapping[str, int] = field(default_factory=dict)
    """retention.ms of the source's topics, by topic. Unknown values are left out."""


NO_LIMITS: Final = RiskLimits()
"""The limits of a flow whose source is not watched, for example with `--once`."""


class RunningFlow(Protocol):
    """One run of a flow. Used only in the supervisor's thread."""

    partitions: dict[TopicPartition, Partition]
    clock: Clock
    is_stopping: bool
    errors: Counter[str]
    pacer: Pacer | None

    def lanes(self) -> list[Lane]:
        """Return the lanes of all leases of the run."""
