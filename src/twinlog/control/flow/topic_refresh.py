"""Discovers topics while a flow runs: at the configured interval, and sooner if a lane found that a
topic does not match its plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.control.duties.rounds import NotNow
from twinlog.control.flow.flow_setup import PreparedFlow
from twinlog.control.lanes.partitions import RETRY_FAILED_S, handed
from twinlog.control.lanes.wanted import see_source
from twinlog.control.risk.running_flow import InBackground
from twinlog.control.running.flow_run import FlowRun
from twinlog.errors import TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.mirror.plan import PartitionPlan
from twinlog.quantities import first_few, plural
from twinlog.survey.discovery import may_pass

AFTER_FAILURE_S: Final = 30.0
"""Maximum pause."""


@dataclass(slots=True, kw_only=True)
class TopicRefresh:
    """The discovery of one run of a flow; used in the supervisor's thread."""

    run: FlowRun
    prepared: PreparedFlow
    log: FlowLog
    _next: float = 0.0
    _is_discovering: bool = False
    _has_failed: bool = False
    """The last discovery failed, so the next one waits, even if topics are expected."""

    def begin(self) -> None:
        """Start after the set-up, which has discovered the current topics."""
        self._due_after(may_come=bool(self.prepared.problems))
        self._see_source()

    def tend(self, background: InBackground) -> None:
        """Discover again when it is due."""
        run, setup = self.run, self.prepared.setup
        if self._is_discovering or run.is_stopping or run.intents.pause is not None:
            return
        is_asked = run.wants_discovery and not self._has_failed
        if run.clock.monotonic() < self._next and not is_asked:
            return
        is_wanted = run.wants_discovery or may_pass(self.prepared.problems)
        if not setup.refresh_enabled and not is_wanted:
            return
        was_wanted, run.wants_discovery = run.wants_discovery, False
        self._is_discovering = True
        setup.handed = handed(run.partitions.values())
        setup.acts = self.prepared.generation, run.intents

        def failed(error: TwinlogError) -> None:
            run.wants_discovery = run.wants_discovery or was_wanted
            self._failed(error)

        background(self.prepared.discover, self._found, failed)

    def _found(self, plans: list[PartitionPlan]) -> None:
        self._is_discovering = self._has_failed = False
        if self.run.is_stopping:
            return
        self.run.set_plans(plans)
        self._see_source()
        lost_at, now = self.run.lost_topics_at, self.run.clock.monotonic()
        # a missing topic may come back, so discovery is more frequent for a while
        is_lost = lost_at is not None and now - lost_at < self.prepared.setup.refresh_s
        self._due_after(may_come=bool(self.prepared.problems) or is_lost)

    def _failed(self, error: TwinlogError) -> None:
        self._is_discovering, self._has_failed = False, True
        pause_s = min(self.prepared.setup.refresh_s, AFTER_FAILURE_S)
        self._next = self.run.clock.monotonic() + pause_s
        if self.run.is_stopping:
            return
        if isinstance(error, NotNow):
            self.log.info("topics were not discovered: %s; trying again", error)
        else:
            self.log.warning("topics could not be read: %s; trying again", error)

    def _due_after(self, *, may_come: bool) -> None:
        pause_s = self.prepared.setup.refresh_s
        pause_s = min(pause_s, RETRY_FAILED_S) if may_come else pause_s
        self._next = self.run.clock.monotonic() + pause_s

    def _see_source(self) -> None:
        """Log topics that the source no longer lists."""
        run, flow = self.run, self.prepared.setup.config.flow
        gone = see_source(
            run.partitions.values(), self.prepared.source_topics, run.intents.released
        )
        if gone:
            self.log.warning(
                "%s (%s) deleted at %s, or no longer visible (DESCRIBE); kept on %s: %s",
                plural(len(gone), "topic"),
                first_few(gone),
                flow.source,
                flow.target,
                first_few(gone.values()),
            )
