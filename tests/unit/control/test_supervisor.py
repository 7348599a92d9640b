"""Flows of one process, from their set-up to their end, with a manual clock and without
clusters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.driver import HandClock, JobStub, plan_of, work_of
from tests.support.eventually import eventually
from tests.support.properties import flow_of, loader
from twinlog.codes import FlowState, PartitionState
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.duties.rounds import Duty
from twinlog.control.flow import managed_flow
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.flow.managed_flow import ONCE_GIVES_UP_S, ManagedFlow
from twinlog.control.flow.phases import Phase
from twinlog.control.lanes.lanes import JOB_ENDS_WITHIN_S
from twinlog.control.lanes.partitions import Placement
from twinlog.control.leading.claims import FlowClaims
from twinlog.control.leading.lead import STAY_OUT_S, StandingBy
from twinlog.control.process import supervisor
from twinlog.control.process.commands import CommandPort, Reload, Stop
from twinlog.control.process.reload import Reloader, ReloadResult
from twinlog.control.process.supervisor import STOP_WITHIN_S, Calls, Supervisor
from twinlog.errors import ConfigError, Disconnected, Fate, TwinlogError, Unreachable, UsageError
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind, flow_intents
from twinlog.survey.state_reader import StateNews

AWAY = Unreachable("cluster A cannot be reached")


def wanted(kind: IntentKind) -> FlowIntents:
    one = Intent(
        bytes_per_second=None,
        reason="",
        flow="A->B",
        kind=kind,
        is_set=True,
        who="anna@ops",
        at_ms=1,
    )
    return flow_intents("A->B", [one.encode()])


class Prepared:
    """A completed set-up. It records how its generation was ended."""

    guarantee = "exact"
    generation = 3
    clean = True
    problems: tuple[object, ...] = ()
    source_topics = frozenset({"orders"})
    map_reader = SimpleNamespace(read=dict)
    lost_lead = False

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.work = work_of()
        self.plans = [plan_of(0)]
        self.news = StateNews(intents=FlowIntents(), producers=frozenset())
        self.ended: list[tuple[str, bool, object]] = []
        self.end_fails: TwinlogError | None = None

    def read_news(self) -> StateNews:
        return self.news

    def news_at_hand(self) -> None:
        return None

    def discover(self) -> list[Any]:
        return self.plans

    def close(self, *, drained: bool) -> None:
        self._ends("closed", drained, None)

    def end_generation(self, *, drained: bool, successor: object) -> None:
        self._ends("rested", drained, successor)

    def _ends(self, how: str, drained: bool, successor: object) -> None:
        self.ended.append((how, drained, successor))
        if self.end_fails is not None:
            raise self.end_fails


class Away:
    """A source that does not respond. After `is_back`, it responds to queries that are not about
    partitions.
    """

    is_back = False

    def __getattr__(self, name: str) -> Callable[..., object]:
        def asked(*_: object) -> object:
            if name != "pulse" or not self.is_back:
                raise AWAY
            return None

        return asked


class Setup:
    """Sets up a flow without clusters. Each attempt has the next outcome of a list, and the last
    one is repeated.
    """

    name = "A->B"
    is_identity = False
    membership = None
    handed = None
    adopts = None

    def __init__(self, config: FlowConfig, *outcomes: TwinlogError | None) -> None:
        self.config = config
        self.outcomes = list(outcomes) or [None]
        self.prepared: list[Prepared] = []
        self.tries = self.left = self.resigned = 0
        self.handed_on_to: list[object] = []
        self.policy = self.source = self.target = cast("Any", None)
        self.claims = FlowClaims(config=config, claimant="", log_once=self.log_once)
        self.queries = Away()

    def prepare(self, *, once: bool) -> Prepared:
        self.tries += 1
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if outcome is not None:
            raise outcome
        self.prepared.append(Prepared(self))
        return self.prepared[-1]

    def resign(self) -> None:
        self.resigned += 1

    def close(self, generation: int | None) -> None:
        self.left += 1

    def hand_on(self, successor: object) -> None:
        self.handed_on_to.append(successor)

    def set_released(self, topics: frozenset[str]) -> None:
        pass

    def log_once(self, line: str) -> None:
        pass

    def clusters(self) -> tuple[()]:
        return ()


class EndsOnce(Duty):
    """A duty that counts its last rounds with `--once`."""

    name = "a duty"
    interval_s = 1.0
    rounds = 0

    def round(self) -> None:
        self.rounds += 1

    def close(self) -> None:
        pass


class Starter:
    """A Spark whose jobs end when the test ends them."""

    def __init__(self) -> None:
        self.jobs: list[JobStub] = []

    def start(self, lease: int, lanes: int, description: str) -> JobStub:
        self.jobs.append(JobStub())
        return self.jobs[-1]


class Files:
    """The files that a reload reads: the result of the reload, or its error."""

    def __init__(self) -> None:
        self.found: ReloadResult | TwinlogError = AWAY
        self.may_be_read = threading.Event()
        self.may_be_read.set()
        self.readings = 0

    def read(self) -> ReloadResult:
        self.readings += 1
        self.may_be_read.wait()
        if isinstance(self.found, TwinlogError):
            raise self.found
        return self.found


def changing(*setups: Setup, removed: frozenset[str] = frozenset()) -> ReloadResult:
    """Return the result of a reload in which the flows of `setups` have changed, and those in
    `removed` were removed.
    """
    changed = tuple(cast("FlowSetup", one) for one in setups)
    lines = (*(f"{one.name}: changed" for one in setups), *(f"{one}: removed" for one in removed))
    return ReloadResult(changed=changed, added=(), removed=removed, lines=lines)


class Process:
    """A supervisor. The test runs its turns one by one."""

    def __init__(self, *setups: Setup, once: bool = False, begins: bool = True) -> None:
        self.clock = HandClock()
        self.starter = Starter()
        self.files = Files()
        self.supervisor = Supervisor(
            [cast("FlowSetup", one) for one in setups],
            once=once,
            lease_s=300.0,
            lane_count=lambda _setup, _partitions, _is_light: 1,
            reloader=None if once else cast("Reloader", self.files),
            clock=self.clock,
        )
        self.supervisor.set_starter(self.starter)
        if begins:
            self.supervisor.begin()

    @property
    def flow(self) -> ManagedFlow:
        (flow,) = self.supervisor.flows
        return flow

    def turn(self) -> None:
        self.supervisor.turn(within_s=0.01)
        for job in self.starter.jobs:
            job.is_done = job.is_done or job.cancelled > 0

    def until(self, there: Callable[[], object]) -> None:
        """Run turns until the condition is true. The clock does not move, and background work can
        complete.
        """

        def turned() -> object:
            self.turn()
            return there()

        eventually(turned)

    def is_in(self, phase: Phase) -> bool:
        return self.flow.phase is phase

    def comes_to(self, phase: Phase) -> None:
        self.until(lambda: self.is_in(phase))

    def drains(self) -> None:
        """End the flow's run, and move the clock so that its jobs can end."""
        self.clock.now += 2
        self.turn()

    def stop(self) -> tuple[str, ...]:
        asked = self.supervisor.commands.put(Stop(who="a test"))
        self.turn()
        return asked.result(0)

    def reload(self, found: ReloadResult | TwinlogError) -> tuple[str, ...]:
        """Reload the configuration, and return the changes. Raises the error if nothing was
        changed.
        """
        self.files.found = found
        asked = self.supervisor.commands.put(Reload(who="a test"))
        self.until(asked.done)
        return asked.result(0)

    def leads(self) -> Prepared:
        self.comes_to(Phase.RUNNING)
        return cast("Prepared", cast("Any", self.flow.generation).prepared)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlowConfig:
    """The configuration of a flow without duties, because duties would query clusters."""
    monkeypatch.setattr(managed_flow, "duties_of", lambda _: [])
    return flow_of(loader(tmp_path)())


def state(process: Process) -> FlowState:
    return process.flow.snapshot().state


def test_a_flow_is_set_up_led_and_stopped_in_order(config: FlowConfig) -> None:
    setup = Setup(config)
    process = Process(setup)
    prepared = process.leads()
    process.stop()
    assert process.is_in(Phase.ENDING)
    process.drains()
    process.until(lambda: process.supervisor.is_over)
    assert process.is_in(Phase.CLOSED)
    assert prepared.ended == [("closed", True, None)]
    assert state(process) is FlowState.STOPPED


def test_a_set_up_that_fails_is_tried_again_at_longer_intervals(config: FlowConfig) -> None:
    setup = Setup(config, AWAY)
    process = Process(setup)
    pauses = []
    for tries in range(1, 9):
        process.comes_to(Phase.WAITING)
        assert setup.tries == tries
        assert state(process) is FlowState.DEGRADED
        pauses.append(process.flow.tries.due_at - process.clock.now)
        process.clock.now = process.flow.tries.due_at
        process.turn()
    assert pauses == [0.5, 1, 2, 4, 5, 5, 5, 5]


def test_a_configuration_that_cannot_run_is_given_up_until_it_changes(config: FlowConfig) -> None:
    setup, better = Setup(config, ConfigError("no such policy")), Setup(config)
    process = Process(setup)
    process.comes_to(Phase.LEFT)
    assert process.supervisor.is_over
    assert state(process) is FlowState.FAILED
    process.reload(changing(better))
    process.leads()
    assert process.flow.setup is cast("FlowSetup", better)
    assert process.supervisor.errors == []
    eventually(lambda: setup.left == 1)


def test_once_gives_up_a_cluster_that_stays_away(config: FlowConfig) -> None:
    process = Process(Setup(config, AWAY), once=True)
    process.comes_to(Phase.WAITING)
    process.clock.now += ONCE_GIVES_UP_S + 1
    process.comes_to(Phase.LEFT)
    (error,) = process.supervisor.errors
    assert error.code == AWAY.code
    assert error.message == f"{AWAY.message}; gave up after 1 min 1 s"


def test_once_has_a_minute_again_after_its_lead_was_lost(
    config: FlowConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long copy with `--once` loses its lead in an outage. It must not be given up at the first
    failure after that, and the last rounds of its duties are for the end of the copy.
    """
    last = EndsOnce()
    monkeypatch.setattr(managed_flow, "duties_of", lambda _: [last])
    setup = Setup(config, None, AWAY)
    process = Process(setup, once=True)
    prepared = process.leads()
    process.clock.now += 10 * ONCE_GIVES_UP_S
    prepared.lost_lead = True
    process.turn()
    process.drains()
    process.until(lambda: setup.tries == 2)
    process.comes_to(Phase.WAITING)
    assert (process.supervisor.errors, last.rounds) == ([], 0)
    process.clock.now += ONCE_GIVES_UP_S + 1
    process.comes_to(Phase.LEFT)
    assert [error.code for error in process.supervisor.errors] == [AWAY.code]


def test_a_source_that_answers_nothing_degrades_the_flow_until_it_does(
    config: FlowConfig,
) -> None:
    """A source that does not respond makes the flow DEGRADED, even if no lane has noticed it. When
    the source responds again, the flow recovers.
    """
    setup = Setup(config)
    process = Process(setup)
    process.leads()
    process.until(lambda: state(process) is FlowState.DEGRADED)
    assert process.flow.snapshot().code == AWAY.code
    setup.queries.is_back = True
    process.clock.now += 2
    process.until(lambda: state(process) is not FlowState.DEGRADED)
    assert process.is_in(Phase.RUNNING)


def test_a_lost_lead_ends_the_run_and_nothing_is_noted(config: FlowConfig) -> None:
    setup = Setup(config, None, StandingBy("standing by: another process leads this flow"))
    process = Process(setup)
    prepared = process.leads()
    prepared.lost_lead = True
    process.turn()
    assert process.is_in(Phase.ENDING)
    process.drains()
    process.until(lambda: setup.tries == 2)
    process.comes_to(Phase.WAITING)
    assert prepared.ended == [("rested", False, None)]
    assert state(process) is FlowState.STANDBY
    assert process.flow.snapshot().reason == (
        "standing by: another process leads this flow; "
        "as leader, this process would use up to 1 lane [STANDBY]"
    )


def test_how_long_it_copied_is_counted_over_all_runs(config: FlowConfig) -> None:
    """A flow has several runs. The time in which it copied is summed over all of them, like the
    number of records.
    """
    old, newest = Setup(config), Setup(config)
    process = Process(old)
    process.leads()
    cast("Any", process.flow.run).copying_since = process.clock.now - 100
    process.reload(changing(newest))
    process.clock.now += 2
    process.comes_to(Phase.RUNNING)
    assert newest.tries == 1
    process.clock.now += 10
    assert process.supervisor.seconds == 112


def test_a_changed_flow_ends_and_resumes_with_the_newest_configuration(config: FlowConfig) -> None:
    old, between, newest = Setup(config), Setup(config), Setup(config)
    process = Process(old)
    prepared = process.leads()
    process.reload(changing(between))
    process.comes_to(Phase.ENDING)
    process.clock.now += 2
    process.comes_to(Phase.RESTARTING)
    process.flow.replace(cast("FlowSetup", newest))
    process.comes_to(Phase.RUNNING)
    assert prepared.ended == [("rested", True, between)]
    assert between.handed_on_to == [newest]
    assert (between.tries, newest.tries) == (0, 1)


def test_a_removed_flow_ends_and_is_gone(config: FlowConfig) -> None:
    setup = Setup(config)
    process = Process(setup)
    prepared = process.leads()
    process.reload(changing(removed=frozenset({"A->B"})))
    process.comes_to(Phase.ENDING)
    process.clock.now += 2
    process.until(lambda: not process.supervisor.flows)
    assert prepared.ended == [("closed", True, None)]


def done(process: Process) -> None:
    run = process.flow.run
    assert run is not None
    run.stop()
    process.turn()


def handed_over(process: Process) -> None:
    process.flow.on_offered("other", process.clock.now)
    process.flow.on_handed_over()


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (Process.stop, "this process is shutting down"),
        (lambda process: process.flow.remove(), "it was removed from the configuration"),
        (
            lambda process: process.flow.replace(process.flow.setup),
            "the configuration changed: it restarts with the new one",
        ),
        (handed_over, "it is handed over to a process that leads fewer flows"),
        (done, "everything is done"),
    ],
)
def test_a_flow_that_ends_says_why(
    config: FlowConfig, ends: Callable[[Process], None], reason: str
) -> None:
    process = Process(Setup(config))
    process.leads()
    ends(process)
    shown = process.flow.snapshot()
    assert (shown.state, shown.reason) == (FlowState.STOPPING, reason)


@pytest.mark.parametrize(
    ("ends", "reason"),
    [(Process.stop, "this process is shutting down"), (done, "everything is done")],
)
def test_a_flow_that_has_ended_permanently_still_says_why(
    config: FlowConfig, ends: Callable[[Process], None], reason: str
) -> None:
    process = Process(Setup(config), once=True)
    process.leads()
    ends(process)
    process.drains()
    process.comes_to(Phase.CLOSED)
    shown = process.flow.snapshot()
    assert (shown.state, shown.reason) == (FlowState.STOPPED, reason)


def test_a_flow_that_is_done_except_for_failures_counts_them(config: FlowConfig) -> None:
    process = Process(Setup(config), once=True)
    process.leads()
    run = process.flow.run
    assert run is not None
    for partition in run.partitions.values():
        partition.note_failure("FOREIGN_DATA", "others wrote it", retriable=False)
        partition.leave_lane(Placement.FAILED)
    done(process)
    said = "1 partition FAILED; everything else is done"
    assert process.flow.snapshot().reason == said


def test_a_flow_that_is_removed_while_it_waits_leaves_its_group(config: FlowConfig) -> None:
    setup = Setup(config, AWAY)
    process = Process(setup)
    process.comes_to(Phase.WAITING)
    process.reload(changing(removed=frozenset({"A->B"})))
    process.until(lambda: not process.supervisor.flows)
    eventually(lambda: setup.left == 1)


def test_a_standby_that_is_stopped_does_not_stay_in_its_group_while_others_drain(
    config: FlowConfig,
) -> None:
    leading, standby = Setup(config), Setup(config, StandingBy("another process leads"))
    process = Process(leading, standby)
    flows = process.supervisor.flows
    phases = [Phase.RUNNING, Phase.WAITING]
    process.until(lambda: [flow.phase for flow in flows] == phases)
    process.stop()
    eventually(lambda: standby.resigned == 1)
    assert flows[0].phase is Phase.ENDING
    assert leading.resigned == 0, "who leads goes when its end is noted"


def test_a_handed_over_flow_is_on_standby_and_stays_out_for_a_while(config: FlowConfig) -> None:
    setup = Setup(config)
    process = Process(setup)
    prepared = process.leads()
    process.flow.on_offered("other", process.clock.now)
    process.flow.on_handed_over()
    process.drains()
    process.comes_to(Phase.WAITING)
    assert prepared.ended == [("closed", True, None)]
    assert state(process) is FlowState.STANDBY
    assert process.flow.tries.due_at - process.clock.now == STAY_OUT_S
    process.clock.now += STAY_OUT_S
    process.comes_to(Phase.RUNNING)


def test_pause_resume_and_promotion_are_phases_of_the_same_run(config: FlowConfig) -> None:
    process = Process(Setup(config))
    prepared = process.leads()
    for intents, phase in (
        (wanted(IntentKind.PAUSE), Phase.PAUSED),
        (FlowIntents(), Phase.RUNNING),
        (wanted(IntentKind.PROMOTE), Phase.ENDING),
    ):
        prepared.news = StateNews(intents=intents, producers=frozenset())
        process.clock.now += 1
        process.comes_to(phase)
    process.drains()
    process.until(lambda: prepared.ended == [("rested", True, None)])


def test_an_end_that_cannot_be_noted_is_an_end(config: FlowConfig) -> None:
    process = Process(Setup(config))
    process.leads().end_fails = AWAY
    process.stop()
    process.drains()
    process.comes_to(Phase.CLOSED)


def test_lanes_that_do_not_drain_in_time_are_cancelled(config: FlowConfig) -> None:
    process = Process(Setup(config))
    process.leads()
    process.until(lambda: process.starter.jobs)
    job = process.starter.jobs[0]
    process.stop()
    process.clock.now += STOP_WITHIN_S + 0.1
    process.turn()
    assert process.supervisor.is_over
    assert job.cancelled > 0


WAITS = TwinlogError("no executor", code="WAITING_FOR_SPARK", fate=Fate.RETRIABLE)


def test_a_flow_without_an_executor_waits_for_spark_and_continues(
    config: FlowConfig, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup(config)
    setup.queries.is_back = True
    process = Process(setup)
    needed: list[bool] = []
    process.supervisor._on_led = lambda: needed.append(True)
    process.supervisor.spark_waits = lambda: WAITS
    process.supervisor.leases.starter = None
    process.leads()
    assert needed, "Spark was not requested"
    process.turn()
    shown = process.flow.snapshot()
    assert (shown.state, shown.code) == (FlowState.WAITING_FOR_SPARK, "WAITING_FOR_SPARK")
    assert shown.reason == "no executor [WAITING_FOR_SPARK]"
    assert shown.partitions[0].state is PartitionState.PENDING
    for _ in range(3):
        process.turn()
    assert caplog.messages.count("A->B: no executor [WAITING_FOR_SPARK]") == 1
    process.supervisor.spark_waits = lambda: None
    process.supervisor.set_starter(process.starter)
    process.until(lambda: process.starter.jobs)
    assert state(process) is FlowState.STARTING
    process.supervisor.spark_waits = lambda: WAITS
    process.stop()
    process.turn()
    assert state(process) in (FlowState.STOPPING, FlowState.STOPPED)


def test_no_lease_starts_between_two_applications(config: FlowConfig) -> None:
    """Spark's cluster ends the application. A lease that is started before the next application
    would fail, and each failure doubles the pause before the next lease.
    """
    setup = Setup(config)
    setup.queries.is_back = True
    process = Process(setup)
    process.leads()
    process.until(lambda: process.starter.jobs)
    (lost,) = process.starter.jobs
    lost.is_done, lost.error = True, TwinlogError("its application has ended", code="LEASE")
    process.turn()
    process.supervisor.set_starter(None)
    process.clock.now += 5
    for _ in range(3):
        process.turn()
    assert process.starter.jobs == [lost]
    process.supervisor.set_starter(process.starter)
    process.turn()
    process.turn()
    assert len(process.starter.jobs) == 2


def test_spark_is_not_requested_for_a_flow_that_does_not_run(config: FlowConfig) -> None:
    process = Process(Setup(config, StandingBy("another process leads it")))
    needed: list[bool] = []
    process.supervisor._on_led = lambda: needed.append(True)
    process.supervisor.spark_waits = lambda: WAITS
    process.until(lambda: state(process) is FlowState.STANDBY)
    process.turn()
    assert (needed, state(process)) == ([], FlowState.STANDBY)


def test_a_job_is_not_cancelled_while_it_ends_after_its_lanes(config: FlowConfig) -> None:
    process = Process(Setup(config))
    process.leads()
    process.until(lambda: process.starter.jobs)
    (lease,) = cast("Any", process.flow.run).leases
    process.clock.now += 60
    lease.changed = process.clock.monotonic()  # the lease's last lane has just ended
    process.stop()
    process.clock.now += JOB_ENDS_WITHIN_S / 2
    process.turn()
    assert process.starter.jobs[0].cancelled == 0
    process.clock.now += JOB_ENDS_WITHIN_S
    process.turn()
    assert process.starter.jobs[0].cancelled > 0


def test_a_flow_that_never_ran_is_over_at_once_when_the_process_ends(config: FlowConfig) -> None:
    process = Process(Setup(config, AWAY))
    process.comes_to(Phase.WAITING)
    process.stop()
    assert process.supervisor.is_over
    assert process.is_in(Phase.LEFT)


def test_commands_return_their_changes(config: FlowConfig) -> None:
    process = Process(Setup(config))
    process.leads()
    assert process.reload(changing()) == ()
    assert process.reload(changing(Setup(config))) == ("A->B: changed",)
    process.comes_to(Phase.ENDING)
    assert process.stop() == ("A->B: ending",)
    assert process.stop() == (), "it ends already"
    with pytest.raises(Disconnected, match="shutting down"):
        process.reload(changing(Setup(config)))


def test_a_reload_that_fails_is_answered_with_its_error_and_changes_nothing(
    config: FlowConfig,
) -> None:
    process = Process(Setup(config))
    process.leads()
    wrong = ConfigError("topics: no regular expression")
    with pytest.raises(ConfigError) as raised:
        process.reload(wrong)
    assert raised.value is wrong
    assert process.is_in(Phase.RUNNING)


def test_a_request_during_a_read_of_the_files_gets_the_next_read(config: FlowConfig) -> None:
    """Several reloads are requested while the files are already being read. They must get one new
    read, because the first read may have begun before the files were changed.
    """
    process = Process(Setup(config))
    process.leads()
    commands, files = process.supervisor.commands, process.files
    files.may_be_read.clear()
    first = commands.put(Reload(who="a test"))
    process.until(lambda: files.readings == 1)
    meanwhile = [commands.put(Reload(who="a test")) for _ in range(3)]
    process.turn()
    assert files.readings == 1
    files.found = changing()
    files.may_be_read.set()
    process.until(lambda: all(one.done() for one in (first, *meanwhile)))
    assert files.readings == 2


def test_commands_that_come_with_or_after_the_end_are_answered(config: FlowConfig) -> None:
    process = Process(Setup(config, AWAY), begins=False)
    commands = process.supervisor.commands
    process.files.may_be_read.clear()
    being_read = commands.put(Reload(who="a test"))
    stopped = commands.put(Stop(who="a test"))
    process.supervisor.run()
    assert stopped.result(0) == ("A->B: left",)
    assert commands.put(Stop(who="a test")).result(0) == ()
    for asked in (being_read, commands.put(Reload(who="a test"))):
        with pytest.raises(Disconnected, match="shutting down"):
            asked.result(0)
    process.files.may_be_read.set()


def test_with_once_the_configuration_is_read_once(config: FlowConfig) -> None:
    process = Process(Setup(config), once=True)
    with pytest.raises(UsageError, match="once"):
        process.reload(changing(Setup(config)))


def test_a_command_is_logged_with_author_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "twinlog"):
        CommandPort().put(Stop(who="anna (REST)", reason="new kernel"))
    assert [record.getMessage() for record in caplog.records] == [
        "stop, requested by anna (REST): new kernel"
    ]


def test_prepared_stub_has_the_attributes_of_a_prepared_flow() -> None:
    """The stub of a prepared flow has only attributes that the real class `PreparedFlow` has."""
    names = {name for name in dir(Prepared) if not name.startswith("_")}
    real = {*PreparedFlow.__dataclass_fields__} | {*dir(PreparedFlow)}
    assert names <= real


def test_calls_without_end_do_not_stop_the_rest_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MOST_CALLS_S", 0.02)
    calls, until = Calls(), time.monotonic() + 2

    def again() -> None:
        if time.monotonic() < until:
            calls.call(again)

    calls.call(again)
    calls.handle_queued(0.1)
    assert time.monotonic() < until
