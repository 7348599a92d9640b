"""One flow while it runs, from its first lease to its end.

`tick` does what is due: it renews leases, gives partitions to lanes, and gives up silent lanes.
Between ticks, messages of lanes change the state of partitions (`LaneReports`). Everything here
runs in the supervisor's thread. Work that may block (reads of the map and of topics) is done in
other threads, and its result arrives as a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from twinlog.channel.server import Peer
from twinlog.codes import Trait, has
from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.partitions import UNREACHABLE, Partition, Placement
from twinlog.control.lanes.wanted import continue_from, hold_back, replan
from twinlog.control.running.flow_transforms import UNAVAILABLE
from twinlog.control.running.giving import Assigner, ReadMap
from twinlog.control.running.lane_use import LaneUse
from twinlog.control.running.run_leases import RunLeases, StartLease
from twinlog.control.running.run_state import RunState
from twinlog.errors import TwinlogError
from twinlog.lane.messages import (
    PartitionProgress,
    Progress,
    Ready,
    Released,
    ReleasedPartition,
    Troubled,
)
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.intents import FlowIntents
from twinlog.model import TopicPartition
from twinlog.shown import without_secrets
from twinlog.spark.application import RecordSkipped

ONCE_GIVES_UP_S: Final = 60.0


@dataclass(kw_only=True, eq=False, repr=False)
class FlowRun(RunState):
    """One flow in one generation, as its process runs it."""

    plans: Iterable[PartitionPlan]
    """The partitions to copy, by the last discovery."""
    start_lease: StartLease
    has_spark: Callable[[], bool]
    """Returns True if Spark has an application, so that a lease can start."""
    read_map: ReadMap
    lane_count: Callable[[int, bool], int]
    lease_s: float
    first_change_s: float
    lost_topics_at: float | None = None
    """Monotonic time at which a discovery last missed a topic (deleted, or hidden)."""
    finished_at: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._leases = RunLeases(
            self,
            self.start_lease,
            self.has_spark,
            self.lane_count,
            lease_s=self.lease_s,
            first_change_s=self.first_change_s,
        )
        self._assigner = Assigner(self, self.read_map)
        self._lane_use = LaneUse(self)
        self._reports = LaneReports(self)
        self.set_plans(self.plans)

    # -- plans and intents

    def set_plans(self, plans: Iterable[PartitionPlan]) -> None:
        """Apply the result of a discovery: start new partitions, release missing ones."""
        self.plans = tuple(plans)
        self.awaits_plans = False
        self._replan()

    def _replan(self) -> None:
        leaving = replan(self.partitions, self.plans, self.intents, self._new_partition)
        if any(not partition.is_wanted for partition in leaving):
            self.lost_topics_at = self.clock.monotonic()
        self.release(leaving)

    def follow(self, intents: FlowIntents) -> None:
        """Apply changed intents of operators."""
        self.intents = intents
        self._replan()

    def hold_back(self, error: TwinlogError | None) -> None:
        """Prevent partitions from starting for the first time while intents cannot be read.
        `error`: None if intents can be read again.
        """
        self.hold_reason = "" if error is None else str(error)
        hold_back(self.partitions.values(), error)

    def continue_from(self, former: Iterable[Partition]) -> None:
        """Continue the counts of the previous run's partitions."""
        continue_from(self.partitions, former, self._new_partition)

    def _new_partition(self, plan: PartitionPlan) -> Partition:
        shared, until = not self.work.is_ours_alone, self.late_requests_until
        return Partition(
            plan=plan,
            flow=self.name,
            clock=self.clock,
            spread=self.spread,
            is_shared=shared,
            wait_until=until,
        )

    # -- periodic work

    def tick(self) -> None:
        """Do what is due. Called about ten times a second."""
        now = self.clock.monotonic()
        self._leases.reap()
        if self.is_finished and self.finished_at is None:
            self.finished_at = now
        self._leases.drop_silent()
        if self.is_stopping:
            self._leases.stop()
            return
        self._leases.tick(now)
        self._lane_use.tick(now)
        if self.transforms is not None:
            ports = (lane.range_port for lane in self.lanes())
            self.transforms.tick(port for port in ports if port is not None)
        self._assigner.assign(now)
        if self.pacer is not None:
            self.pacer.tick(self.lanes(), self.partitions.values())
        if self.once and self.is_settled:
            self.stop()

    @property
    def has_work(self) -> bool:
        return bool(self.partitions) or self.awaits_plans

    @property
    def is_finished(self) -> bool:
        """Return True if the run was stopped and no lease is left."""
        return self.is_stopping and not self.leases

    @property
    def is_settled(self) -> bool:
        """Return True if `--once` can copy nothing more."""
        return all(p.is_over or p.troubled_s() > ONCE_GIVES_UP_S for p in self.partitions.values())

    def stop(self) -> None:
        """Stop all lanes. Each drains its partitions first."""
        self.is_stopping = True
        self._leases.stop()

    def abort(self) -> None:
        """Cancel the Spark jobs without waiting for their lanes."""
        for lease in self.leases:
            lease.job.cancel()

    # -- events

    def on_connected(self, peer: Peer) -> Lane | None:
        """Add a connected lane. Return None if its lease has ended, or the run is stopping."""
        return self._leases.on_connected(peer)

    def on_message(self, lane: Lane, message: object) -> None:
        match message:
            case _ if lane.is_waiting:
                return
            case Ready():
                lane.ready(message, self.clock.monotonic())
                self._leases.attempts.reset()
                if self.copying_since is None:
                    self.copying_since = self.clock.monotonic()
                self.tick()
            case Progress():
                self._reports.on_progress(lane, message)
            case Released():
                for returned in message.partitions:
                    self._reports.on_released(lane, returned)
                back = (self.partitions.get(returned.source) for returned in message.partitions)
                self._assigner.assign_handed(filter(None, back), self.clock.monotonic())
            case Troubled():
                self._reports.on_troubled(lane, message)
            case _:
                self.log.warning("unexpected message: %s", message)

    def on_gone(self, lane: Lane) -> None:
        """Handle the end of a lane's connection."""
        self._leases.on_gone(lane)

    def on_skipped(self, skipped: RecordSkipped) -> None:
        """Count and log a record that is not copied because a transform fails for it."""
        code, tp = "RECORD_NOT_TRANSFORMED", TopicPartition(skipped.topic, skipped.partition)
        where = f"goes to {self.work.dead_letters}" if self.work.dead_letters else "is left out"
        self.errors[code] += 1
        self.log.info(
            "record %d %s, because a transform fails for it: %s [%s]",
            skipped.offset, where, skipped.text, code, partition=tp, code=code,
        )  # fmt: skip


class LaneReports:
    """Applies the reports of a run's lanes to its partitions."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    def on_progress(self, lane: Lane, report: Progress) -> None:
        """Handle a progress report. Each lane sends one about once a second, and an extra one for
        each partition that leaves it.
        """
        lane.throttle = report.throttle
        self._run.lane_cpu_ms += report.cpu_ms
        if report.load is not None:  # not an extra report: `_degraded` searches all partitions
            self._degraded(lane, report)
            self._run.received_bytes += report.load.received_bytes
            self._run.sent_bytes += report.load.sent_bytes
            lane.load = report.load
        for progress in report.partitions:
            self._partition(lane, progress)

    def _partition(self, lane: Lane, progress: PartitionProgress) -> None:
        partition = lane.partitions.get(progress.source)
        if partition is not None:
            self._run.errors.update(partition.on_progress(progress))
            if self._run.once and partition.learns_end(progress):
                # so that a lane gets the partition again, with its end
                self._run.release([partition])

    def _degraded(self, lane: Lane, report: Progress) -> None:
        """Store on a lane and its partitions whether the lane reaches both clusters, or why not."""
        away = report.unreachable
        if away is not None:
            away = structs.replace(away, message=without_secrets(away.message))
        if lane.note_unreachable(away, self._run.clock.monotonic()):
            self._run.errors[UNREACHABLE] += 1
        held: Iterable[Partition] = lane.partitions.values()
        if not lane.is_ready:
            # the lane has no partition yet, so note this on all pending partitions, which wait for
            # lanes
            every = self._run.partitions.values()
            held = [p for p in every if p.placement is Placement.PENDING]
        for partition in held:
            partition.note_unreachable(away)

    def on_released(self, lane: Lane, returned: ReleasedPartition) -> None:
        """Handle a partition that a lane has returned after draining it. The partition is done, or
        the next lane resumes at its position.
        """
        partition = lane.partitions.pop(returned.source, None)
        lane.releasing.discard(returned.source)
        if partition is None or returned.term != partition.term:
            return
        if returned.done:
            partition.leave_lane(Placement.DONE)
            partition.failure = None
            return
        partition.leave_lane(Placement.PENDING if partition.is_wanted else Placement.RELEASED)
        may_continue = (
            partition.is_wanted and not partition.is_paused and not partition.plan.targets
        )
        partition.handed = returned.handed if may_continue and not partition.is_replaced else None
        partition.retry_at = 0.0

    def on_troubled(self, lane: Lane, trouble: Troubled) -> None:
        """Handle a partition that a lane has returned because its copy failed."""
        run = self._run
        trouble = trouble.worded(run.name, is_shared=not run.work.is_ours_alone)
        trouble = structs.replace(trouble, message=without_secrets(trouble.message))
        partition = lane.partitions.pop(trouble.source, None)
        lane.releasing.discard(trouble.source)
        if partition is None:
            return
        # noted even if the partition is not wanted now, because it may soon be wanted again
        partition.lost, partition.blocking_offsets = trouble.lost or partition.lost, trouble.poison
        if trouble.wait_ms:
            partition.wait_at_least(run.clock.monotonic() + trouble.wait_ms / 1000)
        if not partition.is_wanted:
            partition.leave_lane(Placement.RELEASED)
            return
        if has(trouble.code, Trait.LOG_FINDING) and run.clock.monotonic() < run.old_lanes_until:
            # a finding may be caused by lanes of the former process that still write, so raise no
            # alarm
            self._log_trouble(trouble, "; checking again")
            message = f"{trouble.source}: lanes of the former process may still write to its copy"
            partition.note_failure("OTHER_WRITER", message, retriable=True)
            partition.retry_at = min(partition.retry_at, run.old_lanes_until)
            return
        before = partition.failure
        run.errors[trouble.code] += 1
        if has(trouble.code, Trait.STALE_PLAN):
            run.wants_discovery = True
        partition.note_failure(trouble.code, trouble.message, retriable=trouble.is_retriable)
        if trouble.code == UNAVAILABLE and run.transforms is not None:
            if trouble.had_begun:
                run.transforms.on_unanswered(trouble.message)
            else:
                run.wants_discovery = True  # discovery creates a missing topic for dead letters
        if before is None or before.code != trouble.code:
            # logged as info, because readers of the snapshots report it to operators, a line per
            # topic and code
            self._log_trouble(trouble)

    def _log_trouble(self, trouble: Troubled, then: str = "") -> None:
        tp, code = trouble.source, trouble.code
        self._run.log.info("%s [%s]%s", trouble.message, code, then, partition=tp, code=code)
