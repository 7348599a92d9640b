"""The driver's one thread of decisions: events of lanes, results of background work, and time, for
all flows.

    channel thread --events--.
    worker threads --calls---+--> queue --> supervisor thread --> FlowRun (no locks)
    clock ------- ticks -----'

A flow is set up in the background (`flow_setup`) and tried again while its clusters cannot be
reached; the other flows do not wait for it. With `--once` a flow that cannot be set up within a
minute is given up.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from twinlog.channel.peer import Peer
from twinlog.channel.server import ChannelEvent, LaneConnected, LaneGone, LaneMessage
from twinlog.control.duties.rounds import Duties, PartitionView
from twinlog.control.flow.duty_catalogue import duties_of, led_flow
from twinlog.control.flow.flow_run import FlowRun
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.flow.leading import SetupWaiting
from twinlog.control.flow.managed_flow import MAX_SETUP_PAUSE_S, ManagedFlow
from twinlog.control.flow.sharing import Sharing
from twinlog.control.flow.showing import Showing
from twinlog.control.lanes.lanes import Job, Lane
from twinlog.control.lanes.pacing import pacer_of
from twinlog.control.lanes.partitions import RETRY_FAILED_S
from twinlog.control.lanes.views import handed, view_of
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import Disconnected, Fate, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.lane.messages import Stop
from twinlog.survey.discovery import may_pass
from twinlog.survey.map_reader import Maps

log = logging.getLogger(__name__)

T = TypeVar("T")

TICK_S: Final = 0.1
STOP_WITHIN_S: Final = 6.5
"""Lanes get so long to drain; then their jobs are cancelled, which is harmless. What follows took
up to 2.3 s on a busy machine, and the whole is to take less than 10.
"""

LEAVE_WITHIN_S: Final = 2.0
DUTIES_END_WITHIN_S: Final = 2.0
ANSWER_WITHIN_S: Final = 5.0
ONCE_GIVES_UP_S: Final = 60.0


class LeaseStarter(Protocol):
    """Starts the Spark job of a lease."""

    def start(self, lease: int, lanes: int) -> Job: ...


class Supervisor:
    """Runs flows until they are done, or until told to stop."""

    def __init__(
        self,
        setups: Iterable[FlowSetup],
        *,
        once: bool,
        lease_s: float | None,
        lane_count: Callable[[FlowSetup, int], int],
        on_snapshot: Callable[[list[FlowSnapshot]], None] = lambda _: None,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """Once a second `on_snapshot` is called, or `on_turn` where they were not looked at."""
        self._flows = [ManagedFlow(setup=setup) for setup in setups]
        self._once = once
        self._lease_s = lease_s
        self._lane_count = lane_count
        self._showing = Showing(look=self.snapshots, on_snapshot=on_snapshot, on_turn=on_turn)
        self._events: queue.SimpleQueue[ChannelEvent | Callable[[], None]] = queue.SimpleQueue()
        self._lease_numbers = itertools.count(1)
        self._by_lease: dict[int, FlowRun] = {}
        self._lanes: dict[Peer, tuple[FlowRun, Lane]] = {}
        self._starter: LeaseStarter | None = None
        self.sharing = Sharing()
        self._stop_at: float | None = None

    def deliver(self, event: ChannelEvent) -> None:
        """Take an event of the channel, from any thread."""
        self._events.put(event)

    def set_starter(self, starter: LeaseStarter) -> None:  # Spark is up; from any thread
        self._events.put(lambda: setattr(self, "_starter", starter))

    def fail(self, error: BaseException) -> None:
        """Nothing works without what is broken: `run` raises it; from any thread."""
        self._events.put(lambda: _raise(error))

    def hurry(self) -> None:
        """Credentials were renewed: what is waited out is tried at once; from any thread."""
        for flow in tuple(self._flows):
            self._events.put(flow.hurry)

    @property
    def flow_count(self) -> int:
        return max(1, len(self._flows))

    def change(
        self, changed: Iterable[FlowSetup], added: Iterable[FlowSetup], removed: Iterable[str]
    ) -> None:
        """The configuration changed: only these flows end what they do early; from any thread."""
        arguments = (tuple(changed), tuple(added), frozenset(removed))
        self._events.put(lambda: self._change(*arguments))

    @property
    def seconds(self) -> float:
        """From the first lane that was ready to the last flow's end."""
        runs = [flow.run for flow in self._flows if flow.run is not None]
        starts = [run.copying_since for run in runs if run.copying_since is not None]
        if not starts:
            return 0.0
        return max(run.finished_at or time.monotonic() for run in runs) - min(starts)

    def begin(self) -> None:
        """Start to set the flows up, before Spark is there."""
        for flow in self._flows:
            self._try_setup(flow)

    def run(self, stop: threading.Event) -> list[FlowSnapshot]:
        """Turn until all flows are over; returns how each one ended."""
        self.begin()
        while not all(flow.is_over for flow in self._flows):
            self._take_events()
            if stop.is_set() and self._stop_at is None:
                self._begin_stop()
            for flow in list(self._flows):
                self._tend(flow)
            if not self._once and self._stop_at is None:
                self.sharing.turn(self._flows, can_lead=self._starter is not None)
            self._showing.turn()
            if self._stop_at is not None and time.monotonic() > self._stop_at:
                self._give_up_waiting()
        self._leave_groups()
        return self.snapshots()

    def _take_events(self) -> None:
        timeout = TICK_S
        while True:
            try:
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                return
            timeout = 0.0
            if callable(event):
                event()
            else:
                self._on_channel(event)

    def _on_channel(self, event: ChannelEvent) -> None:
        match event:
            case LaneConnected(peer):
                run = self._by_lease.get(peer.identity.lease)
                if run is None:
                    peer.send(Stop())  # of a lease that is over
                lane = None if run is None else run.on_connected(peer)
                if run is not None and lane is not None:
                    self._lanes[peer] = (run, lane)
            case LaneMessage(peer, message):
                if (known := self._lanes.get(peer)) is not None:
                    known[0].on_message(known[1], message)
            case LaneGone(peer, _):
                if (known := self._lanes.pop(peer, None)) is not None:
                    known[0].on_gone(known[1])

    # -- one flow

    def _change(
        self, changed: tuple[FlowSetup, ...], added: tuple[FlowSetup, ...], removed: frozenset[str]
    ) -> None:
        if self._stop_at is not None:
            return
        successors = {setup.name: setup for setup in changed}
        for flow in self._flows:
            flow.successor = successors.get(flow.setup.name, flow.successor)
            flow.is_removed = flow.is_removed or flow.setup.name in removed
            if flow.run is not None and flow.is_ending:
                flow.run.stop()
        for setup in added:
            self._flows.append(ManagedFlow(setup=setup))

    def _tend(self, flow: ManagedFlow) -> None:
        now = time.monotonic()
        if flow.run is None and flow.is_ending and not flow.is_trying:
            self._end_unstarted(flow)
        if flow.run is None:
            if self._stop_at is not None:
                flow.closed = True
            elif not flow.is_trying and flow.error is None and now >= flow.next_try:
                self._try_setup(flow)
            return
        if self._starter is not None or flow.run.is_stopping:
            flow.run.tick()
        if flow.run.is_stopping and flow.duties is not None and not self._once:
            flow.duties.stop()
        if flow.run.is_finished:
            self._close(flow)
            return
        flow.tend(self._background)
        if flow.prepared is not None and flow.prepared.lost_lead and not flow.run.is_stopping:
            flow.has_lost_lead()
            flow.run.stop()
        if flow.is_promoted:
            flow.run.stop()
        self._refresh_topics(flow, now)

    def _end_unstarted(self, flow: ManagedFlow) -> None:
        """A flow that was changed or removed while it stood by, was set up, or had failed."""
        old = flow.setup
        if flow.is_removed:
            self._flows.remove(flow)
        flow.lost_lead = False
        flow.take_over()
        if flow.is_removed or flow.setup is not old:
            threading.Thread(target=_close_quietly, args=(old,), daemon=True).start()

    def _try_setup(self, flow: ManagedFlow) -> None:
        flow.is_trying = True

        def ready(prepared: PreparedFlow) -> None:
            flow.is_trying, flow.prepared = False, prepared
            flow.trouble.is_over()
            flow.next_refresh = time.monotonic() + (
                min(flow.setup.refresh_s, RETRY_FAILED_S)
                if prepared.problems
                else flow.setup.refresh_s
            )
            index = self._flows.index(flow)
            # lease changes of different flows are spread over the lease, so that not all double
            # their lanes at once
            lease_s = self._lease_s or float(flow.setup.config.lanes.lease_seconds)
            first = lease_s * (1 - index / len(self._flows) / 2)
            flow.run = FlowRun(
                name=flow.setup.name,
                host=self,
                work=prepared.work,
                generation=prepared.generation,
                plans=prepared.plans,
                lane_count=lambda partitions: self._lane_count(flow.setup, partitions),
                lease_s=lease_s,
                first_change_s=first,
                start=prepared.start,
                once=self._once,
                clean=prepared.clean,
                pacer=pacer_of(flow.setup.config),
            )
            flow.run.go_on_from(flow.former)
            flow.duties = self._duties(flow, flow.run, prepared)
            flow.follow(flow.run, flow.duties, prepared, once=self._once)
            if not self._once:
                flow.duties.start()
            if self._stop_at is not None or flow.is_ending:
                flow.run.stop()

        def failed(error: TwinlogError) -> None:
            waited = time.monotonic() - flow.began
            hopeless = error.fate is not Fate.RETRIABLE and not isinstance(error, SetupWaiting)
            is_over = (self._once and waited > ONCE_GIVES_UP_S) or (
                hopeless and self._is_final(error)
            )
            flow.has_failed(error, is_final=is_over)

        self._background(lambda: flow.setup.prepare(once=self._once), ready, failed)

    def _is_final(self, error: TwinlogError) -> bool:
        return self._once or error.exit_code == 2

    def _refresh_topics(self, flow: ManagedFlow, now: float) -> None:
        run, prepared = flow.run, flow.prepared
        if run is None or prepared is None or self._once or run.is_stopping or flow.is_refreshing:
            return
        is_asked = run.wants_discovery and not flow.refresh_failed
        if run.intents.pause is not None or (now < flow.next_refresh and not is_asked):
            return
        is_wanted = run.wants_discovery or may_pass(prepared.problems)
        if not flow.setup.refresh_enabled and not is_wanted:
            return
        was_wanted, run.wants_discovery = run.wants_discovery, False
        flow.is_refreshing = True

        def done(plans: Any) -> None:
            if not flow.has_looked(run, failed=False):
                return
            run.set_plans(plans)
            now, pause_s = time.monotonic(), flow.setup.refresh_s
            # what is gone may be given back: for a while it is looked for more often
            lost = run.lost_topics_at is not None and now - run.lost_topics_at < pause_s
            if prepared.problems or lost:
                pause_s = min(pause_s, RETRY_FAILED_S)
            flow.next_refresh = now + pause_s

        def failed(error: TwinlogError) -> None:
            if not flow.has_looked(run, failed=True):
                return
            run.wants_discovery = run.wants_discovery or was_wanted
            flow.next_refresh = time.monotonic() + min(flow.setup.refresh_s, MAX_SETUP_PAUSE_S)
            flow.log.warning("topics could not be read: %s; trying again", error)

        flow.setup.handed = handed(run.partitions.values())
        self._background(prepared.discover, done, failed)

    def _close(self, flow: ManagedFlow) -> None:
        if flow.closing or flow.prepared is None or flow.run is None:
            return
        flow.closing = True
        # a generation that lost its lead is not closed: the cluster may be gone, the lead another's
        drained = not flow.lost_lead and not any(p.waits_s() for p in flow.run.partitions.values())
        goes_on = flow.is_ending and not flow.is_removed and self._stop_at is None

        def done(_: object) -> None:
            if goes_on:
                flow.begin_again(successor)
            elif flow.is_removed and self._stop_at is None:
                self._flows.remove(flow)
            else:
                flow.closed = True

        def failed(error: TwinlogError) -> None:
            flow.log.warning("the end could not be noted on the target: %s", error)
            done(None)

        prepared, duties, successor = flow.prepared, flow.duties, flow.successor
        ends_in_time = self._once and self._stop_at is None
        hands_over = bool(flow.hands_over_to) and successor is None
        leads = not flow.lost_lead

        def close() -> None:
            if duties is not None and ends_in_time:
                duties.run_once()
            if duties is not None:
                duties.end(DUTIES_END_WITHIN_S, is_last=leads)
            if goes_on and not hands_over:
                prepared.rest(drained=drained, successor=successor)
            else:
                prepared.close(drained=drained)

        self._background(close, done, failed)

    # -- Host (what a FlowRun asks)

    def start_lease(self, flow: FlowRun, lanes: int) -> tuple[int, Job]:
        number = next(self._lease_numbers)
        runs = (one.run for one in self._flows if one.run is not None)
        self._by_lease = {lease.number: run for run in runs for lease in run.leases}
        self._by_lease[number] = flow
        if self._starter is None:
            raise TwinlogError("a lease was asked for before Spark was up")
        return number, self._starter.start(number, lanes)

    def read_map(self, flow: FlowRun, then: Callable[[Maps], None]) -> None:
        prepared = next(f.prepared for f in self._flows if f.run is flow)
        if prepared is None:
            raise TwinlogError("a map was asked for before its flow was set up")

        self._background(prepared.read_map, then, flow.map_failed)

    # -- duties

    def _duties(self, flow: ManagedFlow, run: FlowRun, prepared: PreparedFlow) -> Duties:
        def views() -> tuple[PartitionView, ...]:
            # one that was released has positions until its lane has given it back
            every = run.partitions.values()
            return tuple(view_of(p) for p in every if p.is_wanted or p.lane is not None)

        def count(error: TwinlogError) -> None:
            self._events.put(lambda: flow.errors.update([error.code]))

        led = led_flow(
            prepared,
            partitions=lambda: self._ask(views),
            snapshot=lambda: self._ask(flow.last_snapshot),
            intents=lambda: run.intents,
        )
        flow.groups, flow.held_rate, flow.verified = led.groups, led.held_rate, led.verified
        return Duties(led.name, duties_of(led), on_error=count)

    def _ask(self, question: Callable[[], T]) -> T:
        """Its answer from the supervisor's thread, where the flows may be looked at."""
        answer: Future[T] = Future()
        self._events.put(lambda: answer.set_result(question()))
        try:
            return answer.result(ANSWER_WITHIN_S)
        except TimeoutError:
            raise Disconnected("the supervisor does not answer: the process is ending") from None

    # -- background

    def _background(
        self,
        job: Callable[[], Any],
        then: Callable[[Any], None],
        otherwise: Callable[[TwinlogError], None],
    ) -> None:
        def work() -> None:
            try:
                value = job()
            except TwinlogError as error:
                caught = error
                self._events.put(lambda: otherwise(caught))
            except BaseException as error:  # noqa: BLE001 (raised again by the supervisor)
                bug = error
                self._events.put(lambda: _raise(bug))
            else:
                self._events.put(lambda: then(value))

        # a thread a job: they are few, and a cluster that does not answer must not delay the end of
        # the process
        threading.Thread(target=work, name="twinlog-job", daemon=True).start()

    # -- the end

    def _begin_stop(self) -> None:
        self._stop_at = time.monotonic() + STOP_WITHIN_S
        for flow in self._flows:
            flow.is_told_to_end = True
            if flow.run is not None:
                flow.run.stop()

    def _give_up_waiting(self) -> None:
        for flow in self._flows:
            if flow.run is not None and not flow.closed:
                flow.log.warning("its lanes did not drain in time and are cancelled")
                flow.run.abort()
            flow.closed = True

    def _leave_groups(self) -> None:  # of flows that never ran, or did not end in order
        threads = [
            threading.Thread(target=_close_quietly, args=(flow.setup,), daemon=True)
            for flow in self._flows
            if not flow.closing
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LEAVE_WITHIN_S)

    # -- showing

    def snapshots(self) -> list[FlowSnapshot]:
        """All flows as they are now."""
        return [flow.snapshot() for flow in self._flows]

    @property
    def errors(self) -> list[TwinlogError]:
        """Why flows were given up."""
        return [flow.error for flow in self._flows if flow.error is not None]


def _close_quietly(setup: FlowSetup) -> None:
    try:
        setup.close(None)
    except TwinlogError as error:
        FlowLog(log, setup.name).info("could not leave in order: %s", error)


def _raise(error: BaseException) -> None:
    raise error
