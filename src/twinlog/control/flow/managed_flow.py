"""What the supervisor keeps of one flow."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.codes import FlowState
from twinlog.control.duties.background import Background
from twinlog.control.duties.producer_rate import HeldRate
from twinlog.control.duties.rounds import Duties
from twinlog.control.flow.flow_run import FlowRun
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.flow.leading import APART_S
from twinlog.control.flow.snapshots import flow_snapshot
from twinlog.control.flow.steering import Steering
from twinlog.control.lanes.partitions import Partition
from twinlog.control.risk.limits import NO_LIMITS, RiskLimits
from twinlog.control.risk.source_watch import SourceWatch
from twinlog.control.watch.groups_report import GroupsReport
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.state_since import FlowSince
from twinlog.control.watch.verified import VerifiedReport, with_differences
from twinlog.errors import TwinlogError
from twinlog.flow_log import FlowLog

LOOK_AGAIN_S: Final = 0.5
ONE_LINE_EVERY_S: Final = 60.0

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class ManagedFlow:
    """One flow from its set-up to its end."""

    setup: FlowSetup
    run: FlowRun | None = None
    prepared: PreparedFlow | None = None
    duties: Duties | None = None
    steering: Steering | None = None
    source_watch: SourceWatch | None = None
    groups: GroupsReport = field(default_factory=GroupsReport)
    held_rate: HeldRate = field(default_factory=HeldRate)
    verified: VerifiedReport = field(default_factory=VerifiedReport)
    degraded: str = ""
    is_fenced: bool = False
    """It was promoted, which is no trouble; `degraded` says by whom."""
    is_standing_by: bool = False
    """Another process leads it, which is no trouble; `degraded` says which one."""
    error: TwinlogError | None = None
    """Why the flow was given up."""
    errors: Counter[str] = field(default_factory=Counter)
    """How often each code came up outside the present run."""
    began: float = field(default_factory=time.monotonic)
    since: FlowSince = field(default_factory=FlowSince)
    told_at: float = -ONE_LINE_EVERY_S
    told_code: str = ""
    """What the last line was about: another trouble is told at once."""
    pause_s: float = LOOK_AGAIN_S
    next_try: float = 0.0
    is_trying: bool = False
    next_refresh: float = 0.0
    is_refreshing: bool = False
    refresh_failed: bool = False
    """The next one waits for its time, though topics may be waited for."""
    lost_lead: bool = False
    """Its run ends since another process may lead: it is set up again, and stands by."""
    hands_over_to: str = ""
    """A process that leads fewer flows: our run ends in order, and it leads."""
    handing_over_since: float = 0.0
    successor: FlowSetup | None = None
    """The configuration changed: its run ends, and it is set up again with this."""
    is_removed: bool = False
    """The configuration does not have it any more."""
    former: list[Partition] = field(default_factory=list)
    """Partitions of earlier runs: those that are not wanted any more are kept for show."""
    _shown: tuple[FlowRun | None, FlowSnapshot | None] = (None, None)
    """The last snapshot, and the run that it is of."""
    closing: bool = False
    closed: bool = False

    @property
    def is_ending(self) -> bool:
        """A run must not begin, or must end."""
        is_left = self.lost_lead or bool(self.hands_over_to) or self.is_promoted
        return is_left or self.is_removed or self.successor is not None

    @property
    def is_promoted(self) -> bool:
        """Its run ends since nothing is to be copied any more: it is set up again, and is told."""
        return self.run is not None and self.run.intents.promotion is not None

    def hurry(self) -> None:
        """What failed may work now: the next try is due."""
        if not self.is_standing_by:
            self.pause_s, self.next_try = LOOK_AGAIN_S, time.monotonic()
        if self.setup.membership is not None:
            self.setup.membership.hurry()

    def begin_again(self, heir: FlowSetup | None) -> None:
        """As if it had never run. `heir`: the successor that has our membership."""
        if self.successor is not None and self.successor is not heir:  # it changed once more
            (heir or self.setup).hand_on(self.successor)
        if self.run is not None:
            self.errors.update(self.run.errors)
            self.former = [*self.run.partitions.values()]
        self.degraded = "the lead was lost" if self.lost_lead else ""
        self.run = self.prepared = self.steering = self.source_watch = None
        self.is_standing_by = self.is_fenced = False
        apart_s = 0.0
        if self.hands_over_to:
            # back in the group at once we might be chosen again
            self.is_standing_by, apart_s = True, APART_S
            self.degraded = "standing by: handed over to a process that leads fewer flows"
        self.lost_lead = self.closing = self.is_refreshing = self.refresh_failed = False
        self.hands_over_to = ""
        self.pause_s, self.next_try = LOOK_AGAIN_S, time.monotonic() + apart_s
        self.take_over()

    def follow(self, run: FlowRun, duties: Duties, prepared: PreparedFlow, *, once: bool) -> None:
        """What people want of the run, and what would be lost without the source."""
        self.steering = Steering(
            config=self.setup.config,
            run=run,
            duties=duties,
            read=prepared.read_news,
            release=self.setup.set_released,
            log=self.log,
        )
        self.steering.begin(prepared.news)
        if not once:
            self.source_watch = SourceWatch(run=run, source=self.setup.questions, log=self.log)

    def tend(self, background: Background) -> None:
        """Look where it is time."""
        if self.steering is not None:
            self.steering.tend(background)
        if self.source_watch is not None:
            self.source_watch.tend(background)

    def has_looked(self, run: FlowRun, *, failed: bool) -> bool:
        """A look for topics has ended; False: it was an earlier run's."""
        if self.run is run:
            self.is_refreshing, self.refresh_failed = False, failed
        return self.run is run

    def tell(self, error: TwinlogError) -> None:
        """Why it is not set up: a line a minute, and one at once for another trouble."""
        is_late = time.monotonic() - self.told_at > ONE_LINE_EVERY_S and not self.is_fenced
        if not is_late and error.code == self.told_code:
            return
        self.told_at, self.told_code = time.monotonic(), error.code
        then = "ready to take over" if self.is_standing_by else "trying again"
        self.log.warning("%s", error if self.is_fenced else f"{error}; {then}")

    def take_over(self) -> None:
        """Go on with the changed configuration, where there is one and nothing runs."""
        if self.successor is not None:
            self.setup, self.successor, self.error = self.successor, None, None
            self.next_try = time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.closed or (self.error is not None and self.run is None)

    @property
    def log(self) -> FlowLog:
        """For lines about it."""
        return FlowLog(log, self.setup.name)

    def last_snapshot(self) -> FlowSnapshot:
        """As it was shown last: with very many partitions it is not looked at for each who asks."""
        run, shown = self._shown
        is_old = run is not self.run or (run is not None and run.is_finished)
        return self.snapshot() if shown is None or is_old else shown

    def snapshot(self) -> FlowSnapshot:
        """The flow as it is now."""
        shown = replace(self._snapshot(), taken_ms=int(time.time() * 1000))
        self._shown = self.run, shown
        return shown

    def _snapshot(self) -> FlowSnapshot:
        if self.run is not None and self.prepared is not None:
            running = flow_snapshot(
                self.run,
                self.prepared.guarantee,
                self.degraded,
                self.prepared.problems,
                self.errors,
                self.since,
                self._limits(),
            )
            if self.source_watch is not None:
                self.source_watch.see(running)
            verified = self.verified.last
            return replace(
                running,
                errors=with_differences(running.errors, verified),
                skipped_groups=self.groups.left_alone,
                groups_without_checkpoint=self.groups.without_checkpoint,
                checkpoints=self.groups.timings,
                clusters=self.setup.clusters,
                held_rate=self.held_rate.bytes_per_second,
                verified=verified,
            )
        error, state = self.error, self._state_without_run()
        return FlowSnapshot(
            flow=self.setup.name,
            state=state,
            reason=str(error) if error is not None else self.degraded,
            guarantee="",
            generation=-1,
            lanes=0,
            since_ms=self.since.flow.see(state, int(time.time() * 1000)),
            partitions=(),
            code="" if error is None else error.code,
            errors=dict(self.errors),
            clusters=self.setup.clusters,
        )

    def _limits(self) -> RiskLimits:
        if self.source_watch is None:
            return NO_LIMITS
        return RiskLimits(
            rpo_seconds=self.setup.config.rpo_seconds, retentions=self.source_watch.retentions
        )

    def _state_without_run(self) -> FlowState:
        if self.error is not None:
            return FlowState.FAILED
        if self.is_fenced:
            return FlowState.FENCED
        if self.is_standing_by:
            return FlowState.STANDBY
        return FlowState.DEGRADED if self.degraded else FlowState.STARTING
