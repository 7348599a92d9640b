"""The data of a flow's run, and two operations for all modules of the run: `release` requests
partitions back from lanes, and `give_up` gives up a lost lane.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from twinlog.clock import CLOCK, Clock
from twinlog.config.flow.start import Starts
from twinlog.config.flow.transforms import NO_NAMES
from twinlog.config.regex.patterns import NamePattern
from twinlog.control.lanes.lanes import Lane, Lease, LeaseState
from twinlog.control.lanes.pacing import Pacer
from twinlog.control.lanes.partitions import LaneKey, Partition
from twinlog.control.running.flow_transforms import FlowTransforms
from twinlog.control.watch.latency import SpreadWindow
from twinlog.flow_log import FlowLog
from twinlog.lane import late_requests
from twinlog.lane.messages import Release, Work
from twinlog.mirror.state.intents import FlowIntents
from twinlog.model import TopicPartition

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class RunState:
    """The state of a run. Used in the supervisor's thread only."""

    name: str
    work: Work
    generation: int
    start: Starts
    """Where the copy of a partition begins if nothing of it was copied yet."""
    once: bool
    clean: bool
    """Whether the former process shut down cleanly. If not, its lanes may still send until
    `old_lanes_until`, and their requests may arrive until `late_requests_until`.
    """
    pacer: Pacer | None = None  # None: the flow has no byte budget
    transforms: FlowTransforms | None = None  # None: the flow has no transforms
    untransformed: NamePattern = NO_NAMES
    """Topics that are copied unchanged on purpose, although they were transformed."""
    clock: Clock = CLOCK
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)  # number of occurrences of each code
    spread: SpreadWindow = field(default_factory=SpreadWindow)
    lane_cpu_ms: int = 0
    received_bytes: int = 0  # by all lanes of the run
    sent_bytes: int = 0
    is_stopping: bool = False
    wants_discovery: bool = False  # True if topics must be read again before the next interval
    copying_since: float | None = None  # None while Spark is starting
    uses_one_lane: bool = False  # whether the other lanes get no partitions (`lane_use`)
    intents: FlowIntents = field(default_factory=FlowIntents)  # operators' intents for the flow
    hold_reason: str = ""
    """Why partitions that have not run yet must not start (unreadable intents), or empty."""
    awaits_plans: bool = False
    """Whether no partition starts before the next discovery, because the flow was paused during its
    set-up.
    """

    def __post_init__(self) -> None:
        self.log = FlowLog(log, self.name)
        now, silence_s = self.clock.monotonic(), late_requests.SILENCE_MS / 1000
        self.late_requests_until = now + (0.0 if self.clean else late_requests.wait_s())
        self.old_lanes_until = now + (0.0 if self.clean else silence_s)

    @property
    def current(self) -> Lease | None:
        """The lease whose lanes get partitions, or None."""
        return next((le for le in self.leases if le.state is LeaseState.CURRENT), None)

    @property
    def lanes_in_use(self) -> list[Lane]:
        """The ready lanes that get partitions: lanes of the current lease, or the lanes of the next
        lease that already replace them. With little traffic it is only one lane (`lane_use`).
        """
        current = self.current
        if current is None:
            return []
        next_lanes = [lane for le in self.leases if le.is_partly_warm for lane in le.ready_lanes]
        replaced = {lane.key.lane for lane in next_lanes}
        rest = [lane for lane in current.ready_lanes if lane.key.lane not in replaced]
        lanes = [*rest, *next_lanes]
        if not self.uses_one_lane or not lanes:
            return lanes
        # prefer a lane that reaches both clusters, then the one with the most partitions
        return [max(lanes, key=lambda la: (la.unreachable is None, len(la.partitions), la.key))]

    def lanes(self) -> list[Lane]:
        """All lanes of all leases."""
        return [lane for lease in self.leases for lane in lease.lanes.values()]

    def release(self, partitions: Iterable[Partition]) -> None:
        """Request these partitions back from their lanes."""
        by_lane: dict[LaneKey, list[TopicPartition]] = {}
        for partition in partitions:
            if partition.lane is not None:
                by_lane.setdefault(partition.lane, []).append(partition.plan.source)
        for lane in self.lanes():
            tps = [tp for tp in by_lane.get(lane.key, ()) if tp not in lane.releasing]
            if tps:
                lane.releasing.update(tps)
                lane.peer.send(Release(partitions=tuple(tps)))

    def give_up(self, lane: Lane) -> None:
        """Give up a lane. The lanes that get its partitions next learn until when requests of the
        given-up lane may arrive: until that lane has certainly stopped and its sockets have timed
        out.
        """
        late_s = late_requests.wait_s() + lane.throttle.longest_ms / 1000
        until = self.clock.monotonic() + late_s - (self.clock.boot() - lane.peer.last_heard)
        for partition in lane.partitions.values():
            if partition.lane == lane.key:
                partition.on_lane_lost()
                partition.wait_at_least(until)
        lane.partitions.clear()
        lane.peer.close("its partitions were given away")
