"""Builds the snapshots of one flow for operators, during its runs and between two runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from twinlog.clock import Clock
from twinlog.codes import FlowState, PartitionState
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.generation import Generation
from twinlog.control.flow.phases import Step
from twinlog.control.flow.snapshots import flow_snapshot, kept_rows, promoted_snapshots
from twinlog.control.flow.trouble import WRONG, Trouble
from twinlog.control.lanes.partitions import Partition
from twinlog.control.running.flow_run import FlowRun
from twinlog.control.watch.snapshot import FlowSince, FlowSnapshot, PartitionSnapshot
from twinlog.control.watch.verified import with_differences
from twinlog.errors import TwinlogError
from twinlog.quantities import plural

ENDING: Final = {
    Step.STOPPED: "this process is shutting down",
    Step.REMOVED: "it was removed from the configuration",
    Step.REPLACED: "the configuration changed: it restarts with the new one",
    Step.HANDED_OVER: "it is handed over to a process that leads fewer flows",
    Step.LOST: "another process may lead it",
    Step.DONE: "everything is done",
}
"""Why a run is shut down, by step. The first reason that applies is shown. Problems and promotions
have their own texts.
"""


@dataclass(slots=True, kw_only=True)
class StatusBuilder:
    """Builds the snapshots of one flow. Used in the supervisor's thread."""

    clock: Clock
    errors: Counter[str] = field(default_factory=Counter)
    """Number of errors outside the current run, by code."""
    copied_since: float | None = None
    """Monotonic time at which a lane of an earlier run was first ready."""
    former: list[Partition] = field(default_factory=list)
    """Partitions of earlier runs. Partitions that are no longer wanted are kept for display."""
    _since: FlowSince = field(default_factory=FlowSince)
    _last: tuple[FlowRun | None, FlowSnapshot | None] = (None, None)

    def keep_results(self, run: FlowRun) -> None:
        """Store the results of a run that has ended, because another run may follow."""
        self.errors.update(run.errors)
        if self.copied_since is None:
            self.copied_since = run.copying_since
        self.former = [*run.partitions.values()]

    def last(self, run: FlowRun | None) -> FlowSnapshot | None:
        """Return the last snapshot, so that partitions are not checked for each reader. Return None
        if that snapshot is of another run, or does not include the run's end.
        """
        seen, shown = self._last
        is_old = seen is not run or (run is not None and run.is_finished)
        return None if is_old else shown

    def of_run(
        self, generation: Generation, why: frozenset[Step], trouble: Trouble | None
    ) -> FlowSnapshot:
        """Return the snapshot of a led flow. `why`: the reasons for the end of its run."""
        run, prepared, led = generation.run, generation.prepared, generation.led
        running = flow_snapshot(
            run,
            prepared.guarantee,
            None if Step.STOPPED in why else trouble,
            prepared.problems,
            self.errors,
            self._since,
            generation.limits(),
        )
        parts, setup = running.partitions, prepared.setup
        more = promoted_snapshots(
            run.intents,
            parts,
            prepared.source_topics,
            lambda topic: setup.policy.format_remote_topic(setup.config.source_alias, topic),
        )
        running = replace(running, partitions=(*parts, *more))
        if generation.source_watch is not None:
            generation.source_watch.log_changes(running)
        verified = led.verified.last
        is_ending = running.state in (FlowState.STOPPING, FlowState.STOPPED)
        ending = next((text for step, text in ENDING.items() if step in why), "")
        failed = sum(part.state is PartitionState.FAILED for part in running.partitions)
        if Step.DONE in why and failed:
            ending = f"{plural(failed, 'partition')} FAILED; everything else is done"
        if is_ending and trouble is not None and trouble.is_outage:
            ending = f"{ending}; {trouble.reason}"
            running = replace(running, partitions=tuple(map(_without_lag, running.partitions)))
        return self._remember(
            run,
            replace(
                running,
                reason=running.reason or (ending if is_ending else ""),
                errors=with_differences(running.errors, verified),
                skipped_groups=led.groups.left_alone,
                groups_without_checkpoint=led.groups.without_checkpoint,
                checkpoints=led.groups.timings,
                clusters=setup.clusters,
                held_rate=led.held_rate.bytes_per_second,
                verified=verified,
            ),
        )

    def without_run(
        self,
        setup: FlowSetup,
        trouble: Trouble | None,
        given_up: TwinlogError | None,
        next_try_ms: int,
    ) -> FlowSnapshot:
        """Return the snapshot of a flow without a run. `given_up`: why the set-up is not tried
        again. `next_try_ms`: wall clock time of the next attempt, or 0 during an attempt.
        """
        state = FlowState.STARTING if trouble is None else trouble.state
        if given_up is not None:
            state = FlowState.FAILED
        error = given_up or (None if trouble is None else trouble.error)
        waits = given_up is None and state in WRONG
        now_ms = self.clock.wall_ms()
        return self._remember(
            None,
            FlowSnapshot(
                flow=setup.name,
                state=state,
                reason="" if error is None else str(error.without_flow()),
                error=error,
                since_ms=self._since.flow.began_ms(state, now_ms),
                partitions=kept_rows(self.former, trouble, now_ms) if waits else (),
                code=error.code if error is not None and state in WRONG else "",
                next_try_ms=next_try_ms if waits else 0,
                errors=dict(self.errors),
                clusters=setup.clusters,
            ),
        )

    def _remember(self, run: FlowRun | None, shown: FlowSnapshot) -> FlowSnapshot:
        shown = replace(shown, taken_ms=self.clock.wall_ms())
        self._last = run, shown
        return shown


def _without_lag(partition: PartitionSnapshot) -> PartitionSnapshot:
    """Unless the partition is done, return it without its lag, which is unknown in an outage."""
    return (
        partition
        if partition.state is PartitionState.DONE
        else replace(partition, lag=None, lag_ms=None)
    )
