"""What a lane reaches the world by: time, both clusters, threads for what blocks, its driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twinlog.clock import Clock
from twinlog.lane.sides.background import LaneJobs
from twinlog.lane.sides.cluster_side import ClusterSide


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePorts:
    """Handed in, so that what stands behind them may be in memory, and its clock moved by hand."""

    clock: Clock
    source: ClusterSide
    target: ClusterSide
    background: LaneJobs
    send: Callable[[object], None]
    """To the driver."""
