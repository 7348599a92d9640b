"""One flow at work: partitions are given to lanes, lanes come and go with leases, nothing is ever
held by two.

Everything here runs in the supervisor's thread; what may block (the map, topics) is done elsewhere
and comes back as a call. The rules of giving a partition away:

1. A partition that was handed over (`Released` with a start point) goes to the next lane at once.
2. Any other start is cold: the map is read to its end first, and the Take carries a new term.
3. When a lane is lost, an unprotected partition waits until that lane has surely stopped (it stops
   by itself `SILENCE_MS` after it last heard us, which is not before we last heard it) and its
   sockets have given up (`lane.late_requests`).
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from twinlog.channel.peer import Peer
from twinlog.clock import CLOCK, Clock
from twinlog.codes import Trait, has
from twinlog.config.flow.start import Starts
from twinlog.control.flow.flow_host import Host
from twinlog.control.lanes.lanes import Lane, Lease, LeaseState, spread
from twinlog.control.lanes.lease_retry import LeaseRetry
from twinlog.control.lanes.map_retry import MapRetry, unmapped
from twinlog.control.lanes.pacing import Pacer
from twinlog.control.lanes.partitions import UNREACHABLE, LaneKey, Partition, Placement
from twinlog.control.lanes.takes import (
    in_messages,
    may_begin,
    put_off,
    runs_for_each,
    take_of,
)
from twinlog.control.lanes.wanted import go_on_from, hold_back, replan
from twinlog.control.watch.spread import SpreadWindow
from twinlog.errors import TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.lane import late_requests
from twinlog.lane.messages import (
    PartitionProgress,
    Progress,
    Ready,
    Release,
    Released,
    ReleasedPartition,
    Stop,
    Troubled,
    Work,
)
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap, Term
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.intents import FlowIntents
from twinlog.model import StartAt, TopicPartition
from twinlog.survey.map_reader import Maps

log = logging.getLogger(__name__)

ONCE_GIVES_UP_S: Final = 60.0
ONCE_LEASE_TRIES: Final = 3


class FlowRun:
    """Runs one flow in one generation, from its first lease to its end."""

    def __init__(  # noqa: PLR0913 (all of it is known at once, by name)
        self,
        *,
        name: str,
        host: Host,
        work: Work,
        generation: int,
        plans: Iterable[PartitionPlan],
        lane_count: Callable[[int], int],
        lease_s: float,
        first_change_s: float,
        start: Starts,
        once: bool,
        clean: bool,
        pacer: Pacer | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.name = name
        self.clock = clock
        self._log = FlowLog(log, name)
        self.work = work
        self.generation = generation
        self.partitions: dict[TopicPartition, Partition] = {}
        self.leases: list[Lease] = []
        self.errors: Counter[str] = Counter()  # how often each code came up
        self.lane_cpu_ms, self.spread = 0, SpreadWindow()
        self.pacer = pacer  # None: the flow has no byte budget
        self.is_stopping = False
        self.wants_discovery = False  # a topic is not what the plan says: look at both again
        self.lost_topics_at: float | None = None
        """When discovery last missed a topic: deleted, or hidden by a right that was taken away."""
        self.copying_since: float | None = None  # before it Spark is coming up
        self.finished_at: float | None = None
        self._host = host
        self._lane_count, self._lease_s = lane_count, lease_s
        self._next_change = self.clock.monotonic()
        self._change_s = first_change_s
        """How long after the start of a lease the next one begins; the first is another's share."""
        self._start, self._once = start, once
        # the process before us did not say goodbye: its lanes may still send for a while
        now, silence_s = self.clock.monotonic(), late_requests.SILENCE_MS / 1000
        self._foreign_until = now + (0.0 if clean else late_requests.over_s())
        self._old_lanes_until = now + (0.0 if clean else silence_s)
        self._starts = itertools.count()
        self._map = MapRetry(flow=name, clock=clock)
        self._lease_retry = LeaseRetry(clock=clock)
        self.intents = FlowIntents()  # what people want of the flow
        self.holds_back = ""
        """Why nothing begins that has not run yet: what is wanted of it cannot be read."""
        self.awaits_plans = False
        """Nor does it before topics were looked for: the flow was paused when it was set up."""
        self._found: tuple[PartitionPlan, ...] = ()
        self.set_plans(plans)

    # -- what is to be mirrored

    def set_plans(self, plans: Iterable[PartitionPlan]) -> None:
        """Topic discovery found this: new ones are started, missing ones released."""
        self._found = tuple(plans)
        self.awaits_plans = False
        self._replan()

    def _replan(self) -> None:
        leaving = replan(self.partitions, self._found, self.intents, self._new)
        if any(not partition.is_wanted for partition in leaving):
            self.lost_topics_at = self.clock.monotonic()
        self._release(leaving)

    def follow(self, intents: FlowIntents) -> None:
        """People want something else than before."""
        self.intents = intents
        self._replan()

    def hold_back(self, error: TwinlogError | None) -> None:
        """What is wanted cannot be read: nothing begins that has not run yet, and it says so; None:
        it can be read again.
        """
        self.holds_back = "" if error is None else str(error)
        hold_back(self.partitions.values(), error)

    def go_on_from(self, former: Iterable[Partition]) -> None:
        """Of the run before."""
        go_on_from(self.partitions, former, self._foreign_until)

    def _new(self, plan: PartitionPlan) -> Partition:
        shared, until = not self.work.is_ours_alone, self._foreign_until
        return Partition(
            plan=plan, clock=self.clock, spread=self.spread, is_shared=shared, wait_until=until
        )

    # -- turning

    def tick(self) -> None:
        """Do what time asks for; called about ten times a second."""
        now = self.clock.monotonic()
        self._reap()
        self._drop_silent()
        if self.is_stopping:
            self._stop_lanes()
            return
        self._tend_leases(now)
        self._assign(now)
        if self.pacer is not None:
            self.pacer.tend(self.lanes(), self.partitions.values())
        if self._once and self.is_settled:
            self.stop()

    @property
    def current(self) -> Lease | None:
        return next((le for le in self.leases if le.state is LeaseState.CURRENT), None)

    @property
    def has_work(self) -> bool:
        return bool(self.partitions) or self.awaits_plans

    @property
    def is_finished(self) -> bool:
        """Stopped, and no lane is left."""
        return self.is_stopping and not self.leases

    @property
    def is_settled(self) -> bool:
        """With `--once`: nothing is left that could still be copied."""
        return all(p.is_over or p.troubled_s() > ONCE_GIVES_UP_S for p in self.partitions.values())

    def stop(self) -> None:
        """End all lanes; each drains first."""
        self.is_stopping = True
        self._stop_lanes()

    def _stop_lanes(self) -> None:
        for lane in self.lanes():
            lane.stop()
        for lease in self.leases:
            if not lease.lanes and lease.age_s > 1.0:
                lease.job.cancel()

    def abort(self) -> None:
        """End the Spark jobs without waiting for their lanes."""
        for lease in self.leases:
            lease.job.cancel()

    # -- leases

    def lanes(self) -> list[Lane]:
        """All lanes of all leases."""
        return [lane for lease in self.leases for lane in lease.lanes.values()]

    def _reap(self) -> None:
        for lease in [le for le in self.leases if le.job.is_done]:
            if lease.lanes and lease.job.error is None:
                continue  # their last messages are still on the way
            self.leases.remove(lease)
            for lane in (*lease.lanes.values(), *lease.waiting.values()):
                self._lost(lane)
            if lease.job.error is not None and not self.is_stopping:
                self._lease_failed(lease, lease.job.error)
        if self.is_finished and self.finished_at is None:
            self.finished_at = self.clock.monotonic()

    def _lease_failed(self, lease: Lease, error: TwinlogError) -> None:
        """The Spark job ended by itself; without a ready lane it is likely to do so again."""
        self._log.warning("a lease ended early: %s", error)
        self._lease_retry.on_failure()
        self.errors[error.code] += 1
        if self._once and self._lease_retry.failed >= ONCE_LEASE_TRIES:
            for partition in self.partitions.values():
                if partition.placement is Placement.PENDING:
                    partition.troubled(error.code, error.message, retriable=False)

    def _tend_leases(self, now: float) -> None:
        warming = next((le for le in self.leases if le.state is LeaseState.WARMING), None)
        if warming is not None and warming.is_deserted:  # a lane froze before it was ready
            warming.state, warming = LeaseState.RETIRING, None
        if self.intents.pause is not None:
            for lease in self.leases:
                lease.state = LeaseState.RETIRING
        elif warming is None:
            self._begin_lease(now)
        elif warming.is_warm:
            self._promote(warming)
        for lease in self.leases:
            lease.tend()

    def _begin_lease(self, now: float) -> None:
        current = self.current
        # lanes that were begun otherwise than they would be now make room at once
        lasts = current is not None and not current.is_deserted and current.work is self.work
        if lasts and (now < self._next_change or self._once):
            return
        if self._lease_retry.is_due and self.partitions:
            size = max(1, self._lane_count(len(self.partitions)))
            number, job = self._host.start_lease(self, size)
            lease = Lease(number=number, size=size, job=job, work=self.work, clock=self.clock)
            self.leases.append(lease)
            self._next_change, self._change_s = now + self._change_s, self._lease_s

    def _promote(self, warm: Lease) -> None:
        before = self.current
        warm.state = LeaseState.CURRENT
        if self.pacer is not None and not (warm.work.has_budget or self.work.has_budget):
            self.pacer = None  # until now its lanes waited for their shares
        if before is not None:
            self._retire(before)

    def _retire(self, lease: Lease) -> None:
        lease.state = LeaseState.RETIRING
        for lane in lease.lanes.values():
            self._release(lane.partitions.values())

    def _release(self, partitions: Iterable[Partition]) -> None:
        by_lane: dict[LaneKey, list[TopicPartition]] = {}
        for partition in partitions:
            if partition.lane is not None:
                by_lane.setdefault(partition.lane, []).append(partition.plan.source)
        for lane in self.lanes():
            tps = [tp for tp in by_lane.get(lane.key, ()) if tp not in lane.releasing]
            if tps:
                lane.releasing.update(tps)
                lane.peer.send(Release(partitions=tuple(tps)))

    # -- giving partitions to lanes

    def _assign(self, now: float) -> None:
        current = self.current
        if current is None or not current.ready_lanes:
            return
        self._give([p for p in self._due(now) if p.handed is not None], current, {})
        if self._map.is_due and self._cold():
            self._map.begin()
            self._host.read_map(self, self._on_map)

    def _is_held_back(self, partition: Partition) -> bool:
        waits = partition.taken is None and bool(self.holds_back or self.awaits_plans)
        return waits or (self._once and partition.placement is Placement.FAILED)

    def _due(self, now: float) -> list[Partition]:
        due = (p for p in self.partitions.values() if p.is_due(now))
        return [p for p in due if not self._is_held_back(p)]

    def _cold(self) -> list[Partition]:
        return [p for p in self._due(self.clock.monotonic()) if p.handed is None]

    def map_failed(self, error: TwinlogError) -> None:
        """The map could not be read: what waits for it says so, and it is read again later."""
        self._map.failed(error)
        self.errors[error.code] += 1
        for partition in self._cold():
            unmapped(partition, error)

    def _on_map(self, maps: Maps) -> None:
        self._map.works()
        current = self.current
        if self.is_stopping or current is None or not current.ready_lanes:
            return
        cold = []
        for partition in self._cold():
            if partition.left_at > self._map.began:
                continue  # its lane wrote rows while this was read: the next reading has them
            if (error := maps.problem(partition.plan.source)) is not None:
                self.errors[error.code] += 1
                unmapped(partition, error)
            elif not put_off(partition, maps, self._start_of(partition.plan)):
                cold.append(partition)
        self._give(may_begin(cold, maps, self.name), current, maps)
        self.wants_discovery |= any(p.plan.may_pass and p.failure is not None for p in cold)

    def _start_of(self, plan: PartitionPlan) -> StartAt:
        return self._start.at(plan.source, is_new=plan.is_new)

    def _give(
        self,
        partitions: list[Partition],
        lease: Lease,
        maps: Mapping[PartitionKey, PartitionMap],
    ) -> None:
        if not partitions:
            return
        most_runs = runs_for_each(len(partitions))
        for number, part in spread(partitions, lease.ready_lanes).items():
            lane = lease.lanes[number]
            takes = []
            for partition in part:
                if partition.handed is None:
                    partition.term = Term(self.generation, next(self._starts))
                takes.append(take_of(partition, maps, self._start_of(partition.plan), most_runs))
                partition.placement, partition.taken = Placement.ASSIGNED, partition.plan
                partition.lane = lane.key
                partition.handed = None
                partition.progress, partition.is_seen = None, False
                lane.partitions[partition.plan.source] = partition
            for message in in_messages(takes):
                lane.peer.send(message)
        if self.pacer is not None:
            self.pacer.soon()

    # -- what lanes say

    def on_connected(self, peer: Peer) -> Lane | None:
        """A lane came up; None when its lease is not ours any more."""
        identity = peer.identity
        lease = next((le for le in self.leases if le.number == identity.lease), None)
        if lease is None or self.is_stopping:
            peer.send(Stop())
            return None
        key = LaneKey(identity.lease, identity.lane, identity.attempt)
        lane = Lane(key=key, peer=peer, work=lease.work)
        if lease.join(lane):
            lane.begin()
        return lane

    def on_message(self, lane: Lane, message: object) -> None:
        match message:
            case _ if lane.is_waiting:
                return
            case Ready():
                lane.ready(self.clock.monotonic())
                self._lease_retry.works()
                if self.copying_since is None:
                    self.copying_since = self.clock.monotonic()
                self.tick()
            case Progress():
                self._on_degraded(lane, message)
                lane.throttle = message.throttle
                self.lane_cpu_ms += message.cpu_ms
                for progress in message.partitions:
                    self._on_progress(lane, progress)
            case Released():
                for one in message.partitions:
                    self._on_released(lane, one)
                self._assign(self.clock.monotonic())
            case Troubled():
                said = message.worded(self.name, is_shared=not self.work.is_ours_alone)
                self._on_troubled(lane, said)
            case _:
                self._log.warning("unexpected message: %s", message)

    def _on_progress(self, lane: Lane, progress: PartitionProgress) -> None:
        partition = lane.partitions.get(progress.source)
        if partition is not None:
            self.errors.update(partition.on_progress(progress))
            if self._once and partition.learns_end(progress):
                self._release([partition])  # and gives it again, with that end

    def _on_degraded(self, lane: Lane, said: Progress) -> None:
        """A lane cannot reach a cluster, or can again."""
        if lane.reaches(said.degraded, self.clock.monotonic()):
            self.errors[UNREACHABLE] += 1
        held: Iterable[Partition] = lane.partitions.values()
        if not lane.is_ready:  # it gets none before it reaches both: they wait for it
            held = [p for p in self.partitions.values() if p.placement is Placement.PENDING]
        for partition in held:
            partition.reached(said.degraded)

    def _on_released(self, lane: Lane, one: ReleasedPartition) -> None:
        partition = lane.partitions.pop(one.source, None)
        lane.releasing.discard(one.source)
        if partition is None or one.term != partition.term:
            return
        if one.done:
            partition.leave(Placement.DONE)
            partition.failure = None
            return
        partition.leave(Placement.PENDING if partition.is_wanted else Placement.RELEASED)
        may_go_on = partition.is_wanted and not partition.is_paused and not partition.plan.targets
        partition.handed = one.handed if may_go_on and not partition.is_replaced else None
        partition.retry_at = 0.0

    def _on_troubled(self, lane: Lane, trouble: Troubled) -> None:
        partition = lane.partitions.pop(trouble.source, None)
        lane.releasing.discard(trouble.source)
        if partition is None:
            return
        # true also of one that is not wanted now: it may be again within the second
        partition.lost, partition.stands_at = trouble.lost or partition.lost, trouble.poison
        if trouble.wait_ms:
            partition.wait_at_least(self.clock.monotonic() + trouble.wait_ms / 1000)
        if not partition.is_wanted:
            partition.leave(Placement.RELEASED)
            return
        if has(trouble.code, Trait.LOG_FINDING) and self.clock.monotonic() < self._old_lanes_until:
            # looked at while lanes of the process before us still write: no finding, and no alarm
            self._tell(trouble, "; looking again")
            message = f"{trouble.source}: lanes of the process before us may still write to it"
            partition.troubled("OTHER_WRITER", message, retriable=True)
            partition.retry_at = min(partition.retry_at, self._old_lanes_until)
            return
        before = partition.failure
        self.errors[trouble.code] += 1
        if has(trouble.code, Trait.STALE_PLAN):
            self.wants_discovery = True
        partition.troubled(trouble.code, trouble.message, retriable=trouble.is_retriable)
        if before is None or before.code != trouble.code:
            # whoever shows the snapshots says it to people, a line per topic and code
            self._tell(trouble)

    def _tell(self, trouble: Troubled, then: str = "") -> None:
        tp, code = trouble.source, trouble.code
        self._log.info("%s [%s]%s", trouble.message, code, then, partition=tp, code=code)

    def on_gone(self, lane: Lane) -> None:
        """The lane's channel ended."""
        for lease in self.leases:
            if (heir := lease.leave(lane)) is not None:
                is_retiring = lease.state is LeaseState.RETIRING
                is_over = self.is_stopping or lane.stop_sent or is_retiring
                (heir.stop if is_over else heir.begin)()
        self._lost(lane)

    def _drop_silent(self) -> None:
        """Give up lanes that were not heard for so long that they have stopped by themselves.

        A frozen process or a cut network ends no connection: only the silence tells.
        """
        oldest = self.clock.boot() - late_requests.SILENCE_MS / 1000
        for lease in self.leases:
            for lane in list(lease.lanes.values()):
                if lane.peer.last_heard < oldest:
                    self._log.warning("lane %s is given up: it is silent", lane.key)
                    lease.fell_silent = True
                    self.on_gone(lane)

    def _lost(self, lane: Lane) -> None:
        late_s = late_requests.over_s() + lane.throttle.longest_ms / 1000
        until = self.clock.monotonic() + late_s - (self.clock.boot() - lane.peer.last_heard)
        for partition in lane.partitions.values():
            if partition.lane == lane.key:
                partition.lost_lane()
                partition.wait_at_least(until)
        lane.partitions.clear()
        lane.peer.close("its partitions were given away")
