"""One generation of a flow while this process leads it: the run, and the work beside it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from twinlog.config.flow.schema import RefreshConfig
from twinlog.control.duties.rounds import Duties, LedFlow, NotNow, PartitionView
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.flow.steering import IntentFollower
from twinlog.control.lanes.partitions import RETRY_FAILED_S, handed_topics_of, view_of
from twinlog.control.lanes.wanted import see_source
from twinlog.control.risk.idle import IdleWatch
from twinlog.control.risk.running_flow import NO_LIMITS, InBackground, RiskLimits
from twinlog.control.risk.source_watch import SourceLiveness, SourceWatch
from twinlog.control.running.flow_run import FlowRun
from twinlog.errors import TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.mirror.plan import PartitionPlan
from twinlog.quantities import first_few, plural
from twinlog.survey.discovery import may_pass

# Discovers topics while a flow runs: at the configured interval, and sooner if a lane found that a
# topic does not match its plan.

AFTER_FAILURE_S: Final = 30.0
"""Maximum pause between a failed discovery and the next one."""


@dataclass(slots=True, kw_only=True)
class TopicRefresh:
    """Discovers topics for one run of a flow. Used in the supervisor's thread."""

    run: FlowRun
    prepared: PreparedFlow
    log: FlowLog
    _next: float = 0.0
    _is_discovering: bool = False
    _has_failed: bool = False
    """True if the last discovery failed. The next one is then delayed even if it is requested."""

    def begin(self) -> None:
        """Schedule the first discovery of the run. The set-up has discovered the topics already."""
        self._due_after(may_come=bool(self.prepared.problems))
        self._log_vanished_topics()

    def poll(self, background: InBackground) -> None:
        """Discover topics in the background if a discovery is due."""
        run, setup = self.run, self.prepared.setup
        if self._is_discovering or run.is_stopping or run.intents.pause is not None:
            return
        is_asked = run.wants_discovery and not self._has_failed
        if run.clock.monotonic() < self._next and not is_asked:
            return
        is_wanted = run.wants_discovery or may_pass(self.prepared.problems)
        if not self._config.enabled and not is_wanted:
            return
        was_wanted, run.wants_discovery = run.wants_discovery, False
        self._is_discovering = True
        setup.handed = handed_topics_of(run.partitions.values())
        setup.leadership = self.prepared.generation, run.intents

        def on_failed(error: TwinlogError) -> None:
            run.wants_discovery = run.wants_discovery or was_wanted
            self._on_failed(error)

        background(self.prepared.discover, self._apply_discovery, on_failed)

    def _apply_discovery(self, plans: list[PartitionPlan]) -> None:
        self._is_discovering = self._has_failed = False
        if self.run.is_stopping:
            return
        self.run.set_plans(plans)
        self._log_vanished_topics()
        lost_at, now = self.run.lost_topics_at, self.run.clock.monotonic()
        # a missing topic may be created again, so discovery is more frequent for a while
        is_lost = lost_at is not None and now - lost_at < self._config.interval_seconds
        self._due_after(may_come=bool(self.prepared.problems) or is_lost)

    def _on_failed(self, error: TwinlogError) -> None:
        self._is_discovering, self._has_failed = False, True
        pause_s = min(self._config.interval_seconds, AFTER_FAILURE_S)
        self._next = self.run.clock.monotonic() + pause_s
        if self.run.is_stopping:
            return
        if isinstance(error, NotNow):
            self.log.info("topics were not discovered: %s; trying again", error)
        else:
            self.log.warning("topics could not be read: %s; trying again", error)

    def _due_after(self, *, may_come: bool) -> None:
        pause_s: float = self._config.interval_seconds
        pause_s = min(pause_s, RETRY_FAILED_S) if may_come else pause_s
        self._next = self.run.clock.monotonic() + pause_s

    @property
    def _config(self) -> RefreshConfig:
        return self.prepared.setup.config.refresh

    def _log_vanished_topics(self) -> None:
        """Log topics that the source no longer lists."""
        run, flow = self.run, self.prepared.setup.config.flow
        vanished = see_source(
            run.partitions.values(), self.prepared.source_topics, run.intents.unmirrored_topics
        )
        if vanished:
            self.log.warning(
                "%s (%s) deleted at %s, or no longer visible (DESCRIBE); the copies on %s stay: %s",
                plural(len(vanished), "topic"),
                first_few(vanished),
                flow.source,
                flow.target,
                first_few(vanished.values()),
            )


DUTIES_END_WITHIN_S: Final = 2.0


def views_of(run: FlowRun) -> tuple[PartitionView, ...]:
    """Return the partitions for the flow's duties. A released partition is included until its lane
    has returned it.
    """
    partitions = run.partitions.values()
    return tuple(view_of(p) for p in partitions if p.is_wanted or p.lane is not None)


@dataclass(slots=True, kw_only=True)
class Generation:
    """One led generation of a flow. Used in the supervisor's thread, except for `end`."""

    prepared: PreparedFlow
    run: FlowRun
    led: LedFlow
    duties: Duties
    steering: IntentFollower
    topics: TopicRefresh
    source_watch: SourceWatch | None
    idle: IdleWatch | None
    pulse: SourceLiveness | None
    """`source_watch`, `idle` and `pulse` are None with `--once`."""

    def tick(self, background: InBackground) -> None:
        """Do the periodic work that is due."""
        self.steering.poll(background)
        if self.pulse is not None:
            watch = self.source_watch
            self.pulse.poll(background, -inf if watch is None else watch.answered_at)
        if self.idle is not None:
            self.idle.poll(background)
        if self.source_watch is not None:
            self.source_watch.poll(background)
            self.topics.poll(background)

    @property
    def is_drained(self) -> bool:
        """Return True if no request of this or an earlier generation can be pending."""
        run = self.run
        if run.clock.monotonic() < run.late_requests_until:
            return False  # requests of the former generation may arrive
        return not any(partition.waits_s() for partition in run.partitions.values())

    def limits(self) -> RiskLimits:
        """Return the limits at which risks of data loss are shown."""
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
        """End the generation after its last lane has ended. May block. Raises TwinlogError if the
        end could not be written to the state topic. `last_rounds`: True if a run with `--once` is
        done, so that some duties run once more. `leads`: False if another process may lead.
        `rests`: True to keep the membership, or pass it to the successor.
        """
        if self.run.transforms is not None:
            self.run.transforms.stop()
        if last_rounds:
            self.duties.run_once()
        self.duties.end(DUTIES_END_WITHIN_S, is_last=leads)
        if rests:
            self.prepared.end_generation(drained=drained, successor=successor)
        else:
            self.prepared.close(drained=drained)
