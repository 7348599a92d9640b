"""Partitions are given to lanes; no partition is ever in two lanes.

1. A partition that was handed over (`Released` with a start point) goes to the next lane directly.
2. Any other start is cold: the map is first read to its end, and the Take has a new term.
3. When a lane is lost, its partitions go to another one directly. Their Takes have the time in
   which requests of the lost lane may still arrive (`RunState.lost`). That lane stops by itself
   `SILENCE_MS` after its last message from the driver, which is not before the driver's last
   message from it. Then its sockets give up (`lane.late_requests`). Requests that must not be sent
   before that wait in the new lane. Only a partition without any row in the map waits here
   (`takes.put_off`).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twinlog.clock import CLOCK, Clock, GrowingPause
from twinlog.control.lanes.lanes import Lease, spread
from twinlog.control.lanes.partitions import RETRY_FAILED_S, Partition, Placement
from twinlog.control.lanes.takes import in_messages, may_begin, put_off, runs_for_each, take_of
from twinlog.control.running.run_state import RunState
from twinlog.errors import Fate, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap, Term
from twinlog.survey.replica import Maps


class Giving:
    """The rules for one run."""

    def __init__(self, run: RunState, read_map: Callable[[Callable[[Maps], None]], None]) -> None:
        """`read_map` reads the offset map to its end in another thread, then calls back."""
        self._run = run
        self._read_map = read_map
        self._starts = itertools.count()
        self._map = MapRetry(flow=run.name, clock=run.clock)

    def assign(self, now: float) -> None:
        """Give due partitions to ready lanes."""
        current = self._run.current
        if current is None or not current.ready_lanes:
            return
        self._give([p for p in self._due(now) if p.handed is not None], current, {})
        if self._map.is_due and self._cold():
            self._map.begin()
            self._read_map(self._on_map)

    def map_failed(self, error: TwinlogError) -> None:
        """The map could not be read: note this on partitions that wait for it, and retry later."""
        self._map.failed(error)
        self._run.errors[error.code] += 1
        for partition in self._cold():
            unmapped(partition, error)

    def _is_held_back(self, partition: Partition) -> bool:
        run = self._run
        waits = partition.taken is None and bool(run.holds_back or run.awaits_plans)
        return waits or (run.once and partition.placement is Placement.FAILED)

    def _due(self, now: float) -> list[Partition]:
        due = (p for p in self._run.partitions.values() if p.is_due(now))
        return [p for p in due if not self._is_held_back(p)]

    def _cold(self) -> list[Partition]:
        return [p for p in self._due(self._run.clock.monotonic()) if p.handed is None]

    def _on_map(self, maps: Maps) -> None:
        self._map.works()
        run, current = self._run, self._run.current
        if run.is_stopping or current is None or not current.ready_lanes:
            return
        cold = []
        for partition in self._cold():
            if partition.left_at > self._map.began:
                continue  # its lane wrote rows during this read; the next read has them
            if (error := maps.problem(partition.plan.source)) is not None:
                run.errors[error.code] += 1
                unmapped(partition, error)
            elif not put_off(partition, maps):
                cold.append(partition)
        self._give(may_begin(cold, maps, run.name), current, maps)
        run.wants_discovery |= any(p.plan.may_pass and p.failure is not None for p in cold)

    def _give(
        self,
        partitions: list[Partition],
        lease: Lease,
        maps: Mapping[PartitionKey, PartitionMap],
    ) -> None:
        if not partitions:
            return
        run, most_runs = self._run, runs_for_each(len(partitions))
        for number, part in spread(partitions, lease.ready_lanes).items():
            lane = lease.lanes[number]
            takes = []
            for partition in part:
                if partition.handed is None:
                    partition.term = Term(run.generation, next(self._starts))
                takes.append(take_of(partition, maps, run.start_of(partition.plan), most_runs))
                partition.placement, partition.taken = Placement.ASSIGNED, partition.plan
                partition.lane = lane.key
                partition.handed = None
                partition.progress, partition.is_seen = None, False
                lane.partitions[partition.plan.source] = partition
            for message in in_messages(takes):
                lane.peer.send(message)
        if run.pacer is not None:
            run.pacer.soon()


log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class MapRetry:
    """Retries of reading one flow's map: logs the begin and the end of a failure."""

    flow: str
    clock: Clock = CLOCK
    is_reading: bool = False
    began: float = 0.0
    """Monotonic time at which the read began; later rows may be missing."""
    _next_at: float = 0.0
    _pause: GrowingPause = field(
        default_factory=lambda: GrowingPause(first_s=0.5, most_s=RETRY_FAILED_S)
    )
    _problem: str = ""

    @property
    def is_due(self) -> bool:
        """Return True if no read is running, and the pause is over."""
        return not self.is_reading and self.clock.monotonic() >= self._next_at

    def begin(self) -> None:
        """Note the start of a read."""
        self.is_reading, self.began = True, self.clock.monotonic()

    def failed(self, error: TwinlogError) -> None:
        """The map could not be read."""
        self.is_reading = False
        self._next_at = self.clock.monotonic() + self._pause.next_s()
        if error.code != self._problem:
            self._problem = error.code
            FlowLog(log, self.flow).warning(
                "the offset map cannot be read: %s; trying again", error
            )

    def works(self) -> None:
        """The map was read."""
        self.is_reading = False
        self._next_at = 0.0
        self._pause.reset()
        if self._problem:
            FlowLog(log, self.flow).news("the offset map can be read again")
            self._problem = ""


def unmapped(partition: Partition, error: TwinlogError) -> None:
    """Fail a partition that cannot start without its map; it is tried again."""
    partition.troubled(error.code, error.what, retriable=error.fate is Fate.RETRIABLE)
