"""The driver runs the application of a flow's transforms. Topics may lose their transforms."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from tests.support.driver import Driver, HandClock, plan_of
from tests.support.folded_rows import fold
from twinlog.channel.frames import ChannelAddress
from twinlog.config.flow.transforms import NO_NAMES, OnError
from twinlog.config.regex.patterns import NamePattern, compile_names
from twinlog.control.lanes.partitions import Placement
from twinlog.control.running.flow_transforms import (
    ENDED,
    FIRST_PAUSE_S,
    MOST_PAUSE_S,
    READY_WITHIN_S,
    RESTARTED_AFTER_S,
    FlowTransforms,
)
from twinlog.errors import Fate, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.mirror.map.offset_map import ChunkRow, Run, Term
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import TopicPartition
from twinlog.spark.application import (
    ApplicationFailed,
    ApplicationReady,
    FirstRangeAnswered,
    RangePorts,
    RecordSkipped,
    TransformsWork,
)
from twinlog.survey.replica import Maps

DIGEST: Final = "ab"
HERE: Final = TopicPartition("orders", 0)
PORT: Final = ChannelAddress(host="127.0.0.1", port=1, fingerprint="f", token="t")
MASKED: Final = plan_of(0, transform=DIGEST)
RAW: Final = plan_of(0, "payments")


class ApplicationStub:
    """An application that the test controls."""

    def __init__(self) -> None:
        self._said: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.ports: list[tuple[ChannelAddress, ...]] = []
        self.stops = 0
        self.kills = 0
        self.fails: Exception | None = None

    def kill(self) -> None:
        self.kills += 1
        self._said.put(None)

    def connect(self, ports: RangePorts) -> None:
        if self.fails is not None:
            raise self.fails
        self.ports.append(ports.ports)

    def messages(self) -> Iterator[object]:
        return iter(self._said.get, None)

    def say(self, *messages: object) -> None:
        for one in messages:
            self._said.put(one)

    def stop(self) -> None:
        self.stops += 1
        self._said.put(None)


class Applications:
    """The applications that the driver starts, one after the other."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.clock, self.started = HandClock(), list[ApplicationStub]()
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.skipped: list[RecordSkipped] = []
        self.fails: OSError | None = None
        self.transforms = FlowTransforms(
            TransformsWork(flow="A->B", steps=(), on_error=OnError.STOP, memory_bytes=0),
            call=self._calls.put,
            on_skipped=self.skipped.append,
            log=FlowLog(logging.getLogger("twinlog.tests"), "A->B"),
            start=self._start,
            clock=self.clock,
        )

    def _start(self, work: TransformsWork) -> Any:
        if self.fails is not None:
            raise self.fails
        self.started.append(ApplicationStub())
        return self.started[-1]

    def turn(self) -> None:
        """Process one call that another thread has sent to the supervisor."""
        self._calls.get(timeout=30)()

    def tend(self, *ports: ChannelAddress, after: float = 0.0) -> None:
        self.clock.now += after
        self.transforms.tick(ports)


@pytest.fixture
def applications(caplog: pytest.LogCaptureFixture) -> Iterator[Applications]:
    made = Applications(caplog)
    yield made
    made.transforms.stop()


def test_it_gets_the_ports_of_all_lanes_when_it_is_ready(applications: Applications) -> None:
    applications.tend(PORT)
    (application,) = applications.started
    assert application.ports == []
    application.say(ApplicationReady())
    applications.turn()
    other = replace(PORT, port=2)
    for ports in ((PORT,), (PORT,), (PORT, other), (other,)):
        applications.tend(*ports)
    assert [sorted(one, key=lambda it: it.port) for one in application.ports] == [
        [PORT], [PORT, other], [other],
    ]  # fmt: skip
    said = RecordSkipped(topic="orders", partition=0, offset=7, text="ValueError")
    application.say(said)
    applications.turn()
    assert applications.skipped == [said]


def test_it_is_started_again_after_a_pause(
    applications: Applications, caplog: pytest.LogCaptureFixture
) -> None:
    applications.tend()
    applications.started[0].say(ApplicationReady(), None)
    applications.turn()
    applications.tend(PORT)
    applications.turn()
    assert not applications.transforms.is_ready
    problem = applications.transforms.problem
    assert problem is not None and problem.code == "TRANSFORM_UNAVAILABLE"
    assert ENDED in problem.message and "starting it again in 2 s" in caplog.text
    applications.tend(after=FIRST_PAUSE_S - 0.1)
    assert len(applications.started) == 1
    applications.tend(after=0.2)
    again = applications.started[1]
    again.say(ApplicationFailed(message="mask cannot be imported", code="TRANSFORM_FAILED"), None)
    applications.turn()
    problem = applications.transforms.problem
    assert problem is not None
    assert problem.message.endswith("mask cannot be imported [TRANSFORM_FAILED]")
    applications.tend(after=2 * FIRST_PAUSE_S + 0.1)
    third = applications.started[2]
    third.say(ApplicationReady())
    applications.turn()
    assert applications.transforms.problem is None
    applications.tend(PORT)
    assert third.ports == [(PORT,)]
    assert all(one.stops for one in applications.started[:2])


def test_the_pause_grows_until_a_range_is_answered(
    applications: Applications, caplog: pytest.LogCaptureFixture
) -> None:
    def ends_after(*said: object, pause_s: float) -> None:
        applications.tend(after=MOST_PAUSE_S)
        applications.started[-1].say(ApplicationReady(), *said, None)
        for _ in range(2 + len(said)):
            applications.turn()
        assert f"starting it again in {pause_s:.0f} s" in caplog.messages[-1]

    ended = "Spark ended while it computed upstream records of orders-0 [5, 9)"
    died = ApplicationFailed(message=ended, code="TRANSFORM_UNAVAILABLE")
    ends_after(pause_s=2)
    ends_after(pause_s=4)
    ends_after(FirstRangeAnswered(), pause_s=2)
    applications.tend(after=MOST_PAUSE_S)
    applications.started[-1].say(ApplicationReady(), died, None)
    for _ in range(2):
        applications.turn()
    assert "starting it again in 4 s" in caplog.messages[-1]
    problem = applications.transforms.problem
    assert problem is not None and problem.message.endswith(f"does not run: {ended}")
    assert problem.fate is Fate.RETRIABLE


def test_it_is_started_again_if_a_range_has_no_answer(applications: Applications) -> None:
    applications.tend()
    (application,) = applications.started
    application.say(ApplicationReady())
    applications.turn()
    applications.clock.now += RESTARTED_AFTER_S - 1
    applications.transforms.on_unanswered("not yet")
    assert application.kills == 0, "lanes may have waited for the one before it"
    applications.clock.now += 1
    for _ in range(2):  # several partitions report the missing answer
        applications.transforms.on_unanswered("orders-0: no answer")
    assert application.kills == 1
    applications.tend()
    applications.turn()
    problem = applications.transforms.problem
    assert problem is not None and problem.message.endswith("does not run: orders-0: no answer")
    applications.tend(after=FIRST_PAUSE_S)
    assert len(applications.started) == 2


def test_a_closed_pipe_does_not_end_the_mirror(applications: Applications) -> None:
    applications.tend()
    (application,) = applications.started
    application.say(ApplicationReady())
    applications.turn()
    application.fails = ValueError("write to closed file")
    applications.tend(PORT)
    application.fails = BrokenPipeError()
    applications.tend()


def test_an_application_that_cannot_be_started_is_started_later(
    applications: Applications,
) -> None:
    applications.fails = OSError("no memory")
    applications.tend()
    problem = applications.transforms.problem
    assert problem is not None and "cannot be started: no memory" in problem.message
    applications.fails = None
    applications.tend(after=FIRST_PAUSE_S + 0.1)
    assert len(applications.started) == 1


def test_an_application_that_does_not_become_ready_is_ended(applications: Applications) -> None:
    applications.tend()
    (application,) = applications.started
    applications.tend(after=READY_WITHIN_S)
    assert application.kills == 0
    applications.tend(after=1.0)
    assert application.kills == 1
    applications.turn()
    problem = applications.transforms.problem
    assert problem is not None and "does an import hang?" in problem.message


def test_a_stopped_application_stays_stopped(applications: Applications) -> None:
    applications.tend()
    applications.transforms.stop()
    applications.turn()  # the application's thread has noticed the end
    assert applications.transforms.problem is None
    applications.tend(after=60)
    assert len(applications.started) == 1


# -- the flow


class Stub:
    """`FlowTransforms` of a flow, without threads."""

    is_ready = False
    problem: Any = None

    def __init__(self) -> None:
        self.ports: list[ChannelAddress] = []
        self.said: list[str] = []

    def tick(self, ports: Iterator[ChannelAddress]) -> None:
        self.ports = [*ports]

    def on_unanswered(self, why: str) -> None:
        self.said.append(why)


def test_only_transformed_partitions_wait_for_the_application() -> None:
    stub = Stub()
    driver = Driver([MASKED, RAW], lanes=1, transforms=cast("FlowTransforms", stub))
    driver.run.tick()
    lane = driver.connect(1, 0).ready(PORT)
    driver.run.tick()
    assert lane.taken == [RAW.source] and stub.ports == [PORT]
    stub.problem = TwinlogError("it ended", code="TRANSFORM_UNAVAILABLE", fate=Fate.RETRIABLE)
    driver.run.tick()
    failure = driver.run.partitions[HERE].failure
    assert failure is not None and failure.code == "TRANSFORM_UNAVAILABLE"
    assert driver.run.partitions[HERE].placement is Placement.PENDING
    stub.is_ready, stub.problem = True, None
    driver.pass_time(30)
    assert lane.taken == [RAW.source, HERE]


def rows(plan: PartitionPlan, transform: str) -> ChunkRow:
    return ChunkRow(
        key=plan.map_key,
        term=Term(1, 0),
        chunk=0,
        topic=plan.source.topic,
        runs=(Run(0, 7, 7),),
        transform=transform,
    )


UNMASKED: Final = plan_of(0)
NEW: Final = plan_of(0, "news")


@pytest.mark.parametrize(
    ("plans", "removed", "taken"),
    [
        ([MASKED, RAW, NEW], NO_NAMES, ["orders", "payments", "news"]),
        ([UNMASKED, RAW, NEW], NO_NAMES, ["payments"]),
        ([UNMASKED, RAW, NEW], compile_names(["ord.*"]), ["orders", "payments", "news"]),
        ([replace(UNMASKED, source_topic_id=NEW.source_topic_id), RAW], NO_NAMES, ["payments"]),
        ([RAW, NEW], NO_NAMES, ["payments", "news"]),
        ([UNMASKED], compile_names(["other"]), []),
    ],
    ids=[
        "kept",
        "lost",
        "removed on purpose",
        "re-created",
        "no longer mirrored",
        "another one removed",
    ],
)
def test_a_transformed_topic_is_not_copied_unchanged(
    plans: list[PartitionPlan], removed: NamePattern, taken: list[str]
) -> None:
    driver = Driver(plans, lanes=1, untransformed=removed)
    driver.maps = Maps(fold([rows(MASKED, DIGEST), rows(RAW, "")]), {}, 1)
    driver.run.tick()
    lane = driver.connect(1, 0).ready()
    driver.pass_time(60)
    assert {one.topic for one in lane.taken} == {*taken}
    failed = [one for one in driver.run.partitions.values() if one.plan.source.topic not in taken]
    assert all(one.failure and one.failure.code == "TRANSFORMS_DIFFER" for one in failed)
    assert all("list orders in twinlog.transforms.removed" in str(one.failure) for one in failed)


def test_application_that_does_not_answer_a_range_is_reported() -> None:
    stub = Stub()
    stub.is_ready = True
    driver = Driver([MASKED], lanes=1, transforms=cast("FlowTransforms", stub))
    driver.run.tick()
    lane = driver.connect(1, 0).ready(PORT)
    driver.pass_time(30)
    assert lane.taken == [HERE]
    lane.troubled(HERE, "RECORD_NOT_TRANSFORMED", said="a bad record")
    assert stub.said == []
    driver.pass_time(60)
    lane.troubled(HERE, "TRANSFORM_UNAVAILABLE", said="no topic for dead letters")
    assert stub.said == [], "the application may be healthy: the partition had not begun"
    assert driver.run.wants_discovery, "which creates the topic"
    driver.pass_time(60)
    lane.troubled(HERE, "TRANSFORM_UNAVAILABLE", said="no answer", had_begun=True)
    assert stub.said == ["no answer"]
