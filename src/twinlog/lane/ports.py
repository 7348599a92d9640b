"""A lane's connections to the outside world: time, both clusters, threads for blocking work, and
the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from twinlog.clock import Clock
from twinlog.lane.sides.background import LaneJobs
from twinlog.lane.sides.cluster_side import ClusterSide
from twinlog.mirror.copy.transformed import Transformer


class Channel(Protocol):
    """The lane's end of its connection to the driver, as the loop uses it (`channel.client`)."""

    @property
    def last_heard(self) -> float:
        """Time by CLOCK_BOOTTIME, in s, up to which the driver provably received data from the lane
        (`channel.frames`).
        """

    @property
    def host(self) -> str:
        """Address at which the driver can reach this machine."""

    @property
    def wants_write(self) -> bool: ...
    def fileno(self) -> int: ...
    def receive(self) -> list[object]: ...
    def send(self, message: object) -> None: ...
    def flush(self) -> None: ...


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
