"""The driver's only thread that makes decisions. It handles events of lanes, results of background
work, commands, and timers, for all flows.

A flow is set up in the background (`flow_setup`) and retried while its clusters cannot be reached;
the other flows do not wait for it. With `--once` a flow that cannot be set up within a minute is
given up.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from twinlog.channel.server import ChannelEvent, LaneConnected, LaneGone, LaneMessage, Peer
from twinlog.clock import CLOCK, Clock
from twinlog.control.duties.publication import SetUpPublication
from twinlog.control.duties.rounds import Duties
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.managed_flow import ManagedFlow, leave
from twinlog.control.flow.phases import Phase, Step
from twinlog.control.flow.trouble import WRONG
from twinlog.control.lanes.lanes import Job, Lane
from twinlog.control.process.commands import CommandPort, QueuedCommand, Reload, Stop
from twinlog.control.process.reload import Reloader, ReloadResult, Reloads
from twinlog.control.process.sharing import Sharing
from twinlog.control.running.flow_run import FlowRun
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import Disconnected, TwinlogError
from twinlog.lane.messages import EndLane
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.state.published import PublishedEvents
from twinlog.quantities import plural
from twinlog.threads import THREADS

T = TypeVar("T")

TICK_S: Final = 0.1
FLOW_TICK_S: Final = 0.02
"""Minimum duration of a turn per flow, up to TICK_S for all flows. Every flow causes calls, and
each turn serves all flows. So without a minimum, CPU use would grow with the square of the number
of flows.
"""
STOP_WITHIN_S: Final = 6.5
"""Seconds that lanes have to drain at shutdown. After that their jobs are cancelled, which is
harmless. The rest of a shutdown took up to 2.3 s on a busy machine; the total must be below 10 s.
"""

LEAVE_WITHIN_S: Final = 2.0


# The supervisor thread makes all decisions, so flows need no locks:
#
#     channel thread  -- events -+
#     worker threads  -- calls --+--> queue --> supervisor thread --> flows

ANSWER_WITHIN_S: Final = 5.0
MOST_CALLS_S: Final = 0.5
"""Maximum time in seconds for queued calls in one turn. Without this limit, silent lanes would not
be given up, and commands would not be followed, while calls arrive faster than they are handled.
"""


class Calls:
    """Queue of calls for the supervisor's thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    def call(self, action: Callable[[], object]) -> None:
        """Queue a call; thread-safe."""
        self._queue.put(action)

    def fail(self, error: BaseException) -> None:
        """Raise an error in the supervisor's thread: nothing works without the part that failed."""
        self._queue.put(lambda: _raise(error))

    def ask(self, question: Callable[[], T]) -> T:
        """Return the result of `question`, which runs in the supervisor's thread. Call this in
        another thread. Raises Disconnected if the supervisor does not respond.
        """
        answer: Future[T] = Future()
        self._queue.put(lambda: answer.set_result(question()))
        try:
            return answer.result(ANSWER_WITHIN_S)
        except TimeoutError:
            raise Disconnected("the supervisor does not respond: the process is ending") from None

    def background(
        self,
        job: Callable[[], Any],
        then: Callable[[Any], None],
        otherwise: Callable[[TwinlogError], None],
    ) -> None:
        """Run a job that may block in another thread. In the supervisor's thread, call `then` with
        its result, or `otherwise` with its TwinlogError. Other errors are bugs, which end the
        process.
        """

        def work() -> None:
            try:
                value = job()
            except TwinlogError as error:
                caught = error
                self.call(lambda: otherwise(caught))
            except BaseException as error:  # noqa: BLE001 (raised again by the supervisor)
                self.fail(error)
            else:
                self.call(lambda: then(value))

        THREADS.run("twinlog-job", work)

    def handle_queued(self, within_s: float, least_s: float = 0.0) -> None:
        """Handle queued calls, waiting at most `within_s` for the first one. Until `least_s` has
        passed, also handle calls that arrive later. After MOST_CALLS_S, the rest remains queued.
        """
        began = time.monotonic()
        while (now := time.monotonic()) < began + MOST_CALLS_S:
            try:
                action = self._queue.get(timeout=max(0.0, began + within_s - now))
            except queue.Empty:
                return
            within_s = least_s
            action()


def _raise(error: BaseException) -> None:
    raise error


class Supervisor(Calls):
    """Runs flows until they are done, or until it is stopped. It is the `Process` of its flows."""

    def __init__(  # noqa: PLR0913 (all of it is known at once, by name)
        self,
        setups: Iterable[FlowSetup],
        *,
        once: bool,
        lease_s: float | None,
        lane_count: Callable[[FlowSetup, int, bool], int],
        commands: CommandPort | None = None,
        reloader: Reloader | None = None,
        on_snapshot: Callable[[list[FlowSnapshot]], None] = lambda _: None,
        on_turn: Callable[[], None] = lambda: None,
        events: Callable[[str], PublishedEvents | None] = lambda _: None,
        on_led: Callable[[], None] = lambda: None,
        spark_waits: Callable[[], TwinlogError | None] = lambda: None,
        clock: Clock = CLOCK,
    ) -> None:
        """Once a second `on_snapshot` is called, or `on_turn` if no snapshots were taken.
        `reloader`: None if the configuration is read once. `events`: returns recent events of a
        flow, for other hosts. `on_led` is called in each turn while a flow needs lanes.
        `spark_waits`: returns why Spark has no executor, or None.
        """
        super().__init__()
        self.once = once
        self.clock = clock
        self.lane_count = lane_count
        self.leases = Leases()
        self._lease_s = lease_s
        self._showing = SnapshotLoop(
            check=self.snapshots,
            on_snapshot=self._take_snapshots,
            on_turn=on_turn,
            clock=clock.monotonic,
        )
        self._on_snapshot = on_snapshot
        self._failed = FailedSetUps()
        self.synced = SyncedOffsets()
        self.events = events
        self.spark_waits = spark_waits
        self._on_led = on_led
        self.sharing = Sharing(clock=clock.monotonic)
        self.commands = commands or CommandPort()
        self._reloads = Reloads(reloader=reloader, background=self.background, change=self._change)
        self._stop_at: float | None = None
        self.flows = [ManagedFlow(setup=setup, process=self) for setup in setups]
        """All flows of this process. Used in the supervisor's thread."""

    # -- from any thread

    def deliver(self, event: ChannelEvent) -> None:
        """Pass a lane's event to the run of its lease."""
        self.call(lambda: self.leases.on_event(event))

    def set_starter(self, starter: LeaseStarter | None) -> None:
        """Set the starter of leases when Spark has started, or None if its application ended."""
        self.call(lambda: setattr(self.leases, "starter", starter))

    def retry_now(self) -> None:
        """End the pauses before retries, because credentials were renewed."""
        for flow in tuple(self.flows):
            self.call(flow.retry_now)

    # -- the loop

    def run(self) -> list[FlowSnapshot]:
        """Run until all flows have ended. Return their last snapshots."""
        try:
            self._failed.publishes = True
            self.begin()
            while not self.is_over:
                self.turn()
        finally:
            self._reloads.end()
            self.commands.close()
            for flow in self.flows:
                flow.stop_duties()  # does nothing after a clean shutdown
            self._failed.end()
        self._leave_groups()
        return self.snapshots()

    def begin(self) -> None:
        """Start setting up the flows. This does not wait for Spark."""
        for flow in self.flows:
            flow.try_set_up()

    @property
    def is_over(self) -> bool:
        return all(flow.life.is_over for flow in self.flows)

    def turn(self, within_s: float = TICK_S) -> None:
        """Run one turn: handle queued calls, waiting for the first one, and do what is due."""
        self.handle_queued(within_s, min(within_s, FLOW_TICK_S * len(self.flows)))
        for asked in self.commands.pop_all():
            self._run_command(asked)
        for flow in self.flows:
            flow.tick()
        self.flows = [flow for flow in self.flows if not _is_gone(flow)]
        if any(flow.needs_lanes for flow in self.flows):
            self._on_led()
        if not self.once and self._stop_at is None:
            self.sharing.turn(self.flows, can_lead=self.can_lead)
        self._showing.turn()
        if self._stop_at is not None and self.clock.monotonic() > self._stop_at:
            for flow in self.flows:
                flow.cancel_lanes()

    def _run_command(self, queued: QueuedCommand) -> None:
        match queued.command:
            case Reload():
                self._reloads.ask(queued)
            case Stop():
                queued.answer(*self._stop())

    def _change(self, to: ReloadResult) -> bool:
        """Apply a changed configuration: only the changed flows restart."""
        if self._stop_at is not None:
            return False
        successors = {setup.name: setup for setup in to.changed}
        for flow in self.flows:
            if (successor := successors.get(flow.setup.name)) is not None:
                flow.replace(successor)
            if flow.setup.name in to.removed:
                flow.remove()
        self.flows = [*self.flows, *(ManagedFlow(setup=setup, process=self) for setup in to.added)]
        return True

    def _stop(self) -> list[str]:
        if self._stop_at is not None:
            return []
        self._stop_at = self.clock.monotonic() + STOP_WITHIN_S
        for flow in self.flows:
            flow.stop()
        return [f"{flow.setup.name}: {flow.phase}" for flow in self.flows]

    # leave the groups of flows that never ran, or were not shut down cleanly
    def _leave_groups(self) -> None:
        left = [flow.setup for flow in self.flows if flow.phase is Phase.LEFT]
        leaving = [leave(setup) for setup in left]
        until = self.clock.monotonic() + LEAVE_WITHIN_S  # one deadline for all threads
        for thread in leaving:
            thread.join(max(0.0, until - self.clock.monotonic()))
        self._failed.join(max(0.0, until - self.clock.monotonic()))

    # -- what a flow needs of its process

    @property
    def can_lead(self) -> bool:
        """Return True if Spark has an application, so that flows can get lanes."""
        return self.leases.starter is not None

    def start_lease(self, run: FlowRun, lanes: int) -> tuple[int, Job]:
        return self.leases.start(run, lanes)

    def lease_s(self, setup: FlowSetup) -> tuple[float, float]:
        """Return (duration of a lease of the flow, duration of its first lease), both in seconds.
        First leases differ, so that not all flows change their leases, and so double their lanes,
        at the same time.
        """
        lease_s = self._lease_s or float(setup.config.lanes.lease_seconds)
        before = next(n for n, flow in enumerate(self.flows) if flow.setup is setup)
        return lease_s, lease_s * (1 - before / len(self.flows) / 2)

    # -- snapshots

    def _take_snapshots(self, snapshots: list[FlowSnapshot]) -> None:
        setups = (flow.setup for flow in self.flows)
        self._failed.update(zip(setups, snapshots, strict=True))
        self._on_snapshot(snapshots)

    def snapshots(self) -> list[FlowSnapshot]:
        """Return the current snapshots of all flows."""
        return [flow.snapshot() for flow in self.flows]

    @property
    def errors(self) -> list[TwinlogError]:
        """Return the errors of flows that were given up."""
        return [flow.error for flow in self.flows if flow.error is not None]

    @property
    def seconds(self) -> float:
        """Return the seconds from the first ready lane to the last flow's end."""
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
    """Return True if the flow was removed from the configuration, and has ended."""
    why = flow.life.why
    return flow.life.is_over and Step.REMOVED in why and Step.STOPPED not in why


class LeaseStarter(Protocol):
    """Starts the Spark job of a lease."""

    def start(self, lease: int, lanes: int, description: str) -> Job: ...


class Leases:
    """The leases of one process; used in the supervisor's thread."""

    def __init__(self) -> None:
        self.starter: LeaseStarter | None = None
        """None while Spark has no application."""
        self._numbers = itertools.count(1)
        self._runs: dict[int, FlowRun] = {}
        self._lanes: dict[Peer, tuple[FlowRun, Lane]] = {}

    def start(self, run: FlowRun, lanes: int) -> tuple[int, Job]:
        """Start the next lease of a run. Return its number and its Spark job."""
        if self.starter is None:
            raise TwinlogError("a lease was requested before Spark had started")
        number = next(self._numbers)
        self._runs = {le.number: run for run in {*self._runs.values()} for le in run.leases}
        self._runs[number] = run
        description = (
            f"{run.name}: lease {number} of generation {run.generation}, {plural(lanes, 'lane')}"
        )
        return number, self.starter.start(number, lanes, description)

    def on_event(self, event: ChannelEvent) -> None:
        """Pass a lane's event to the run of its lease."""
        match event:
            case LaneConnected(peer):
                run = self._runs.get(peer.identity.lease)
                if run is None:
                    peer.send(EndLane())  # the lane's lease has ended
                elif (lane := run.on_connected(peer)) is not None:
                    self._lanes[peer] = (run, lane)
            case LaneMessage(peer, message):
                if (known := self._lanes.get(peer)) is not None:
                    known[0].on_message(known[1], message)
            case LaneGone(peer, _):
                if (known := self._lanes.pop(peer, None)) is not None:
                    known[0].on_gone(known[1])


# Publication of failed set-ups. Each flow that cannot be set up has a thread that publishes the
# reason, so that a slow target delays neither the supervisor nor another flow.


@dataclass(slots=True)
class FailedSetUps:
    """Publishes failed set-ups, in the supervisor's thread. Only `join` waits for a cluster."""

    publishes: bool = False
    """True from the start of `Supervisor.run` to `end`. Nothing is published while it is False."""
    _published: dict[FlowSetup, tuple[SetUpPublication, Duties]] = field(default_factory=dict)
    _ending: dict[FlowSetup, Duties] = field(default_factory=dict)
    """Threads that still write their last row. Nothing else is published for their flows."""

    def update(self, flows: Iterable[tuple[FlowSetup, FlowSnapshot]]) -> None:
        """Set the current snapshots of all flows, each with its set-up."""
        if not self.publishes:
            return
        failed = {setup: snapshot for setup, snapshot in flows if _fails(setup, snapshot)}
        for setup in self._published.keys() - failed.keys():
            self._ending[setup] = self._published.pop(setup)[1]
            self._ending[setup].stop()
        self._ending = {setup: duties for setup, duties in self._ending.items() if duties.is_alive}
        for setup, snapshot in failed.items():
            if setup in self._published:
                self._published[setup][0].seen = snapshot
                continue
            if setup in self._ending:
                continue
            duty = SetUpPublication(setup.config, setup.target, snapshot, setup.log_once)
            duties = Duties(setup.name, [duty])
            self._published[setup] = duty, duties
            duties.start()

    def end(self) -> None:
        """Stop publishing, because the process ends. This does not wait."""
        self.publishes = False
        self._ending |= {setup: duties for setup, (_, duties) in self._published.items()}
        self._published.clear()
        for duties in self._ending.values():
            duties.stop()

    def join(self, within_s: float) -> None:
        """Wait until the last rows are written, but at most `within_s`. Call this after `end`."""
        until = time.monotonic() + within_s
        for duties in self._ending.values():
            duties.join(max(0.0, until - time.monotonic()))


def _fails(setup: FlowSetup, snapshot: FlowSnapshot) -> bool:
    is_failed = snapshot.generation is None and snapshot.state in WRONG
    return is_failed and bool(setup.config.status_interval_seconds)


SNAPSHOT_EVERY_S: Final = 1.0
SHARE_OF_TIME: Final = 0.035
"""Maximum share of the supervisor thread's time that snapshots take, for any number of partitions.
It is exceeded if the pause would otherwise be longer than LONGEST_PAUSE_S.
"""

LONGEST_PAUSE_S: Final = 30.0
"""Maximum pause between two snapshots, in seconds."""


@dataclass(slots=True, kw_only=True)
class SnapshotLoop:
    """Takes the snapshots of one supervisor, in its thread. With 100,000 partitions, one snapshot
    and its uses take 0.8 s of CPU. If this were done every second, intents would be followed late.
    """

    check: Callable[[], list[FlowSnapshot]]
    on_snapshot: Callable[[list[FlowSnapshot]], None]
    on_turn: Callable[[], None]
    """Called in seconds without snapshots, as a sign that the thread is alive."""
    clock: Callable[[], float] = time.monotonic
    cpu_clock: Callable[[], float] = time.thread_time
    _turned_at: float = float("-inf")
    _next_check: float = float("-inf")

    def turn(self) -> None:
        """Take snapshots if they are due. Can be called at any rate."""
        now = self.clock()
        if now - self._turned_at < SNAPSHOT_EVERY_S:
            return
        self._turned_at = now
        if now < self._next_check:
            self.on_turn()
            return
        began = self.cpu_clock()
        self.on_snapshot(self.check())
        cost_s = self.cpu_clock() - began
        self._next_check = now + min(cost_s / SHARE_OF_TIME, LONGEST_PAUSE_S)
