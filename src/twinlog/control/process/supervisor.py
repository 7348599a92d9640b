"""The driver's one thread of decisions: events of lanes, results of background work, commands, and
time, for all flows.

A flow is set up in the background (`flow_setup`) and tried again while its clusters cannot be
reached; the other flows do not wait for it. With `--once` a flow that cannot be set up within a
minute is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from twinlog.channel.server import ChannelEvent
from twinlog.clock import CLOCK, Clock
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.managed_flow import ManagedFlow, leave
from twinlog.control.flow.phases import Phase, Step
from twinlog.control.lanes.lanes import Job
from twinlog.control.process.calls import Calls
from twinlog.control.process.commands import CommandPort, QueuedCommand, Reload, Stop
from twinlog.control.process.failed_set_ups import FailedSetUps
from twinlog.control.process.leases import Leases, LeaseStarter
from twinlog.control.process.reload import Reloaded, Reloader, Reloads
from twinlog.control.process.sharing import Sharing
from twinlog.control.process.showing import Showing
from twinlog.control.running.flow_run import FlowRun
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import TwinlogError
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.state.published_events import PublishedEvents

T = TypeVar("T")

TICK_S: Final = 0.1
STOP_WITHIN_S: Final = 6.5
"""Lanes get so long to drain; then their jobs are cancelled, which is harmless. What follows took
up to 2.3 s on a busy machine, and the whole is to take less than 10.
"""

LEAVE_WITHIN_S: Final = 2.0


class Supervisor:
    """Runs flows until they are done, or until it is stopped; each flow's `Process`."""

    def __init__(  # noqa: PLR0913 (all of it is known at once, by name)
        self,
        setups: Iterable[FlowSetup],
        *,
        once: bool,
        lease_s: float | None,
        lane_count: Callable[[FlowSetup, int], int],
        commands: CommandPort | None = None,
        reloader: Reloader | None = None,
        on_snapshot: Callable[[list[FlowSnapshot]], None] = lambda _: None,
        on_turn: Callable[[], None] = lambda: None,
        events: Callable[[str], PublishedEvents | None] = lambda _: None,
        clock: Clock = CLOCK,
    ) -> None:
        """Once a second `on_snapshot` is called, or `on_turn` where they were not checked.
        `reloader`: None where the configuration is read once. `events`: what happened to a flow,
        for other hosts.
        """
        self.once = once
        self.clock = clock
        self.lane_count = lane_count
        self.leases = Leases()
        self._calls = Calls[ChannelEvent](self.leases.on_event)
        self.background = self._calls.background
        self.call = self._calls.call
        self.deliver = self._calls.deliver
        self.fail = self._calls.fail
        self._lease_s = lease_s
        self._showing = Showing(
            check=self.snapshots, on_snapshot=self._shown, on_turn=on_turn, clock=clock.monotonic
        )
        self._on_snapshot = on_snapshot
        self._failed = FailedSetUps()
        self.synced = SyncedOffsets()
        self.events = events
        self.sharing = Sharing(clock=clock.monotonic)
        self.commands = commands or CommandPort()
        self._reloads = Reloads(reloader=reloader, background=self.background, change=self._change)
        self._stop_at: float | None = None
        self.flows = [ManagedFlow(setup=setup, process=self) for setup in setups]
        """For the supervisor's thread."""

    # -- from any thread

    def set_starter(self, starter: LeaseStarter) -> None:  # Spark is up
        self.call(lambda: setattr(self.leases, "starter", starter))

    def hurry(self) -> None:
        """Credentials were renewed: what is waited out is tried at once."""
        for flow in tuple(self.flows):
            self.call(flow.hurry)

    def ask(self, question: Callable[[], T]) -> T:
        """Its answer from the supervisor's thread, where the flows may be checked."""
        return self._calls.ask(question)

    @property
    def flow_count(self) -> int:
        return max(1, len(self.flows))

    # -- turning

    def run(self) -> list[FlowSnapshot]:
        """Turn until all flows are over; returns how each one ended."""
        try:
            self._failed.publishes = True
            self.begin()
            while not self.is_over:
                self.turn()
        finally:
            self._reloads.end()
            self.commands.close()
            for flow in self.flows:
                flow.stop_duties()  # where all ended in order, they have
            self._failed.end()
        self._leave_groups()
        return self.snapshots()

    def begin(self) -> None:
        """Start to set the flows up, before Spark is there."""
        for flow in self.flows:
            flow.tried()

    @property
    def is_over(self) -> bool:
        return all(flow.life.is_over for flow in self.flows)

    def turn(self, within_s: float = TICK_S) -> None:
        """One turn: what has come (waits so long for the first), then what time asks for."""
        self._calls.take(within_s)
        for asked in self.commands.take():
            self._obey(asked)
        for flow in self.flows:
            flow.tend()
        self.flows = [flow for flow in self.flows if not _is_gone(flow)]
        if not self.once and self._stop_at is None:
            self.sharing.turn(self.flows, can_lead=self.can_lead)
        self._showing.turn()
        if self._stop_at is not None and self.clock.monotonic() > self._stop_at:
            for flow in self.flows:
                flow.cut()

    def _obey(self, asked: QueuedCommand) -> None:
        """Where the next command of a process goes."""
        match asked.command:
            case Reload():
                self._reloads.ask(asked)
            case Stop():
                asked.answer(*self._stop())

    def _change(self, to: Reloaded) -> bool:
        """The configuration changed: only these flows end what they do early."""
        if self._stop_at is not None:
            return False
        successors = {setup.name: setup for setup in to.changed}
        for flow in self.flows:
            if (successor := successors.get(flow.setup.name)) is not None:
                flow.replaced(successor)
            if flow.setup.name in to.removed:
                flow.removed()
        self.flows = [*self.flows, *(ManagedFlow(setup=one, process=self) for one in to.added)]
        return True

    def _stop(self) -> list[str]:
        if self._stop_at is not None:
            return []
        self._stop_at = self.clock.monotonic() + STOP_WITHIN_S
        for flow in self.flows:
            flow.stopped()
        return [f"{flow.setup.name}: {flow.phase}" for flow in self.flows]

    def _leave_groups(self) -> None:  # of flows that never ran, or did not end in order
        left = [flow.setup for flow in self.flows if flow.phase is Phase.LEFT]
        leaving = [leave(setup) for setup in left]
        until = self.clock.monotonic() + LEAVE_WITHIN_S  # for all of them
        for thread in leaving:
            thread.join(max(0.0, until - self.clock.monotonic()))
        self._failed.join(max(0.0, until - self.clock.monotonic()))

    # -- what a flow asks of its process

    @property
    def can_lead(self) -> bool:
        """Spark is up."""
        return self.leases.starter is not None

    def start_lease(self, run: FlowRun, lanes: int) -> tuple[int, Job]:
        return self.leases.start(run, lanes)

    def lease_s(self, setup: FlowSetup) -> tuple[float, float]:
        """How long a lease of the flow lasts, and its first one: lease changes of different flows
        are spread over the lease, so that not all double their lanes at once.
        """
        lease_s = self._lease_s or float(setup.config.lanes.lease_seconds)
        before = next(n for n, flow in enumerate(self.flows) if flow.setup is setup)
        return lease_s, lease_s * (1 - before / len(self.flows) / 2)

    # -- showing

    def _shown(self, snapshots: list[FlowSnapshot]) -> None:
        setups = (flow.setup for flow in self.flows)
        self._failed.update(zip(setups, snapshots, strict=True))
        self._on_snapshot(snapshots)

    def snapshots(self) -> list[FlowSnapshot]:
        """All flows as they are now."""
        return [flow.snapshot() for flow in self.flows]

    @property
    def errors(self) -> list[TwinlogError]:
        """Why flows were given up."""
        return [flow.error for flow in self.flows if flow.error is not None]

    @property
    def seconds(self) -> float:
        """From the first lane that was ready to the last flow's end."""
        runs = [flow.run for flow in self.flows if flow.run is not None]
        starts = [
            *(flow.shown.copied_since for flow in self.flows),
            *(run.copying_since for run in runs),
        ]
        began = min((at for at in starts if at is not None), default=None)
        if began is None:
            return 0.0
        now = self.clock.monotonic()
        return max((run.finished_at or now for run in runs), default=now) - began


def _is_gone(flow: ManagedFlow) -> bool:
    """It was taken from the configuration, and has ended."""
    why = flow.life.why
    return flow.life.is_over and Step.REMOVED in why and Step.STOPPED not in why
