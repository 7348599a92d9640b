"""What the supervisor keeps of one flow."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.control.duties.rounds import Duties
from twinlog.control.flow.flow_run import FlowRun
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.flow.leading import APART_S
from twinlog.control.flow.snapshots import flow_snapshot
from twinlog.control.lanes.partitions import Partition
from twinlog.control.watch.groups_report import GroupsReport
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import TwinlogError

LOOK_AGAIN_S: Final = 0.5
ONE_LINE_EVERY_S: Final = 60.0


@dataclass(slots=True, kw_only=True)
class ManagedFlow:
    """One flow from its set-up to its end."""

    setup: FlowSetup
    run: FlowRun | None = None
    prepared: PreparedFlow | None = None
    duties: Duties | None = None
    groups: GroupsReport = field(default_factory=GroupsReport)
    degraded: str = ""
    is_standing_by: bool = False
    """Another process leads it, which is no trouble; `degraded` says which one."""
    error: TwinlogError | None = None
    """Why the flow was given up."""
    errors: Counter[str] = field(default_factory=Counter)
    """How often each code came up outside the present run."""
    began: float = field(default_factory=time.monotonic)
    told_at: float = -ONE_LINE_EVERY_S
    told_code: str = ""
    """What the last line was about: another trouble is told at once."""
    pause_s: float = LOOK_AGAIN_S
    next_try: float = 0.0
    is_trying: bool = False
    next_refresh: float = 0.0
    is_refreshing: bool = False
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
    closing: bool = False
    closed: bool = False

    @property
    def is_ending(self) -> bool:
        """A run must not begin, or must end."""
        is_left = self.lost_lead or bool(self.hands_over_to)
        return is_left or self.is_removed or self.successor is not None

    def begin_again(self, heir: FlowSetup | None) -> None:
        """As if it had never run. `heir`: the successor that has our membership."""
        if self.successor is not None and self.successor is not heir:  # it changed once more
            (heir or self.setup).hand_on(self.successor)
        if self.run is not None:
            self.errors.update(self.run.errors)
            self.former = [*self.run.partitions.values()]
        self.degraded = "the lead was lost" if self.lost_lead else ""
        self.run, self.prepared, self.is_standing_by = None, None, False
        apart_s = 0.0
        if self.hands_over_to:
            # back in the group at once we might be chosen again
            self.is_standing_by, apart_s = True, APART_S
            self.degraded = "standing by: handed over to a process that leads fewer flows"
        self.lost_lead = self.closing = False
        self.hands_over_to = ""
        self.pause_s, self.next_try = LOOK_AGAIN_S, time.monotonic() + apart_s
        self.take_over()

    def take_over(self) -> None:
        """Go on with the changed configuration, where there is one and nothing runs."""
        if self.successor is not None:
            self.setup, self.successor, self.error = self.successor, None, None
            self.next_try = time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.closed or (self.error is not None and self.run is None)

    def snapshot(self) -> FlowSnapshot:
        """The flow as it is now."""
        if self.run is not None and self.prepared is not None:
            running = flow_snapshot(
                self.run,
                self.prepared.guarantee,
                self.degraded,
                self.prepared.problems,
                self.errors,
            )
            return replace(
                running,
                skipped_groups=self.groups.left_alone,
                checkpoints=self.groups.timings,
            )
        error = self.error
        return FlowSnapshot(
            flow=self.setup.name,
            state=self._state_without_run(),
            reason=str(error) if error is not None else self.degraded,
            guarantee="",
            generation=-1,
            lanes=0,
            since_ms=int((time.time() - (time.monotonic() - self.began)) * 1000),
            partitions=(),
            code="" if error is None else error.code,
            errors=dict(self.errors),
        )

    def _state_without_run(self) -> str:
        if self.error is not None:
            return "FAILED"
        if self.is_standing_by:
            return "STANDBY"
        return "DEGRADED" if self.degraded else "STARTING"
