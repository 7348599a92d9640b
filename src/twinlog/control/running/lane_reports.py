"""What lanes report of their partitions: progress, handed back, failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from twinlog.codes import Trait, has
from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.partitions import UNREACHABLE, Partition, Placement
from twinlog.control.running.run_state import RunState
from twinlog.hidden import without_secrets
from twinlog.lane.messages import PartitionProgress, Progress, ReleasedPartition, Troubled


class LaneReports:
    """Of one run."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    def progress(self, lane: Lane, said: Progress) -> None:
        """About once a second, from every lane."""
        self._degraded(lane, said)
        lane.throttle = said.throttle
        self._run.lane_cpu_ms += said.cpu_ms
        for progress in said.partitions:
            self._partition(lane, progress)

    def _partition(self, lane: Lane, progress: PartitionProgress) -> None:
        partition = lane.partitions.get(progress.source)
        if partition is not None:
            self._run.errors.update(partition.on_progress(progress))
            if self._run.once and partition.learns_end(progress):
                self._run.release([partition])  # and gives it again, with that end

    def _degraded(self, lane: Lane, said: Progress) -> None:
        """A lane cannot reach a cluster, or can again."""
        away = said.degraded
        if away is not None:
            away = replace(away, message=without_secrets(away.message))
        if lane.reaches(away, self._run.clock.monotonic()):
            self._run.errors[UNREACHABLE] += 1
        held: Iterable[Partition] = lane.partitions.values()
        if not lane.is_ready:  # it gets none before it reaches both: they wait for it
            every = self._run.partitions.values()
            held = [p for p in every if p.placement is Placement.PENDING]
        for partition in held:
            partition.reached(away)

    def released(self, lane: Lane, one: ReleasedPartition) -> None:
        """The lane has handed it back: done, or where the next lane resumes."""
        partition = lane.partitions.pop(one.source, None)
        lane.releasing.discard(one.source)
        if partition is None or one.term != partition.term:
            return
        if one.done:
            partition.leave(Placement.DONE)
            partition.failure = None
            return
        partition.leave(Placement.PENDING if partition.is_wanted else Placement.RELEASED)
        may_continue = (
            partition.is_wanted and not partition.is_paused and not partition.plan.targets
        )
        partition.handed = one.handed if may_continue and not partition.is_replaced else None
        partition.retry_at = 0.0

    def troubled(self, lane: Lane, trouble: Troubled) -> None:
        """The lane has handed it back because its copy failed."""
        run = self._run
        trouble = trouble.worded(run.name, is_shared=not run.work.is_ours_alone)
        trouble = replace(trouble, message=without_secrets(trouble.message))
        partition = lane.partitions.pop(trouble.source, None)
        lane.releasing.discard(trouble.source)
        if partition is None:
            return
        # true also of one that is not wanted now: it may be again within the second
        partition.lost, partition.stands_at = trouble.lost or partition.lost, trouble.poison
        if trouble.wait_ms:
            partition.wait_at_least(run.clock.monotonic() + trouble.wait_ms / 1000)
        if not partition.is_wanted:
            partition.leave(Placement.RELEASED)
            return
        if has(trouble.code, Trait.LOG_FINDING) and run.clock.monotonic() < run.old_lanes_until:
            # checked while lanes of the process before us still write: no finding, and no alarm
            self._log_trouble(trouble, "; looking again")
            message = f"{trouble.source}: lanes of the process before us may still write to it"
            partition.troubled("OTHER_WRITER", message, retriable=True)
            partition.retry_at = min(partition.retry_at, run.old_lanes_until)
            return
        before = partition.failure
        run.errors[trouble.code] += 1
        if has(trouble.code, Trait.STALE_PLAN):
            run.wants_discovery = True
        partition.troubled(trouble.code, trouble.message, retriable=trouble.is_retriable)
        if before is None or before.code != trouble.code:
            # whoever shows the snapshots says it to people, a line per topic and code
            self._log_trouble(trouble)

    def _log_trouble(self, trouble: Troubled, then: str = "") -> None:
        tp, code = trouble.source, trouble.code
        self._run.log.info("%s [%s]%s", trouble.message, code, then, partition=tp, code=code)
