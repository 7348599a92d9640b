"""One flow from its set-up to its end; `phases` has the table of its steps, which are the methods
here. What may block is done in the background, and comes back as a step.

    tried -> (background: set up) -> led -> ... -> drained -> (background: note the end) -> closed
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from twinlog.clock import Clock, GrowingPause
from twinlog.codes import FlowState, Trait, has
from twinlog.control.duties.rounds import Duties
from twinlog.control.flow.duty_catalogue import duties_of, led_flow
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.flow.generation import Generation, views_of
from twinlog.control.flow.phases import LED, Life, Phase, Step
from twinlog.control.flow.shown import Shown
from twinlog.control.flow.steering import Steering
from twinlog.control.flow.topic_refresh import TopicRefresh
from twinlog.control.flow.trouble import FlowTrouble
from twinlog.control.lanes.lanes import Job
from twinlog.control.lanes.pacing import pacer_of
from twinlog.control.leading.lead import APART_S, SetupWaiting, StandingBy
from twinlog.control.risk.background import InBackground
from twinlog.control.risk.pulse import Pulse
from twinlog.control.risk.resting import RestingWatch, RestQuestions
from twinlog.control.risk.source_watch import SourceWatch
from twinlog.control.running.flow_run import FlowRun
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import Fate, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.state.published_events import PublishedEvents
from twinlog.quantities import duration
from twinlog.survey.map_reader import Maps

log = logging.getLogger(__name__)

ONCE_GIVES_UP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Offer:
    """A process that leads fewer flows, and since when it is to have this one."""

    process: str
    since: float


@dataclass(slots=True, kw_only=True, eq=False)
class ManagedFlow:
    """In the supervisor's thread."""

    setup: FlowSetup
    process: Process
    life: Life = field(default_factory=Life)
    generation: Generation | None = None
    """While it is led, and while its end is noted."""
    tries: Tries = field(init=False)
    trouble: FlowTrouble = field(init=False)
    shown: Shown = field(init=False)
    error: TwinlogError | None = None
    """Why the flow was given up."""
    successor: FlowSetup | None = None
    """Its set-up under the configuration that replaces this one."""
    offer: Offer | None = None

    def __post_init__(self) -> None:
        clock = self.process.clock
        self.tries, self.shown = Tries(clock=clock), Shown(clock=clock)
        self.trouble = FlowTrouble(flow=self.setup.name, log=self.log, clock=clock)

    @property
    def phase(self) -> Phase:
        return self.life.phase

    @property
    def run(self) -> FlowRun | None:
        return None if self.generation is None else self.generation.run

    @property
    def log(self) -> FlowLog:
        """For lines about it."""
        return FlowLog(log, self.setup.name)

    # -- what time asks for

    def tend(self) -> None:
        """About ten times a second."""
        if self.phase is Phase.WAITING and self.tries.is_due:
            self.tried()
        elif self.phase in LED and self.generation is not None:
            self._tend(self.generation)

    def stop_duties(self) -> None:
        """No round of a duty begins any more; returns at once."""
        if self.generation is not None:
            self.generation.duties.stop()

    def _tend(self, generation: Generation) -> None:
        run, once = generation.run, self.process.once
        if self.process.can_lead or run.is_stopping:
            run.tick()
        if run.is_stopping and self.phase is not Phase.ENDING:
            self.life.take(Step.DONE)
        if run.is_stopping and not once:
            generation.duties.stop()
        if run.is_finished:
            self._drained(generation)
            return
        if not run.is_stopping:
            self.trouble.see(run.lanes(), generation.pulse)
        generation.tend(self.process.background)
        if generation.prepared.lost_lead and not run.is_stopping:
            self.lost()

    # -- the set-up

    def tried(self) -> None:
        self.life.take(Step.TRIED)
        job = partial(self.setup.prepare, once=self.process.once)
        self.process.background(job, self.led, self.failed)

    def failed(self, error: TwinlogError) -> None:
        """It could not be set up: when it is tried again, or that it is not."""
        once = self.process.once
        hopeless = error.fate is not Fate.RETRIABLE and not isinstance(error, SetupWaiting)
        lasted_s = self.tries.lasted_s
        is_late = once and lasted_s > ONCE_GIVES_UP_S
        is_final = is_late or (hopeless and (once or error.exit_code == 2))
        self.life.take(Step.GIVEN_UP if is_final else Step.FAILED)
        if not isinstance(error, SetupWaiting):
            self.shown.errors[error.code] += 1
        self.tries.failed(error)
        if is_final:
            self.error = error.and_also(f"gave up after {duration(lasted_s)}") if is_late else error
        else:
            left_ms = int(1000 * (ONCE_GIVES_UP_S - lasted_s))
            until_ms = self.process.clock.wall_ms() + left_ms if once else None
            self.trouble.set_up_failed(error, until_ms)
        if Step.REMOVED in self.life.why:
            leave(self.setup)
        elif self.phase is Phase.WAITING:
            self._renew()

    def led(self, prepared: PreparedFlow) -> None:
        """A generation is ours."""
        self.life.take(Step.LED)
        self.trouble.is_over()
        generation = self.generation = self._generation(prepared)
        generation.topics.begin()
        generation.steering.begin(prepared.news)
        if not self.process.once:
            generation.duties.start()
        if self.phase is Phase.ENDING:
            generation.run.stop()

    def _generation(self, prepared: PreparedFlow) -> Generation:
        process, setup = self.process, self.setup
        lease_s, first_s = process.lease_s(setup)
        run = FlowRun(
            name=setup.name,
            host=RunHost(process, prepared.read_map),
            work=prepared.work,
            generation=prepared.generation,
            plans=prepared.plans,
            lane_count=partial(process.lane_count, setup),
            lease_s=lease_s,
            first_change_s=first_s,
            start=prepared.start,
            once=process.once,
            clean=prepared.clean,
            pacer=pacer_of(setup.config),
            clock=process.clock,
        )
        run.continue_from(self.shown.former)
        led = led_flow(
            prepared,
            partitions=lambda: process.ask(lambda: views_of(run)),
            snapshot=lambda: process.ask(self.last_snapshot),
            intents=lambda: run.intents,
            synced=process.synced,
            events=partial(process.events, setup.name),
        )

        def count(error: TwinlogError) -> None:
            process.call(lambda: self.shown.errors.update([error.code]))

        duties = Duties(led.name, duties_of(led), on_error=count)
        steering = Steering(
            config=setup.config,
            run=run,
            duties=duties,
            read=prepared.read_news,
            at_hand=prepared.news_at_hand,
            release=setup.set_released,
            followed=self.follows,
            log=self.log,
        )
        questions = setup.questions
        watch = SourceWatch(run=run, source=questions, log=self.log)
        rests = RestQuestions(
            read_map=prepared.read_map,
            target=setup.target,
            source=questions,
            starts=setup.config.start,
            is_shared=setup.is_identity,
        )
        pulse = Pulse(run=run, ask=questions.pulse)
        return Generation(
            prepared=prepared,
            run=run,
            led=led,
            duties=duties,
            steering=steering,
            topics=TopicRefresh(run=run, prepared=prepared, log=self.log),
            source_watch=None if process.once else watch,
            resting=None if process.once else RestingWatch(run=run, find=rests.find),
            pulse=None if process.once else pulse,
        )

    # -- while it is led

    def follows(self, intents: FlowIntents) -> None:
        """The run follows what people want now."""
        if intents.promotion is not None:
            self._ends(Step.PROMOTED)
        elif self.phase is Phase.ENDING:
            return
        elif intents.pause is not None:
            self.life.take(Step.PAUSED)
            self.offer = None
        elif self.phase is Phase.PAUSED:
            self.life.take(Step.RESUMED)

    def offered(self, process: str, now: float) -> None:
        """To another process."""
        self.life.take(Step.OFFERED)
        self.offer = Offer(process, now)

    def kept(self) -> None:
        """The other process has gone."""
        self.life.take(Step.KEPT)
        self.offer = None

    def handed_over(self) -> None:
        """Nobody but the other process would lead it now."""
        self._ends(Step.HANDED_OVER)

    def lost(self) -> None:
        """Another process may lead."""
        self._ends(Step.LOST)
        membership = self.setup.membership
        self.trouble.lead_lost(None if membership is None else membership.state.problem)

    # -- what may come at any time

    def replaced(self, successor: FlowSetup) -> None:
        """The configuration changed."""
        if Step.REMOVED in self.life.why:
            return  # another one has its name by now
        self.successor = successor
        self._ends(Step.REPLACED)
        if self.phase is Phase.WAITING:
            self._renew()

    def removed(self) -> None:
        """The configuration does not have it any more."""
        ran = self.phase not in (Phase.WAITING, Phase.LEFT)
        self._ends(Step.REMOVED)
        if not ran:
            leave(self.setup)

    def stopped(self) -> None:
        """The process ends."""
        self._ends(Step.STOPPED)
        if self.phase is Phase.LEFT:
            # now, not behind the lanes of other flows: it would be handed a flow, or hold joins up
            _beside(self.setup.resign)

    def _ends(self, why: Step) -> None:
        if self.life.take(why) is Phase.ENDING and self.run is not None:
            self.run.stop()

    def hurry(self) -> None:
        """What failed may work now: the next try is due."""
        if not self.trouble.is_standing_by:
            self.tries.again()
        if self.setup.membership is not None:
            self.setup.membership.hurry()

    # -- its end

    def _drained(self, generation: Generation) -> None:
        rests, why, successor = self.life.begins_again, self.life.why, self.successor
        self.life.take(Step.RESTS if rests else Step.CLOSES)
        hands_over = Step.HANDED_OVER in why and successor is None

        def failed(error: TwinlogError) -> None:
            self.log.warning("the end could not be noted on the target: %s", error)
            self.closed(successor)

        leads = Step.LOST not in why
        end = partial(
            generation.end,
            # one that lost its lead is not closed: the cluster may be gone, the lead another's
            drained=leads and generation.is_drained,
            last_rounds=self.process.once and Step.STOPPED not in why,
            leads=leads,
            rests=rests and not hands_over,
            successor=successor,
        )
        self.process.background(end, lambda _: self.closed(successor), failed)

    def closed(self, heir: FlowSetup | None) -> None:
        """Its end is noted. `heir`: the successor that has our membership."""
        before, why = self.phase, self.life.why
        self.life.take(Step.CLOSED)
        if before is not Phase.RESTARTING or self.generation is None:
            return
        if self.successor is not None and self.successor is not heir:  # it changed once more
            (heir or self.setup).hand_on(self.successor)
        self.shown.has_ended(self.generation.run)
        self.generation = self.offer = None
        if Step.LOST not in why:
            self.trouble.forget()
        apart_s = 0.0
        if Step.HANDED_OVER in why:
            # back in the group at once we might be chosen again
            apart_s = APART_S
            said = "standing by: handed over to a process that leads fewer flows"
            self.trouble.rests(FlowState.STANDBY, StandingBy(said))
        self.tries.again(apart_s)
        self._renew(is_handed_on=True)
        if Step.REMOVED in why:
            leave(self.setup)

    def cut(self) -> None:
        """The time for an end in order is over."""
        if not self.life.is_over and self.run is not None:
            self.log.warning("its lanes did not drain in time and are cancelled")
            self.run.abort()
        self.life.take(Step.CUT)

    def _renew(self, *, is_handed_on: bool = False) -> None:
        """Resume with the changed configuration, where there is one and nothing runs."""
        if self.successor is None:
            return
        old, self.setup = self.setup, self.successor
        self.successor = self.error = None
        self.life.renewed()
        self.trouble.forget()  # it may be of other clusters now
        self.tries.due_at = self.process.clock.monotonic()
        if not is_handed_on:
            leave(old)

    # -- showing

    def last_snapshot(self) -> FlowSnapshot:
        """As it was shown last, where that is of now."""
        return self.shown.last(self.run) or self.snapshot()

    def snapshot(self) -> FlowSnapshot:
        """The flow as it is now."""
        trouble = self.trouble.now
        if self.generation is not None:
            return self.shown.of_run(self.generation, self.life.why, trouble)
        next_ms = self.tries.due_ms if self.phase is Phase.WAITING else 0
        return self.shown.without_run(self.setup, trouble, self.error, next_ms)


def leave(setup: FlowSetup) -> threading.Thread:
    """Leave its group for good, in the background; what fails then matters to nobody."""

    def close() -> None:
        setup.resign()
        try:
            setup.close(None)
        except TwinlogError as error:
            FlowLog(log, setup.name).info("could not leave in order: %s", error)

    return _beside(close)


def _beside(job: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=job, name="twinlog-leave", daemon=True)
    thread.start()
    return thread


RETRY_S: Final = 0.5
MAX_SETUP_PAUSE_S: Final = 30.0
MAX_AWAY_PAUSE_S: Final = 5.0
"""Of a cluster that does not answer: a standby takes over within 15 s, after an outage too."""


@dataclass(slots=True, kw_only=True)
class Tries:
    """Of one flow, over all its runs."""

    clock: Clock
    due_at: float = 0.0
    """By the monotonic clock."""
    began: float = field(init=False)
    _pause: GrowingPause = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock.monotonic()
        self._pause = GrowingPause(first_s=RETRY_S, most_s=MAX_SETUP_PAUSE_S)

    @property
    def is_due(self) -> bool:
        return self.clock.monotonic() >= self.due_at

    @property
    def lasted_s(self) -> float:
        """Since the flow was known."""
        return self.clock.monotonic() - self.began

    @property
    def due_ms(self) -> int:
        """The next one, by the wall's clock."""
        return self.clock.wall_ms() + int(1000 * (self.due_at - self.clock.monotonic()))

    def again(self, after_s: float = 0.0) -> None:
        """As if none had failed."""
        self._pause.reset()
        self.due_at = self.clock.monotonic() + after_s

    def failed(self, error: TwinlogError) -> None:
        pause_s = RETRY_S  # a free lead must not wait for us
        if not isinstance(error, SetupWaiting):
            most_s = MAX_AWAY_PAUSE_S if has(error.code, Trait.AWAY) else MAX_SETUP_PAUSE_S
            pause_s = min(self._pause.next_s(most_s), most_s)
        self.due_at = self.clock.monotonic() + pause_s


T = TypeVar("T")


class Process(Protocol):
    """It has Spark, a thread that decides, and threads for what may block."""

    clock: Clock
    once: bool
    background: InBackground
    synced: SyncedOffsets
    events: Callable[[str], PublishedEvents | None]
    """What happened to a flow here, for other hosts; None where that is not kept."""

    @property
    def can_lead(self) -> bool:
        """Spark is up."""

    def start_lease(self, run: FlowRun, lanes: int) -> tuple[int, Job]:
        """Start a Spark job of so many lanes; its number is unique in this process."""

    def lane_count(self, setup: FlowSetup, partitions: int) -> int:
        """How many lanes a flow gets."""

    def lease_s(self, setup: FlowSetup) -> tuple[float, float]:
        """How long a lease of the flow lasts, and its first one."""

    def call(self, action: Callable[[], object]) -> None:
        """Do it soon in the thread that decides; from any thread."""

    def ask(self, question: Callable[[], T]) -> T:
        """Its answer from the thread that decides. Raises Disconnected."""


@dataclass(frozen=True, slots=True)
class RunHost:
    """The process, for one run."""

    process: Process
    reads: Callable[[], Maps]

    def start_lease(self, flow: FlowRun, lanes: int) -> tuple[int, Job]:
        return self.process.start_lease(flow, lanes)

    def read_map(self, flow: FlowRun, then: Callable[[Maps], None]) -> None:
        self.process.background(self.reads, then, flow.map_failed)
