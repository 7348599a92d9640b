"""Why a flow does not copy now: one value, kept over all its runs.

A cluster that is away shows in many ways, one after the other: lanes cannot reach it, the lead
ends, the run ends with it, set-ups fail. That is one outage. It begins with the first sign, and is
over when both clusters have answered after the last one: a lane reached both, or a set-up asked
both.
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
from twinlog.control.risk.pulse import Pulse
from twinlog.errors import ClusterError, Fate, NotLeader, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.quantities import duration

ONE_LINE_EVERY_S: Final = 60.0
NEVER: Final = float("-inf")
WRONG: Final = frozenset({FlowState.DEGRADED, FlowState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What holds the flow up now."""

    state: FlowState
    """DEGRADED; FAILED, where waiting does not help; or STANDBY and FENCED, where nothing is wrong.
    """
    error: TwinlogError
    since_ms: int
    """When the first sign of it came; the wall's clock."""

    is_of_all: bool = False
    """Nothing can be read for any partition."""

    @property
    def reason(self) -> str:
        return str(self.error)

    @property
    def is_outage(self) -> bool:
        """A cluster does not answer."""
        return has(self.error.code, Trait.AWAY)

    @property
    def is_wrong(self) -> bool:
        return self.state in WRONG


@dataclass(slots=True, kw_only=True)
class FlowTrouble:
    """Of one flow, from its first set-up to its end; for the supervisor's thread."""

    flow: str
    log: FlowLog
    clock: Clock = CLOCK
    now: Trouble | None = None
    _began: float = 0.0
    _seen_at: float = NEVER
    """The last sign of it, but for the source's silence, which an answer alone ends."""
    _was_away: bool = False
    """A cluster did not answer since it began."""
    _logged: list[str] = field(default_factory=list)
    """Codes, since it began."""
    _logged_at: float = 0.0

    @property
    def is_standing_by(self) -> bool:
        """Another process leads it."""
        return self.now is not None and self.now.state is FlowState.STANDBY

    def set_up_failed(self, error: TwinlogError, until_ms: int | None = None) -> None:
        """The flow cannot begin, or must not. `until_ms`: when it is given up, by the wall's clock;
        None: never.
        """
        if isinstance(error, Fenced):
            self.rests(FlowState.FENCED, error)
        elif isinstance(error, (StandingBy, LeaderUnknown)):
            if self.now is not None and self.now.is_wrong:
                self.is_over()  # both were asked before
            self.rests(FlowState.STANDBY, error)
        else:
            if isinstance(error, SetupWaiting):
                self.is_over()  # both were asked before it was known that we wait
            self._degraded(error, until_ms=until_ms)

    def lead_lost(self, problem: TwinlogError | None) -> None:
        """`problem`: why the group was not heard, where that is known."""
        if problem is None or not has(problem.code, Trait.AWAY):
            said = "the lead was lost: its lanes drain, then it stands by"
            problem = NotLeader(said, fate=Fate.RETRIABLE)
        self._degraded(problem)

    def see(self, lanes: Iterable[Lane], pulse: Pulse | None) -> None:
        """What the lanes of the run say of both clusters, and what the source itself says."""
        known = list(lanes)
        away = next((lane.degraded for lane in known if lane.degraded), None)
        silence = None if pulse is None else pulse.silence
        if away is not None:
            self._degraded(
                ClusterError(away.message, code=away.code, fate=Fate.RETRIABLE),
                is_of_all=silence is not None,
            )
        elif silence is not None:
            seen_at = self._seen_at
            self._degraded(silence, is_of_all=True)
            self._seen_at = seen_at  # lanes need not come to reach again what they have not missed
        elif self._seen_at == NEVER or any(
            lane.is_ready and lane.reached_at > self._seen_at for lane in known
        ):
            self.is_over()

    def is_over(self) -> None:
        """Both clusters have answered."""
        if self.now is not None and self.now.is_wrong and self._logged:
            lasted = duration(self.clock.monotonic() - self._began)
            if self._was_away:
                self.log.info("both clusters can be reached again, after %s", lasted)
            else:
                self.log.info("%s is over after %s", self._logged[-1], lasted)
        self.forget()

    def forget(self) -> None:
        """Nothing holds it up, as far as is known."""
        self.now, self._logged, self._was_away = None, [], False
        self._seen_at = NEVER

    def rests(self, state: FlowState, error: TwinlogError) -> None:
        """It does not copy, and nothing is wrong: said once."""
        if self.now is not None and self.now.state is not state:
            self.forget()
        said = str(error)
        self.now = Trouble(state=state, error=error.without_flow(), since_ms=self.clock.wall_ms())
        if said not in self._logged:
            self._logged = [said]
            then = "; ready to take over" if state is FlowState.STANDBY else ""
            self.log.warning("%s%s", self.now.error, then)

    def _degraded(
        self, error: TwinlogError, *, is_of_all: bool = False, until_ms: int | None = None
    ) -> None:
        """A line at once for each code, and one a minute."""
        now, before = self.clock.monotonic(), self.now
        if before is None or not before.is_wrong:
            self.forget()
            self._began, since_ms = now, self.clock.wall_ms()
        else:
            since_ms = before.since_ms
        self._seen_at = now
        passes = error.fate is Fate.RETRIABLE
        state = FlowState.DEGRADED if passes else FlowState.FAILED
        said = error.without_flow()
        self.now = Trouble(state=state, error=said, since_ms=since_ms, is_of_all=is_of_all)
        self._was_away = self._was_away or self.now.is_outage
        if error.code in self._logged and now - self._logged_at <= ONE_LINE_EVERY_S:
            return
        self._logged_at = now
        self._logged = [*(code for code in self._logged if code != error.code), error.code]
        until = "" if until_ms is None else f" until {_clock(until_ms)}, then it gives up"
        self.log.warning("%s: %s; trying again%s", state, self.now.error, until)


def _clock(at_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))  # as log lines begin
