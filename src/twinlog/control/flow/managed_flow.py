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
from twinlog.control.flow.leading import APART_S, SetupWaiting, StandingBy
from twinlog.control.flow.snapshots import flow_snapshot, kept_rows
from twinlog.control.flow.steering import Steering
from twinlog.control.flow.trouble import WRONG, FlowTrouble
from twinlog.control.lanes.partitions import Partition
from twinlog.control.lanes.wanted import see_source
from twinlog.control.risk.limits import NO_LIMITS, RiskLimits
from twinlog.control.risk.source_watch import SourceWatch
from twinlog.control.watch.groups_report import GroupsReport
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.state_since import FlowSince
from twinlog.control.watch.verified import VerifiedReport, with_differences
from twinlog.errors import TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.quantities import first_few, plural

LOOK_AGAIN_S: Final = 0.5
MAX_SETUP_PAUSE_S: Final = 30.0

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
    trouble: FlowTrouble = field(init=False)
    error: TwinlogError | None = None
    """Why the flow was given up."""
    errors: Counter[str] = field(default_factory=Counter)
    """How often each code came up outside the present run."""
    began: float = field(default_factory=time.monotonic)
    since: FlowSince = field(default_factory=FlowSince)
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
    is_told_to_end: bool = False
    """The process ends."""
    closing: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        self.trouble = FlowTrouble(flow=self.setup.name, log=self.log)

    @property
    def is_standing_by(self) -> bool:
        """Another process leads it."""
        trouble = self.trouble.now
        return trouble is not None and trouble.state is FlowState.STANDBY

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
        self.run = self.prepared = self.steering = self.source_watch = None
        if not self.lost_lead:
            self.trouble.forget()
        apart_s = 0.0
        if self.hands_over_to:
            # back in the group at once we might be chosen again
            apart_s = APART_S
            said = "standing by: handed over to a process that leads fewer flows"
            self.trouble.rests(FlowState.STANDBY, StandingBy(said))
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
        if self.run is not None and not self.run.is_stopping:
            self.trouble.see_lanes(self.run.lanes())
        if self.steering is not None:
            self.steering.tend(background)
        if self.source_watch is not None:
            self.source_watch.tend(background)

    def has_looked(self, run: FlowRun, *, failed: bool) -> bool:
        """A look for topics has ended; False: it was an earlier run's."""
        if self.run is run:
            self.is_refreshing, self.refresh_failed = False, failed
        return self.run is run

    def has_failed(self, error: TwinlogError, *, is_final: bool) -> None:
        """It could not be set up now: when it is tried again, and why it was not."""
        self.is_trying = False
        if is_final:
            self.error = error
        if isinstance(error, SetupWaiting):
            pause_s = LOOK_AGAIN_S  # a free lead must not wait for us
        else:
            self.errors[error.code] += 1
            pause_s, self.pause_s = self.pause_s, min(self.pause_s * 2, MAX_SETUP_PAUSE_S)
        self.next_try = time.monotonic() + pause_s
        if not is_final:
            self.trouble.set_up_failed(error)

    def see_source(self, run: FlowRun) -> None:
        """A look for topics has ended: those that the source does not show any more are told."""
        topics = frozenset() if self.prepared is None else self.prepared.source_topics
        gone = see_source(run.partitions.values(), topics, run.intents.released)
        if gone:
            self.log.warning(
                "%s (%s) deleted at %s, or not visible any more (DESCRIBE); kept on %s: %s",
                plural(len(gone), "topic"),
                first_few(gone),
                self.setup.config.flow.source,
                self.setup.config.flow.target,
                first_few(gone.values()),
            )

    def has_lost_lead(self) -> None:
        """Another process may lead: the run ends, and it is set up again."""
        membership = self.setup.membership
        self.lost_lead = True
        self.trouble.lead_lost(None if membership is None else membership.state.problem)

    def take_over(self) -> None:
        """Go on with the changed configuration, where there is one and nothing runs."""
        if self.successor is not None:
            self.setup, self.successor, self.error = self.successor, None, None
            self.trouble.forget()  # it may be of other clusters now
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

    def _why_ending(self, state: FlowState) -> str:
        """Of a run that ends in order; its trouble, and a promotion, say more."""
        if state not in (FlowState.STOPPING, FlowState.STOPPED):
            return ""
        if self.is_told_to_end:
            return "this process was told to end"
        if self.is_removed:
            return "the configuration does not have it any more"
        if self.successor is not None:
            return "the configuration changed: it begins again with the new one"
        if self.hands_over_to:
            return "it is handed over to a process that leads fewer flows"
        return "another process may lead it" if self.lost_lead else "all that was asked for is done"

    def _snapshot(self) -> FlowSnapshot:
        if self.run is not None and self.prepared is not None:
            running = flow_snapshot(
                self.run,
                self.prepared.guarantee,
                None if self.is_told_to_end else self.trouble.now,
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
                reason=running.reason or self._why_ending(running.state),
                errors=with_differences(running.errors, verified),
                skipped_groups=self.groups.left_alone,
                groups_without_checkpoint=self.groups.without_checkpoint,
                checkpoints=self.groups.timings,
                clusters=self.setup.clusters,
                held_rate=self.held_rate.bytes_per_second,
                verified=verified,
            )
        return self._without_run()

    def _without_run(self) -> FlowSnapshot:
        trouble, state = self.trouble.now, FlowState.STARTING
        if trouble is not None:
            state = trouble.state
        if self.error is not None:
            state = FlowState.FAILED
        error = self.error or (None if trouble is None else trouble.error)
        waits = self.error is None and state in WRONG
        now_ms = int(time.time() * 1000)
        due_ms = now_ms + int(1000 * (self.next_try - time.monotonic()))
        return FlowSnapshot(
            flow=self.setup.name,
            state=state,
            reason="" if error is None else str(error.without_flow()),
            guarantee="",
            generation=-1,
            lanes=0,
            since_ms=self.since.flow.see(state, now_ms),
            partitions=kept_rows(self.former, trouble, now_ms) if waits else (),
            code=error.code if error is not None and state in WRONG else "",
            next_try_ms=due_ms if waits and not self.is_trying else 0,
            errors=dict(self.errors),
            clusters=self.setup.clusters,
        )

    def _limits(self) -> RiskLimits:
        if self.source_watch is None:
            return NO_LIMITS
        return RiskLimits(
            rpo_seconds=self.setup.config.rpo_seconds, retentions=self.source_watch.retentions
        )
