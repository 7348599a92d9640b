"""Tracks why a flow does not copy now, across all its runs.

A cluster that is down causes several signs, one after the other: lanes cannot reach the cluster,
the lead ends, the run ends with the lead, set-ups fail. All of these are one outage. An outage
begins with the first sign. It is over when both clusters have responded to a lane or to a set-up
after the last sign.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.clock import CLOCK, Clock
from twinlog.codes import FlowState, Trait, has
from twinlog.control.lanes.lanes import Lane
from twinlog.control.leading.lead import Fenced, LeaderUnknown, SetupWaiting, StandingBy
from twinlog.control.risk.source_watch import SourceLiveness
from twinlog.errors import ClusterError, Fate, NotLeader, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.quantities import duration

ONE_LINE_EVERY_S: Final = 60.0
NEVER: Final = float("-inf")
WRONG: Final = frozenset({FlowState.DEGRADED, FlowState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The reason why the flow does not copy now."""

    state: FlowState
    """DEGRADED, FAILED if waiting does not help, or a state that is no error, such as STANDBY."""
    error: TwinlogError
    since_ms: int
    """Wall clock time of the problem's first sign."""

    is_of_all: bool = False
    """True if no partition of the source can be read."""

    @property
    def reason(self) -> str:
        return str(self.error)

    @property
    def is_outage(self) -> bool:
        """Return True if a cluster does not respond."""
        return has(self.error.code, Trait.AWAY)

    @property
    def is_wrong(self) -> bool:
        return self.state in WRONG


@dataclass(slots=True, kw_only=True)
class FlowTrouble:
    """The problem of one flow over its whole life. Used in the supervisor's thread."""

    flow: str
    log: FlowLog
    clock: Clock = CLOCK
    now: Trouble | None = None
    _began: float = 0.0
    _seen_at: float = NEVER
    """Monotonic time of the problem's last sign. The silence of a source is no such sign: a lane
    that kept its connection need not reach the source again.
    """
    _was_away: bool = False
    """True if a cluster has stopped responding since the problem began."""
    _logged: list[str] = field(default_factory=list)
    """Codes that were logged since the problem began."""
    _logged_at: float = 0.0

    @property
    def is_standing_by(self) -> bool:
        """Return True if another process leads the flow."""
        return self.now is not None and self.now.state is FlowState.STANDBY

    def set_up_failed(self, error: TwinlogError, until_ms: int | None = None) -> None:
        """Record that the flow cannot start, or must not start. `until_ms`: wall clock time at
        which this process gives up, or None if it never gives up.
        """
        if isinstance(error, Fenced):
            self.note_idle(FlowState.FENCED, error)
        elif isinstance(error, (StandingBy, LeaderUnknown)):
            if self.now is not None and self.now.is_wrong:
                # end the problem before this error, because both clusters have responded
                self.is_over()
            self.note_idle(FlowState.STANDBY, error)
        else:
            if isinstance(error, SetupWaiting):
                # end the problem before this error, because both clusters have responded
                self.is_over()
            self._degraded(error, until_ms=until_ms)

    def lead_lost(self, problem: TwinlogError | None) -> None:
        """Record the loss of the lead. `problem`: why the group did not respond, if known."""
        if problem is None or not has(problem.code, Trait.AWAY):
            message = "this process lost the lead: its lanes drain, then it becomes a standby"
            problem = NotLeader(message, fate=Fate.RETRIABLE)
        self._degraded(problem)

    def note_lanes(self, lanes: Iterable[Lane], pulse: SourceLiveness | None) -> None:
        """Record whether lanes reach both clusters, and whether the source responds."""
        all_lanes = list(lanes)
        away = next((lane.unreachable for lane in all_lanes if lane.unreachable), None)
        silence = None if pulse is None else pulse.silence
        if away is not None:
            self._degraded(
                ClusterError(away.message, code=away.code, fate=Fate.RETRIABLE),
                is_of_all=silence is not None,
            )
        elif silence is not None:
            seen_at = self._seen_at
            self._degraded(silence, is_of_all=True)
            # keep the old time: a lane whose connection survived does not reach the source again,
            # so the problem would never end
            self._seen_at = seen_at
        elif self._seen_at == NEVER or any(
            lane.is_ready and lane.reached_at > self._seen_at for lane in all_lanes
        ):
            self.is_over()

    def is_over(self) -> None:
        """End the problem, because both clusters have responded."""
        if self.now is not None and self.now.is_wrong and self._logged:
            lasted = duration(self.clock.monotonic() - self._began)
            if self._was_away:
                self.log.info("both clusters can be reached again, after %s", lasted)
            else:
                self.log.info("%s is over after %s", self._logged[-1], lasted)
        elif self.now is not None and self.now.state is FlowState.WAITING_FOR_SPARK:
            self.log.news("an executor of Spark has registered")
        self.forget()

    def forget(self) -> None:
        """Clear the problem without a log line."""
        self.now, self._logged, self._was_away = None, [], False
        self._seen_at = NEVER

    def note_idle(self, state: FlowState, error: TwinlogError) -> None:
        """Record why the flow does not copy although that is no error. Log the reason once."""
        if self.now is not None and self.now.state is not state:
            self.forget()
        message = str(error)
        self.now = Trouble(state=state, error=error.without_flow(), since_ms=self.clock.wall_ms())
        if message not in self._logged:
            self._logged = [message]
            then = "; ready to take over" if state is FlowState.STANDBY else ""
            self.log.warning("%s%s", self.now.error, then)

    def _degraded(
        self, error: TwinlogError, *, is_of_all: bool = False, until_ms: int | None = None
    ) -> None:
        """Record a problem. Log each new code immediately, and then one line a minute."""
        now, before = self.clock.monotonic(), self.now
        if before is None or not before.is_wrong:
            self.forget()
            self._began, since_ms = now, self.clock.wall_ms()
        else:
            since_ms = before.since_ms
        self._seen_at = now
        passes = error.fate is Fate.RETRIABLE
        state = FlowState.DEGRADED if passes else FlowState.FAILED
        message = error.without_flow()
        self.now = Trouble(state=state, error=message, since_ms=since_ms, is_of_all=is_of_all)
        self._was_away = self._was_away or self.now.is_outage
        if error.code in self._logged and now - self._logged_at <= ONE_LINE_EVERY_S:
            return
        self._logged_at = now
        self._logged = [*(code for code in self._logged if code != error.code), error.code]
        until = ""
        if until_ms is not None:  # the format of times in the log
            clock = time.strftime("%H:%M:%SZ", time.gmtime(until_ms / 1000))
            until = f" until {clock}, then it gives up"
        self.log.warning("%s: %s; trying again%s", state, self.now.error, until)
