"""One flow from its set-up to its end. The methods are the steps in the table of `phases`. Blocking
work runs in the background, and its result arrives as a step.

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
from twinlog.cluster.client import ClusterClient
from twinlog.codes import FlowState, Trait, has
from twinlog.control.duties.acl_sync import acl_sync
from twinlog.control.duties.config_sync import config_sync
from twinlog.control.duties.heartbeats import heartbeats
from twinlog.control.duties.offset_syncs import offset_syncs
from twinlog.control.duties.own_topics import MapPruning, OwnTopics
from twinlog.control.duties.producer_quota import producer_quota
from twinlog.control.duties.publication import publication
from twinlog.control.duties.rounds import Duties, Duty, DutyFactory, LedFlow, PartitionView
from twinlog.control.duties.source_positions import group_commits, mm2_positions
from twinlog.control.duties.verification import verification
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.flow.generation import Generation, TopicRefresh, views_of
from twinlog.control.flow.phases import LED, Life, Phase, Step
from twinlog.control.flow.shown import StatusBuilder
from twinlog.control.flow.steering import IntentFollower
from twinlog.control.flow.trouble import FlowTrouble
from twinlog.control.flow.wiring import MANY
from twinlog.control.groups.checkpoints import checkpoints
from twinlog.control.groups.left_out import keyed_groups
from twinlog.control.lanes.lanes import Job
from twinlog.control.lanes.pacing import pacer_of
from twinlog.control.leading.lead import STAY_OUT_S, SetupWaiting, StandingBy
from twinlog.control.risk.idle import IdleQueries, IdleWatch
from twinlog.control.risk.running_flow import InBackground
from twinlog.control.risk.source_watch import SourceLiveness, SourceWatch
from twinlog.control.running.flow_run import FlowRun
from twinlog.control.running.flow_transforms import FlowTransforms, transforms_work
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import Fate, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.state.published import PublishedEvents
from twinlog.quantities import duration, plural
from twinlog.spark.application import TransformsApplication

# The duties of a led flow, in the order in which `--once` runs their last rounds.

CLAIMS_WITHIN_S: Final = 5.0
"""Timeout of a duty's read of the state topic before each change, in seconds."""

DUTIES: Final[tuple[DutyFactory, ...]] = (
    config_sync,
    acl_sync,
    offset_syncs,
    partial(heartbeats, into_target=True),
    partial(heartbeats, into_target=False),
    checkpoints,
    keyed_groups,
    group_commits,
    mm2_positions,
    MapPruning,
    OwnTopics,
    producer_quota,
    verification,
    publication,
)


def duties_of(flow: LedFlow) -> list[Duty]:
    """Return the duties that the flow's configuration enables."""
    duties = (factory(flow) for factory in DUTIES)
    return [duty for duty in duties if duty is not None]


log = logging.getLogger(__name__)

ONCE_GIVES_UP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Offer:
    """A process that leads fewer flows, and the time at which this flow was offered to it."""

    process: str
    since: float


@dataclass(slots=True, kw_only=True, eq=False)
class ManagedFlow:
    """One flow of this process. Used in the supervisor's thread."""

    setup: FlowSetup
    process: Process
    life: Life = field(default_factory=Life)
    generation: Generation | None = None
    """The generation while the flow is led, and while its end is written to the state topic; else
    None.
    """
    tries: SetUpAttempts = field(init=False)
    trouble: FlowTrouble = field(init=False)
    shown: StatusBuilder = field(init=False)
    error: TwinlogError | None = None
    """Why the flow was given up."""
    successor: FlowSetup | None = None
    """The set-up under a new configuration, which replaces `setup`."""
    offer: Offer | None = None

    def __post_init__(self) -> None:
        clock = self.process.clock
        self.tries, self.shown = SetUpAttempts(clock=clock), StatusBuilder(clock=clock)
        self.trouble = FlowTrouble(flow=self.setup.name, log=self.log, clock=clock)

    @property
    def phase(self) -> Phase:
        return self.life.phase

    @property
    def run(self) -> FlowRun | None:
        return None if self.generation is None else self.generation.run

    @property
    def needs_lanes(self) -> bool:
        """Return True if the flow is led, and not paused."""
        run = self.run
        return run is not None and run.has_work and run.intents.pause is None

    @property
    def log(self) -> FlowLog:
        """The log for lines about this flow."""
        return FlowLog(log, self.setup.name)

    # -- periodic work

    def tick(self) -> None:
        """Do the work that is due; called about ten times a second."""
        if self.phase is Phase.WAITING and self.tries.is_due:
            self.try_set_up()
        elif self.phase in LED and self.generation is not None:
            self._tick(self.generation)

    def stop_duties(self) -> None:
        """Start no further rounds of duties. Running rounds are not waited for."""
        if self.generation is not None:
            self.generation.duties.stop()

    def _tick(self, generation: Generation) -> None:
        run, once = generation.run, self.process.once
        run.tick()
        if run.is_stopping and self.phase is not Phase.ENDING:
            self.life.take(Step.DONE)
        if run.is_stopping and not once:
            generation.duties.stop()
        if run.is_finished:
            self._note_end(generation)
            return
        if not run.is_stopping:
            waits = self.process.spark_waits() if self.needs_lanes and not run.lanes() else None
            if waits is None:
                self.trouble.note_lanes(run.lanes(), generation.pulse)
            else:
                self.trouble.note_idle(FlowState.WAITING_FOR_SPARK, waits)
        generation.tick(self.process.background)
        if generation.prepared.lost_lead and not run.is_stopping:
            self.on_lead_lost()

    # -- the set-up

    def try_set_up(self) -> None:
        self.life.take(Step.TRIED)
        job = partial(self.setup.prepare, once=self.process.once)
        self.process.background(job, self.on_led, self.on_set_up_failed)

    def on_set_up_failed(self, error: TwinlogError) -> None:
        """Decide whether and when a failed set-up is retried."""
        once = self.process.once
        hopeless = error.fate is not Fate.RETRIABLE and not isinstance(error, SetupWaiting)
        lasted_s = self.tries.lasted_s
        is_late = once and lasted_s > ONCE_GIVES_UP_S
        is_final = is_late or (hopeless and (once or error.exit_code == 2))
        self.life.take(Step.GIVEN_UP if is_final else Step.FAILED)
        if not isinstance(error, SetupWaiting):
            self.shown.errors[error.code] += 1
        self.tries.on_failure(error)
        if is_final:
            self.error = (
                error.with_addition(f"gave up after {duration(lasted_s)}") if is_late else error
            )
        else:
            left_ms = int(1000 * (ONCE_GIVES_UP_S - lasted_s))
            until_ms = self.process.clock.wall_ms() + left_ms if once else None
            if isinstance(error, StandingBy):
                lanes = self.process.lane_count(self.setup, MANY, False)
                error = error.with_addition(
                    f"as leader, this process would use up to {plural(lanes, 'lane')}"
                )
            self.trouble.set_up_failed(error, until_ms)
        if Step.REMOVED in self.life.why:
            leave(self.setup)
        elif self.phase is Phase.WAITING:
            self._follow_successor()

    def on_led(self, prepared: PreparedFlow) -> None:
        """Begin a new generation, which this process leads."""
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
        transforms = None
        if setup.config.transforms.entries:
            transforms = FlowTransforms(
                transforms_work(setup.config),
                call=process.call,
                on_skipped=lambda skipped_record: run.on_skipped(skipped_record),  # noqa: PLW0108 (it exists later)
                log=self.log,
                start=partial(
                    TransformsApplication, environment=setup.config.transforms.environment
                ),
                clock=process.clock,
            )
            transforms.tick(())  # starts the Spark of the transforms while that of the lanes starts
        run = FlowRun(
            name=setup.name,
            start_lease=lambda lanes: process.start_lease(run, lanes),
            has_spark=lambda: process.can_lead,
            read_map=partial(process.background, prepared.map_reader.read),
            work=prepared.work,
            generation=prepared.generation,
            plans=prepared.plans,
            lane_count=partial(process.lane_count, setup),
            lease_s=lease_s,
            first_change_s=first_s,
            start=setup.config.start,
            once=process.once,
            clean=prepared.clean,
            pacer=pacer_of(setup.config),
            transforms=transforms,
            untransformed=setup.config.transforms.removed,
            clock=process.clock,
        )
        run.continue_from(self.shown.former)
        led = self._led_flow(prepared, run)

        def count(error: TwinlogError) -> None:
            process.call(lambda: self.shown.errors.update([error.code]))

        duties = Duties(led.name, duties_of(led), on_error=count, log_once=led.log_once)
        steering = IntentFollower(
            config=setup.config,
            run=run,
            duties=duties,
            read=prepared.read_news,
            at_hand=prepared.news_at_hand,
            release=setup.set_released,
            followed=self.follow_intents,
            log=self.log,
        )
        queries = setup.queries
        watch = SourceWatch(run=run, source=queries, log=self.log)
        positions = IdleQueries(
            read_map=prepared.map_reader.read,
            target=setup.target,
            next_batches=queries.next_batches,
            starts=setup.config.start,
            is_shared=setup.is_identity,
        )
        pulse = SourceLiveness(run=run, ask=queries.pulse)
        return Generation(
            prepared=prepared,
            run=run,
            led=led,
            duties=duties,
            steering=steering,
            topics=TopicRefresh(run=run, prepared=prepared, log=self.log),
            source_watch=None if process.once else watch,
            idle=None if process.once else IdleWatch(run=run, find=positions.find),
            pulse=None if process.once else pulse,
        )

    def _led_flow(self, prepared: PreparedFlow, run: FlowRun) -> LedFlow:
        """Return the interface of the flow for its duties.

        A duty acts on the partitions that it got last. So a duty may act only if the intents are
        the same as when its thread got these partitions, however long ago that was.
        """
        process, setup, asked = self.process, prepared.setup, threading.local()

        def views() -> tuple[PartitionView, ...]:
            asked.intents = run.intents
            return process.ask(lambda: views_of(run))

        def may_act() -> bool:
            then = getattr(asked, "intents", None)
            with ClusterClient(setup.target, api_timeout_s=CLAIMS_WITHIN_S) as target:
                claims, generation = setup.claims, prepared.generation
                is_same = claims.is_latest(target, generation, then or run.intents)
            # checked last: the process may have been frozen since the read
            return is_same and not prepared.lost_lead

        return LedFlow(
            config=setup.config,
            policy=setup.policy,
            generation=prepared.generation,
            source=setup.source,
            target=setup.target,
            partitions=views,
            read_map=prepared.map_reader.read,
            snapshot=lambda: process.ask(self.last_snapshot),
            may_act=may_act,
            claim=setup.claims.own_claim,
            intents=lambda: run.intents,
            leads=lambda: not prepared.lost_lead,
            log_once=setup.log_once,
            adopted=setup.adopts,
            synced=process.synced,
            events=partial(process.events, setup.name),
            has_held_producers=prepared.news.has_held_producers,
        )

    # -- while it is led

    def follow_intents(self, intents: FlowIntents) -> None:
        """Change the phase according to new intents, which the run has already applied."""
        if intents.promotion is not None:
            self._end_run(Step.PROMOTED)
        elif self.phase is Phase.ENDING:
            return
        elif intents.pause is not None:
            self.life.take(Step.PAUSED)
            self.offer = None
        elif self.phase is Phase.PAUSED:
            self.life.take(Step.RESUMED)

    def on_offered(self, process: str, now: float) -> None:
        """Record that the flow is offered to another process."""
        self.life.take(Step.OFFERED)
        self.offer = Offer(process, now)

    def withdraw_offer(self) -> None:
        """Withdraw the offer, because the process to which the flow was offered has left."""
        self.life.take(Step.KEPT)
        self.offer = None

    def on_handed_over(self) -> None:
        """End the run, because now only the process to which the flow was offered can lead it."""
        self._end_run(Step.HANDED_OVER)

    def on_lead_lost(self) -> None:
        """End the run, because another process may lead."""
        self._end_run(Step.LOST)
        membership = self.setup.membership
        self.trouble.lead_lost(None if membership is None else membership.state.problem)

    # -- steps that may come at any time

    def replace(self, successor: FlowSetup) -> None:
        """End the run, and continue with the changed configuration."""
        if Step.REMOVED in self.life.why:
            return  # this flow is being removed, and the configuration has a new flow of its name
        self.successor = successor
        self._end_run(Step.REPLACED)
        if self.phase is Phase.WAITING:
            self._follow_successor()

    def remove(self) -> None:
        """End the flow, because it was removed from the configuration."""
        ran = self.phase not in (Phase.WAITING, Phase.LEFT)
        self._end_run(Step.REMOVED)
        if not ran:
            leave(self.setup)

    def stop(self) -> None:
        """End the flow, because the process shuts down."""
        self._end_run(Step.STOPPED)
        if self.phase is Phase.LEFT:
            # immediately, before other flows' lanes drain: until it leaves, this member might be
            # elected, or delay a rebalance
            _start_thread(self.setup.resign)

    def _end_run(self, why: Step) -> None:
        if self.life.take(why) is Phase.ENDING and self.run is not None:
            self.run.stop()

    def retry_now(self) -> None:
        """Try a failed set-up again now, because its cause may be gone."""
        if not self.trouble.is_standing_by:
            self.tries.reset()
        if self.setup.membership is not None:
            self.setup.membership.retry_now()

    # -- its end

    def _note_end(self, generation: Generation) -> None:
        rests, why, successor = self.life.begins_again, self.life.why, self.successor
        self.life.take(Step.RESTS if rests else Step.CLOSES)
        hands_over = Step.HANDED_OVER in why and successor is None

        def on_failed(error: TwinlogError) -> None:
            self.log.warning("the flow's end could not be written to the state topic: %s", error)
            self.on_closed(successor)

        leads = Step.LOST not in why
        end = partial(
            generation.end,
            # after a lost lead the generation is not closed, because the cluster may be down, or
            # another process leads
            drained=leads and generation.is_drained,
            last_rounds=Step.DONE in why and Step.STOPPED not in why,
            leads=leads,
            rests=rests and not hands_over,
            successor=successor,
        )
        self.process.background(end, lambda _: self.on_closed(successor), on_failed)

    def on_closed(self, heir: FlowSetup | None) -> None:
        """Continue after the end was written. `heir`: the successor that has the membership."""
        before, why = self.phase, self.life.why
        self.life.take(Step.CLOSED)
        if before is not Phase.RESTARTING or self.generation is None:
            return
        # the configuration has changed again in the meantime, so pass on the membership once more
        if self.successor is not None and self.successor is not heir:
            (heir or self.setup).hand_on(self.successor)
        self.shown.keep_results(self.generation.run)
        self.generation = self.offer = None
        if Step.LOST not in why:
            self.trouble.forget()
        stay_out_s = 0.0
        if Step.HANDED_OVER in why:
            # a process that rejoins the group immediately might get the flow back
            stay_out_s = STAY_OUT_S
            reason = "standing by: handed over to a process that leads fewer flows"
            self.trouble.note_idle(FlowState.STANDBY, StandingBy(reason))
        clock = self.process.clock
        self.tries = SetUpAttempts(clock=clock, due_at=clock.monotonic() + stay_out_s)
        self._follow_successor(is_handed_on=True)
        if Step.REMOVED in why:
            leave(self.setup)

    def cancel_lanes(self) -> None:
        """Cancel the lanes, because the time limit for a clean shutdown has passed."""
        if not self.life.is_over and self.run is not None:
            self.log.warning("the flow's lanes did not drain in time and are canceled")
            self.run.abort()
        self.life.take(Step.CUT)

    def _follow_successor(self, *, is_handed_on: bool = False) -> None:
        """Continue with the changed configuration, if there is one. Called while nothing runs."""
        if self.successor is None:
            return
        old, self.setup = self.setup, self.successor
        self.successor = self.error = None
        self.life.why -= {Step.REPLACED}
        self.trouble.forget()  # the new configuration may not have this problem
        self.tries.due_at = self.process.clock.monotonic()
        if not is_handed_on:
            leave(old)

    # -- snapshots

    def last_snapshot(self) -> FlowSnapshot:
        """Return the last snapshot if it is of the current run, or a new one."""
        return self.shown.last(self.run) or self.snapshot()

    def snapshot(self) -> FlowSnapshot:
        """Return the current state of the flow."""
        trouble = self.trouble.now
        if self.generation is not None:
            return self.shown.of_run(self.generation, self.life.why, trouble)
        next_ms = self.tries.due_ms if self.phase is Phase.WAITING else 0
        return self.shown.without_run(self.setup, trouble, self.error, next_ms)


def leave(setup: FlowSetup) -> threading.Thread:
    """Leave the flow's group permanently, in the background; failures are only logged."""

    def close() -> None:
        setup.resign()
        try:
            setup.close(None)
        except TwinlogError as error:
            FlowLog(log, setup.name).info("could not leave cleanly: %s", error)

    return _start_thread(close)


def _start_thread(job: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=job, name="twinlog-leave", daemon=True)
    thread.start()
    return thread


RETRY_S: Final = 0.5
MAX_SETUP_PAUSE_S: Final = 30.0
MAX_AWAY_PAUSE_S: Final = 5.0
"""Maximum seconds between set-up attempts in an outage. A standby still takes over within 15 s."""


@dataclass(slots=True, kw_only=True)
class SetUpAttempts:
    """Schedules the attempts to set up one flow, until it runs."""

    clock: Clock
    due_at: float = 0.0
    """The time of the next attempt, by the monotonic clock."""
    began: float = field(init=False)
    """The time when the flow was created, or its last run ended, by the monotonic clock."""
    _pause: GrowingPause = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock.monotonic()
        self._pause = GrowingPause(first_s=RETRY_S, most_s=MAX_SETUP_PAUSE_S)

    @property
    def is_due(self) -> bool:
        return self.clock.monotonic() >= self.due_at

    @property
    def lasted_s(self) -> float:
        """Seconds since the flow was created, or since its last run ended."""
        return self.clock.monotonic() - self.began

    @property
    def due_ms(self) -> int:
        """Return the time of the next attempt in ms, by the wall clock."""
        return self.clock.wall_ms() + int(1000 * (self.due_at - self.clock.monotonic()))

    def reset(self) -> None:
        """Forget earlier failures. The next attempt is due now."""
        self._pause.reset()
        self.due_at = self.clock.monotonic()

    def on_failure(self, error: TwinlogError) -> None:
        pause_s = RETRY_S  # a short pause, so that a free lead is taken soon
        if not isinstance(error, SetupWaiting):
            most_s = MAX_AWAY_PAUSE_S if has(error.code, Trait.AWAY) else MAX_SETUP_PAUSE_S
            pause_s = min(self._pause.next_s(most_s), most_s)
        self.due_at = self.clock.monotonic() + pause_s


T = TypeVar("T")


class Process(Protocol):
    """The process that runs the flow: Spark, the supervisor's thread, and threads for slow work."""

    clock: Clock
    once: bool
    synced: SyncedOffsets
    events: Callable[[str], PublishedEvents | None]
    """Returns recent events of a flow, for other hosts, or None if events are not stored."""

    spark_waits: Callable[[], TwinlogError | None]
    """Returns why Spark has no executor, or None if it has one."""

    @property
    def background(self) -> InBackground: ...

    @property
    def can_lead(self) -> bool:
        """Return True if Spark has an application, so that flows can get lanes."""

    def start_lease(self, run: FlowRun, lanes: int) -> tuple[int, Job]:
        """Start a Spark job with this many lanes. Return its unique number, and the job."""

    def lane_count(self, setup: FlowSetup, partitions: int, is_light: bool, /) -> int:
        """Return the flow's number of lanes. `is_light`: True if the flow has little traffic."""

    def lease_s(self, setup: FlowSetup) -> tuple[float, float]:
        """Return (duration of a lease of the flow, duration of its first lease) in seconds."""

    def call(self, action: Callable[[], object]) -> None:
        """Run the action soon in the supervisor's thread; thread-safe."""

    def ask(self, question: Callable[[], T]) -> T:
        """Return what `question` returns in the supervisor's thread. Raises Disconnected."""
