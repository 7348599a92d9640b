"""One generation of a flow while this process leads it: the run, and the work beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.control.duties.rounds import Duties, LedFlow, PartitionView
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.flow.steering import Steering
from twinlog.control.flow.topic_refresh import TopicRefresh
from twinlog.control.lanes.partitions import view_of
from twinlog.control.risk.running_flow import NO_LIMITS, InBackground, RiskLimits
from twinlog.control.risk.pulse import Pulse
from twinlog.control.risk.resting import RestingWatch
from twinlog.control.risk.source_watch import SourceWatch
from twinlog.control.running.flow_run import FlowRun

DUTIES_END_WITHIN_S: Final = 2.0


def views_of(run: FlowRun) -> tuple[PartitionView, ...]:
    """Return the partitions as duties see them. A released partition is included until its lane has
    returned it.
    """
    every = run.partitions.values()
    return tuple(view_of(p) for p in every if p.is_wanted or p.lane is not None)


@dataclass(slots=True, kw_only=True)
class Generation:
    """Used in the supervisor's thread, except for `end`."""

    prepared: PreparedFlow
    run: FlowRun
    led: LedFlow
    duties: Duties
    steering: Steering
    topics: TopicRefresh
    source_watch: SourceWatch | None
    """None with `--once`."""
    resting: RestingWatch | None
    """None with `--once`."""
    pulse: Pulse | None
    """None with `--once`."""

    def tend(self, background: InBackground) -> None:
        """Do the periodic work that is due."""
        self.steering.tend(background)
        if self.pulse is not None:
            self.pulse.tend(background)
        if self.resting is not None:
            self.resting.tend(background)
        if self.source_watch is not None:
            self.source_watch.tend(background)
            self.topics.tend(background)

    @property
    def is_drained(self) -> bool:
        """Return True if no request of this or an earlier generation can be pending."""
        run = self.run
        if run.clock.monotonic() < run.foreign_until:
            return False  # even if the run has no partition
        return not any(partition.waits_s() for partition in run.partitions.values())

    def limits(self) -> RiskLimits:
        """Return the limits by which risks of loss are shown."""
        if self.source_watch is None:
            return NO_LIMITS
        return RiskLimits(
            rpo_seconds=self.prepared.setup.config.rpo_seconds,
            retentions=self.source_watch.retentions,
        )

    def end(
        self,
        *,
        drained: bool,
        last_rounds: bool,
        leads: bool,
        rests: bool,
        successor: FlowSetup | None,
    ) -> None:
        """End the generation after its last lane. It may block, and raises TwinlogError if the end
        could not be noted. `last_rounds`: `--once` is done; `rests`: the membership stays, or goes
        to the successor.
        """
        if last_rounds:
            self.duties.run_once()
        self.duties.end(DUTIES_END_WITHIN_S, is_last=leads)
        if rests:
            self.prepared.rest(drained=drained, successor=successor)
        else:
            self.prepared.close(drained=drained)
