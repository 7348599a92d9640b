"""One flow at work: partitions are given to lanes, lanes come and go with leases, nothing is ever
held by two.

Everything here runs in the supervisor's thread; what may block (the map, topics) is done elsewhere
and comes back as a call. The rules of giving a partition away:

1. A partition that was handed over (`Released` with a start point) goes to the next lane at once.
2. Any other start is cold: the offset map is read to its end first, and the Take carries a new
   term.
3. When a lane is lost, an unprotected partition waits until that lane has surely stopped (it stops
   by itself `SILENCE_MS` after it last heard us, which is not before we last heard it) and its
   sockets have given up.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from twinlog.channel.peer import Peer
from twinlog.clock import boot_clock
from twinlog.codes import LOG_FINDINGS, STALE_PLAN
from twinlog.config.flow.start import Starts
from twinlog.control.flow.flow_host import Host
from twinlog.control.lanes.lanes import Lane, Lease, LeaseState, spread
from twinlog.control.lanes.map_retry import MapRetry, unmapped
from twinlog.control.lanes.pacing import Pacer
from twinlog.control.lanes.partitions import UNREACHABLE, LaneKey, Partition, Placement
from twinlog.control.lanes.takes import (
    in_messages,
    placed_as_before,
    put_off,
    runs_for_each,
    take_of,
)
from twinlog.errors import TwinlogError
from twinlog.lane.late_requests import USER_TIMEOUT_MS
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
from twinlog.model import StartAt, TopicPartition
from twinlog.survey.map_reader import Maps

log = logging.getLogger(__name__)

SILENCE_MS: Final = 10_000
ONCE_GIVES_UP_S: Final = 60.0
LEASE_RETRY_S: Final = 2.0
MAX_LEASE_RETRY_S: Final = 30.0
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
    ) -> None:
        self.name = name
        self.work = work
        self.generation = generation
        self.partitions: dict[TopicPartition, Partition] = {}
        self.leases: list[Lease] = []
        self.errors: Counter[str] = Counter()
        """How often each code came up."""
        self.pacer = pacer
        """Keeps the flow within its byte budget, where it has one."""
        self.is_stopping = False
        self.wants_discovery = False
        """A topic is not what the plan says: look at both clusters again."""
        self.lost_topics_at: float | None = None
        """When discovery last missed a topic: deleted, or hidden by a right that was taken away."""
        self.started = time.monotonic()
        self.copying_since: float | None = None
        """Since the first lane was ready: before it Spark is coming up."""
        self.finished_at: float | None = None
        self._host = host
        self._lane_count = lane_count
        self._lease_s = lease_s
        self._next_change = time.monotonic()
        self._change_s = first_change_s
        """How long after the start of a lease the next one begins; the first is another's share."""
        self._start = start
        self._once = once
        # the process before us did not say goodbye: its lanes may still send for a while
        wait_s = 0.0 if clean else (SILENCE_MS + USER_TIMEOUT_MS) / 1000
        self._foreign_until = time.monotonic() + wait_s
        self._old_lanes_until = time.monotonic() + (0.0 if clean else SILENCE_MS / 1000)
        self._starts = itertools.count()
        self._map = MapRetry(flow=name)
        self._next_lease_try = 0.0
        self._failed_leases = 0
        self.set_plans(plans)

    # -- what is to be mirrored

    def set_plans(self, plans: Iterable[PartitionPlan]) -> None:
        """Topic discovery found this: new ones are started, missing ones released."""
        wanted = {plan.source: plan for plan in plans}
        for tp, plan in wanted.items():
            known = self.partitions.get(tp)
            if known is None:
                self.partitions[tp] = Partition(plan=plan, wait_until=self._foreign_until)
            else:
                if known.plan.targets != plan.targets:
                    known.handed = None
                    self._release([known])
                known.replan(plan)
                if known.placement is Placement.RELEASED:
                    known.placement = Placement.PENDING
        for tp, partition in self.partitions.items():
            if tp not in wanted and partition.is_wanted:
                partition.is_wanted = False
                partition.failure = None  # whatever it was, it is nobody's concern any more
                self.lost_topics_at = time.monotonic()
                self._release([partition])
                if partition.lane is None:
                    partition.leave(Placement.RELEASED)
        self.partitions = {tp: p for tp, p in self.partitions.items() if not p.is_forgotten}

    def go_on_from(self, former: Iterable[Partition]) -> None:
        """Partitions of the run before: counts go on, what is not wanted any more is RELEASED."""
        for partition in former:
            known = self.partitions.get(partition.plan.source)
            if known is not None:
                known.records, known.bytes = partition.total_records, partition.total_bytes
                continue
            partition.is_wanted = False
            partition.leave(Placement.RELEASED)
            partition.failure = None
            self.partitions[partition.plan.source] = partition

    # -- turning

    def tick(self) -> None:
        """Do what time asks for; called about ten times a second."""
        now = time.monotonic()
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
    def is_finished(self) -> bool:
        """Stopped, and no lane is left."""
        return self.is_stopping and not self.leases

    @property
    def is_settled(self) -> bool:
        """With `--once`: nothing is left that could still be copied."""
        return all(self._is_final(p) for p in self.partitions.values())

    def _is_final(self, partition: Partition) -> bool:
        if partition.placement in (Placement.DONE, Placement.RELEASED, Placement.FAILED):
            return True
        failure = partition.failure
        return (
            failure is not None and time.time() * 1000 - failure.since_ms > ONCE_GIVES_UP_S * 1000
        )

    def stop(self) -> None:
        """End all lanes; each drains first."""
        self.is_stopping = True
        self._stop_lanes()

    def _stop_lanes(self) -> None:
        for lane in self.lanes():
            if not lane.stop_sent:
                lane.stop_sent = True
                lane.peer.send(Stop())
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
            self.finished_at = time.monotonic()

    def _lease_failed(self, lease: Lease, error: TwinlogError) -> None:
        """The Spark job ended by itself; without a ready lane it is likely to do so again."""
        log.warning("%s: a lease ended early: %s", self.name, error)
        self._failed_leases += 1
        self.errors[error.code] += 1
        pause_s = min(LEASE_RETRY_S * 2**self._failed_leases, MAX_LEASE_RETRY_S)
        self._next_lease_try = time.monotonic() + pause_s
        if self._once and self._failed_leases >= ONCE_LEASE_TRIES:
            for partition in self.partitions.values():
                if partition.placement is Placement.PENDING:
                    partition.troubled(error.code, error.message, retriable=False)

    def _tend_leases(self, now: float) -> None:
        warming = next((le for le in self.leases if le.state is LeaseState.WARMING), None)
        current = self.current
        if warming is not None and warming.is_deserted:  # a lane froze before it was ready
            warming.state, warming = LeaseState.RETIRING, None
        if warming is None:
            due = current is None or current.is_deserted
            due = due or (now >= self._next_change and not self._once)
            if due and now >= self._next_lease_try and self.partitions:
                size = max(1, self._lane_count(len(self.partitions)))
                number, job = self._host.start_lease(self, size)
                self.leases.append(Lease(number=number, size=size, job=job))
                self._next_change, self._change_s = now + self._change_s, self._lease_s
        elif warming.is_warm:
            warming.state = LeaseState.CURRENT
            if current is not None:
                self._retire(current)
        for lease in self.leases:
            if lease.state is LeaseState.RETIRING:
                self._end_lanes(lease)

    def _end_lanes(self, lease: Lease) -> None:
        if lease.is_deserted:
            lease.job.cancel()  # what is left of it does nothing any more
        for lane in lease.lanes.values():
            if not lane.partitions and not lane.stop_sent:
                lane.stop_sent = True
                lane.peer.send(Stop())

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
        due = [p for p in self.partitions.values() if p.is_due(now) and not self._is_given_up(p)]
        self._give([p for p in due if p.handed is not None], current, {})
        if self._map.is_due and self._cold():
            self._map.begin()
            self._host.read_map(self, self._on_map)

    def _is_given_up(self, partition: Partition) -> bool:
        return self._once and partition.placement is Placement.FAILED

    def _cold(self) -> list[Partition]:
        now = time.monotonic()
        return [
            p
            for p in self.partitions.values()
            if p.is_due(now) and p.handed is None and not self._is_given_up(p)
        ]

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
            source = partition.plan.source
            if (error := maps.problem(source)) is not None:
                self.errors[error.code] += 1
                unmapped(partition, error)
            elif not put_off(partition, maps, self._start_of(partition.plan)):
                cold.append(partition)
        self._give(placed_as_before(cold, maps), current, maps)

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
                start = self._start_of(partition.plan)
                takes.append(take_of(partition, maps, start, most_runs))
                partition.placement, partition.taken = Placement.ASSIGNED, partition.plan
                partition.lane = lane.key
                partition.handed = None
                partition.progress = None
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
        lane = Lane(key=LaneKey(identity.lease, identity.lane, identity.attempt), peer=peer)
        if lease.join(lane):
            peer.send(self.work)
        return lane

    def on_message(self, lane: Lane, message: object) -> None:
        match message:
            case _ if lane.is_waiting:
                return
            case Ready():
                lane.is_ready = True
                self._failed_leases = 0
                if self.copying_since is None:
                    self.copying_since = time.monotonic()
                self.tick()
            case Progress():
                self._on_degraded(lane, message.degraded)
                lane.throttle_ms = message.throttle_ms
                for progress in message.partitions:
                    self._on_progress(lane, progress)
            case Released():
                for one in message.partitions:
                    self._on_released(lane, one)
                self._assign(time.monotonic())
            case Troubled():
                self._on_troubled(lane, message)
            case _:
                log.warning("unexpected message flow=%s message=%s", self.name, message)

    def _on_progress(self, lane: Lane, progress: PartitionProgress) -> None:
        partition = lane.partitions.get(progress.source)
        if partition is not None:
            self.errors.update(partition.on_progress(progress))
            if self._once and partition.learns_end(progress):
                self._release([partition])  # and gives it again, with that end

    def _on_degraded(self, lane: Lane, reason: str) -> None:
        """A lane cannot reach a cluster, or can again."""
        if reason and not lane.degraded:
            self.errors[UNREACHABLE] += 1
        lane.degraded = reason
        held: Iterable[Partition] = lane.partitions.values()
        if not lane.is_ready:  # it gets none before it reaches both: they wait for it
            held = [p for p in self.partitions.values() if p.placement is Placement.PENDING]
        for partition in held:
            if reason:
                partition.unreachable(reason)
            else:
                partition.reachable()

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
        partition.handed = None if partition.plan.targets or partition.is_replaced else one.handed
        partition.retry_at = 0.0

    def _on_troubled(self, lane: Lane, trouble: Troubled) -> None:
        partition = lane.partitions.pop(trouble.source, None)
        lane.releasing.discard(trouble.source)
        if partition is None:
            return
        if not partition.is_wanted:
            partition.leave(Placement.RELEASED)
            return
        partition.lost = trouble.lost or partition.lost
        if trouble.code in LOG_FINDINGS and time.monotonic() < self._old_lanes_until:
            # looked at while lanes of the process before us still write: no finding, and no alarm
            log.info("%s: %s [%s]; looking again", self.name, trouble.message, trouble.code)
            message = f"{trouble.source}: lanes of the process before us may still write to it"
            partition.troubled("OTHER_WRITER", message, retriable=True)
            partition.retry_at = min(partition.retry_at, self._old_lanes_until)
            return
        before = partition.failure
        self.errors[trouble.code] += 1
        if trouble.code in STALE_PLAN:
            self.wants_discovery = True
        partition.troubled(trouble.code, trouble.message, retriable=trouble.is_retriable)
        if trouble.wait_ms:
            partition.wait_until = max(
                partition.wait_until, time.monotonic() + trouble.wait_ms / 1000
            )
        if before is None or before.code != trouble.code:
            # whoever shows the snapshots says it to people, a line per topic and code
            log.info("%s: %s [%s]", self.name, trouble.message, trouble.code)

    def on_gone(self, lane: Lane) -> None:
        """The lane's channel ended."""
        for lease in self.leases:
            if (heir := lease.leave(lane)) is not None:
                is_over = lane.stop_sent or lease.state is LeaseState.RETIRING
                heir.peer.send(Stop() if self.is_stopping or is_over else self.work)
        self._lost(lane)

    def _drop_silent(self) -> None:
        """Give up lanes that were not heard for so long that they have stopped by themselves.

        A frozen process or a cut network ends no connection: only the silence tells.
        """
        oldest = boot_clock() - SILENCE_MS / 1000
        for lease in self.leases:
            for lane in list(lease.lanes.values()):
                if lane.peer.last_heard < oldest:
                    log.warning("lane given up flow=%s lane=%s: it is silent", self.name, lane.key)
                    lease.fell_silent = True
                    self.on_gone(lane)

    def _lost(self, lane: Lane) -> None:
        late_s = (SILENCE_MS + USER_TIMEOUT_MS + lane.throttle_ms) / 1000
        until = time.monotonic() + late_s - (boot_clock() - lane.peer.last_heard)
        for partition in lane.partitions.values():
            if partition.lane == lane.key:
                partition.lost_lane()
                partition.wait_until = max(partition.wait_until, until)
        lane.partitions.clear()
        lane.peer.close("its partitions were given away")
