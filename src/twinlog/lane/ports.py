"""A lane's connections to the outside world: time, both clusters, threads for blocking work, and
the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twinlog.clock import Clock
from twinlog.lane.sides.background import LaneJobs
from twinlog.lane.sides.cluster_side import ClusterSide
from twinlog.mirror.copy.transformed import Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePorts:
    """Everything outside the lane that it uses. Tests pass in-memory clusters and a manual clock
    instead.
    """

    clock: Clock
    source: ClusterSide
    target: ClusterSide
    background: LaneJobs
    send: Callable[[object], None]
    """Sends a message to the driver."""
    transformer: Transformer | None = None
    """The application of the transforms, or None if the flow has none."""
