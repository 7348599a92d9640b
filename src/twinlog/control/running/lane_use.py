"""Keeps all partitions of a flow with little traffic in one lane of its lease.

A lane that wakes up for a record serves all its partitions in the same turn. So for little traffic,
two lanes take nearly twice the CPU of one lane (ADR 41).

    traffic      light for a while         busy
    partitions   -> all in one lane        -> spread over all lanes

The other lanes of the lease stay connected and idle. So partitions move to them within
milliseconds, by the same messages as at a change of leases. After each return to all lanes, the
next period of light traffic must be twice as long, so that a flow with regular peaks rarely moves
its partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.partitions import Partition
from twinlog.control.running.run_state import RunState
from twinlog.lane.messages import NO_LOAD

PERIOD_S: Final = 2.0
"""Seconds between two measurements: the shortest useful time, as lanes report once a second."""

LIGHT_CORES: Final = 0.5
BUSY_CORES: Final = 0.7
"""Limits of light and of busy traffic in CPU cores, for all lanes together. One lane can use at
most about one core, and takes less than two lanes for the same records. Two lanes with 1,000
records a second take up to 0.45 cores.
"""

LIGHT_BYTES: Final = 15_000_000
BUSY_BYTES: Final = 30_000_000
"""Limits of light and of busy traffic in bytes that all lanes receive per second. They are needed
because on a busy machine, a lane's CPU does not show that it has a backlog.
"""

BEHIND_S: Final = 5.0
"""Seconds after which a partition with waiting records has a backlog. With a backlog all lanes are
used: over a slow link, lanes take little CPU, but each has connections of its own.
"""

LIGHT_FOR_S: Final = 10.0
MOST_DOUBLINGS: Final = 5
"""Maximum doublings of LIGHT_FOR_S, so that 320 s of light traffic always suffice."""


@dataclass(slots=True)
class LaneUse:
    """Decides for one run whether its partitions are in one lane or in all of them."""

    run: RunState
    _looked_at: float = 0.0
    _cpu_ms: int = 0
    _bytes: int = 0
    _light_since: float | None = None
    _doublings: int = 0

    def tick(self, now: float) -> None:
        """Move partitions if the traffic has changed. Called about ten times a second."""
        run, passed_s = self.run, now - self._looked_at
        if passed_s < PERIOD_S:
            return
        cores = (run.lane_cpu_ms - self._cpu_ms) / 1000 / passed_s
        rate = (run.received_bytes - self._bytes) / passed_s
        self._looked_at, self._cpu_ms, self._bytes = now, run.lane_cpu_ms, run.received_bytes
        if run.once or run.intents.pause is not None:
            run.uses_one_lane, self._light_since = False, None  # a backlog needs all lanes
        elif any(lease.lanes for lease in run.leases if lease is not run.current):
            self._light_since = None  # wait while partitions move between leases
        elif run.uses_one_lane:
            is_busy = cores > BUSY_CORES or rate > BUSY_BYTES or self._is_behind
            (self._use_all_lanes if is_busy else self._use_one_lane)()
        elif (
            len(run.lanes_in_use) < 2
            or cores > LIGHT_CORES
            or rate > LIGHT_BYTES
            or self._is_behind
        ):
            self._light_since = None
        elif self._light_since is None:
            self._light_since = now
        elif now - self._light_since >= LIGHT_FOR_S * 2**self._doublings:
            self._use_one_lane()

    @property
    def _is_behind(self) -> bool:
        before = self.run.clock.boot() - BEHIND_S
        held = (partition for lane in self.run.lanes() for partition in lane.partitions.values())
        return any((partition.recovery.waits_since or inf) < before for partition in held)

    def _use_one_lane(self) -> None:
        """Move all partitions to one lane. This includes partitions that other lanes got from a
        lost lane, and partitions of a lane that cannot reach a cluster if another lane can.
        """
        run = self.run
        if any(lane.load is NO_LOAD for lane in run.lanes_in_use):
            return  # a lane has not reported yet, so traffic is unknown
        run.uses_one_lane = True
        lanes = run.lanes()
        run.release(
            partition
            for lane in lanes
            if lane not in run.lanes_in_use
            for partition in _movable_partitions(lane)
        )

    def _use_all_lanes(self) -> None:
        run = self.run
        held = _movable_partitions(run.lanes_in_use[0]) if run.lanes_in_use else []
        run.uses_one_lane, self._light_since = False, None
        self._doublings = min(self._doublings + 1, MOST_DOUBLINGS)
        lanes = len(run.lanes_in_use)
        run.release(partition for index, partition in enumerate(held) if index % lanes)


def _movable_partitions(lane: Lane) -> list[Partition]:
    """Return the partitions that another lane can continue without searching their positions."""
    held = (partition for _, partition in sorted(lane.partitions.items()))
    return [
        partition for partition in held if not (partition.plan.targets or partition.plan.transform)
    ]
