"""The records that would be lost without the source, while a flow is copied, paused, throttled or
stopped.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import pytest

from tests.support.driver import Driver, plan_of
from twinlog.codes import FlowState
from twinlog.config.flow.start import Starts, TopicStart
from twinlog.control.flow.snapshots import flow_snapshot
from twinlog.control.lanes.pacing import Pacer
from twinlog.control.risk.idle import IdlePosition, IdleQueries, IdleWatch
from twinlog.control.risk.running_flow import RiskLimits
from twinlog.control.risk.source_watch import (
    SHARE_OF_TIME,
    Offsets,
    OpenTransactions,
    SourceAnswers,
    SourceQueries,
    SourceWatch,
)
from twinlog.control.watch.snapshot import FlowSince, FlowSnapshot
from twinlog.errors import Disconnected, TwinlogError, Unreachable
from twinlog.flow_log import FlowLog
from twinlog.lane.messages import Throttle, UnreachableCluster
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.map.runs import Run
from twinlog.mirror.plan import PartitionPlan, Refusal
from twinlog.mirror.state.intents import Intent, IntentKind, flow_intents
from twinlog.model import EARLIEST, StartAt, StartKind, TopicId, TopicPartition
from twinlog.survey.ends import LogState
from twinlog.survey.open_transactions import OpenTransaction
from twinlog.survey.replica import Maps, Ownership, replica
from twinlog.survey.topic_configs import NO_LIMIT

FIRST, SECOND = (TopicPartition("orders", number) for number in range(2))
PAUSED = flow_intents(
    "A->B",
    [
        Intent(
            bytes_per_second=None,
            reason="",
            flow="A->B",
            kind=IntentKind.PAUSE,
            is_set=True,
            who="anna@ops",
            at_ms=1,
        ).encode()
    ],
)
RPO_S = 30


@dataclass
class Source(SourceQueries):
    """The log ends of a source, as the watch queries them. Each query takes some time."""

    driver: Driver
    at: dict[TopicPartition, int] = field(default_factory=dict)
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    kept_ms: int | None = None
    stable: dict[TopicPartition, int] | None = None
    """The last stable offsets, if they differ from the log ends."""
    asked: list[float] = field(default_factory=list)
    error: TwinlogError | None = None
    takes_s: float = 0.0
    open_transactions_are: OpenTransactions | None = None
    made_anew: set[str] = field(default_factory=set)
    rests: dict[TopicPartition, IdlePosition] = field(default_factory=dict)
    """Positions of the partitions that no lane has begun."""
    rests_asked: list[TopicPartition] = field(default_factory=list)

    def answers(
        self,
        wanted: Collection[TopicPartition],
        behind: Collection[TopicPartition],
        topics: Collection[str],
        held_back: Collection[TopicPartition],
    ) -> SourceAnswers:
        ends = self.ends(wanted) if wanted else {}
        return SourceAnswers(
            ends=ends,
            readable=ends if self.stable is None else self.stable,
            starts=self.starts(behind),
            ids=self.ids({tp.topic for tp in wanted}),
            retentions=self.retentions(topics) if topics else None,
            open_transactions=self.open_transactions(held_back) if held_back else None,
        )

    def ids(self, topics: Iterable[str]) -> Mapping[str, TopicId]:
        ids = {topic: plan_of(0, topic).source_topic_id for topic in topics}
        return ids | {topic: TopicId("f" * 32) for topic in ids if topic in self.made_anew}

    def ends(self, partitions: Iterable[TopicPartition]) -> Offsets:
        self.asked.append(self.driver.clock.now)
        self.driver.clock.now += self.takes_s
        if self.error is not None:
            raise self.error
        return {tp: self.at[tp] for tp in partitions if tp in self.at}

    def starts(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {tp: self.begins.get(tp, 0) for tp in partitions}

    def retentions(self, topics: Iterable[str]) -> Mapping[str, int]:
        return {topic: self.kept_ms for topic in topics if self.kept_ms is not None}

    def find_rests(self, plans: Sequence[PartitionPlan]) -> Mapping[TopicPartition, IdlePosition]:
        self.rests_asked += [plan.source for plan in plans]
        return {tp: rest for tp, rest in self.rests.items() if tp in self.rests_asked}

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> OpenTransactions:
        assert set(partitions) == {FIRST}
        assert self.open_transactions_are is not None
        return self.open_transactions_are


class Flow:
    """A run with two partitions, and its snapshots."""

    def __init__(
        self, rpo_seconds: int | None = RPO_S, second: str = "orders", *, begun: bool = True
    ) -> None:
        self.driver = Driver([plan_of(0), plan_of(1, second)], lanes=2)
        self.source = Source(self.driver, {FIRST: 100, SECOND: 100})
        self.watch = SourceWatch(
            run=self.driver.run,
            source=self.source,
            log=FlowLog(logging.getLogger("test"), "A->B"),
        )
        self.resting = IdleWatch(run=self.driver.run, find=self.source.find_rests)
        self._rpo_seconds = rpo_seconds
        self.at_ms = self.driver.clock.wall_ms()
        """Timestamp of the last copied record."""
        self._since = FlowSince()
        if begun:
            self.driver.run.tick()
            self.lanes = self.driver.lanes_of(1)
            self.copied(100)

    def copied(self, upto: int, *, end: int = 100) -> None:
        for lane in self.lanes:
            held = [tp for tp in (FIRST, SECOND) if lane.holds(tp)]
            lane.progress(*held, ordinal=upto, end=end, last_timestamp=self.at_ms)

    def pass_time(self, seconds: int) -> FlowSnapshot:
        for _ in range(seconds):
            self.driver.pass_time(1)
            self.resting.poll(at_once)
            self.watch.poll(at_once)
        return self.seen()

    def seen(self) -> FlowSnapshot:
        found = flow_snapshot(
            self.driver.run,
            "exact",
            None,
            [],
            Counter(),
            self._since,
            RiskLimits(rpo_seconds=self._rpo_seconds, retentions=self.watch.retentions),
        )
        self.watch.log_changes(found)
        return found


def at_once(
    job: Callable[[], Any],
    then: Callable[[Any], None],
    otherwise: Callable[[TwinlogError], None],
) -> None:
    try:
        value = job()
    except TwinlogError as error:
        otherwise(error)
    else:
        then(value)


def test_idle_at_the_end_nothing_is_lost_and_every_second_shows_it() -> None:
    flow = Flow()
    found = flow.pass_time(3600)
    assert (found.loss_records, found.loss_ms, found.loss_unknown) == (0, 0, 0)
    assert len(flow.source.asked) == 3600


def test_loss_grows_while_the_flow_is_paused() -> None:
    flow = Flow()
    flow.pass_time(5)
    flow.driver.run.follow(PAUSED)
    for lane in flow.lanes:
        lane.gives_back(*(tp for tp in (FIRST, SECOND) if lane.holds(tp)), ordinal=100)
        lane.goes()
    flow.source.at[FIRST] = 107
    found = flow.pass_time(20)
    assert found.state is FlowState.PAUSED
    assert (found.loss_records, found.loss_ms) == (7, 20_000)
    assert [part.lag for part in found.partitions] == [7, 0]
    flow.source.at[SECOND] = 103
    found = flow.pass_time(20)
    assert (found.loss_records, found.loss_ms) == (10, 40_000)
    assert found.state is FlowState.PAUSED
    assert "paused by anna@ops" in found.reason
    assert "orders-0 is furthest behind: it is paused [RPO_EXCEEDED]" in found.reason


@pytest.mark.parametrize("count", [50, 100, 150])
def test_the_possible_loss_of_a_recreated_source_topic_is_unknown(count: int) -> None:
    """The source topic was re-created, so the possible loss is unknown. The new topic may have as
    many records as were copied, so offsets alone would suggest that nothing is missing.
    """
    flow = Flow()
    flow.pass_time(5)
    flow.driver.run.follow(PAUSED)
    for lane in flow.lanes:
        lane.gives_back(*(tp for tp in (FIRST, SECOND) if lane.holds(tp)), ordinal=100)
        lane.goes()
    flow.source.made_anew, flow.source.at = {"orders"}, {FIRST: count, SECOND: count}
    found = flow.pass_time(3)
    assert found.loss_unknown == 2
    assert [part.loss_records for part in found.partitions] == [None, None]


def test_beyond_the_rpo_the_flow_is_degraded_and_reports_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flow = Flow()
    flow.pass_time(1)
    flow.source.at = {FIRST: 200, SECOND: 200}
    assert flow.pass_time(RPO_S).state is FlowState.RUNNING
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            found = flow.pass_time(1)
            assert found.state is FlowState.DEGRADED
    said = [line for line in caplog.messages if "RPO" in line]
    assert len(said) == 1
    assert "the RPO of 30 s is exceeded: without the source 200 records of the last" in said[0]
    assert flow.driver.run.errors["RPO_EXCEEDED"] == 1
    flow.copied(200, end=200)
    with caplog.at_level(logging.WARNING):
        assert flow.pass_time(1).state is FlowState.RUNNING
    assert caplog.messages[-1] == "A->B: the RPO is met again"


def test_without_an_rpo_nothing_is_exceeded() -> None:
    flow = Flow(rpo_seconds=None)
    flow.source.at = {FIRST: 200, SECOND: 200}
    found = flow.pass_time(3600)
    assert (found.state, found.loss_records, found.rpo_ms) == (FlowState.RUNNING, 200, None)


def test_a_source_that_does_not_answer_proves_nothing() -> None:
    flow = Flow()
    flow.pass_time(5)
    flow.source.error = Disconnected("the source is away")
    found = flow.pass_time(20)
    assert (found.loss_records, found.loss_ms, found.rpo_excess) == (0, 20_000, "")
    found = flow.pass_time(40)
    assert found.loss_ms == 60_000
    assert "orders-0 was last seen 1 min ago, and later records are unknown" in found.rpo_excess
    flow.source.error = None
    found = flow.pass_time(3)
    assert (found.loss_ms, found.rpo_excess) == (0, "")


def test_records_after_an_open_transaction_would_be_lost() -> None:
    """All records up to the last stable offset are copied, so there is no lag. An open transaction
    holds back the records after it. If the source were lost, they would be lost, so they count as
    possible loss.
    """
    flow = Flow()
    flow.pass_time(1)
    flow.source.stable = dict(flow.source.at)
    flow.source.at = {FIRST: 1100, SECOND: 100}
    found = flow.pass_time(RPO_S + 2)
    assert [(part.state, part.lag) for part in found.partitions] == [("AT_END", 0)] * 2
    assert (found.loss_records, found.loss_ms) == (1000, 32_000)
    assert "an open transaction at the source" in found.rpo_excess


def held_back(flow: Flow, limit_s: float | None) -> None:
    begun_ms = flow.at_ms - 5000
    transaction = OpenTransaction(tp=FIRST, producer_id=7, start_offset=100, since_ms=begun_ms)
    flow.source.open_transactions_are = OpenTransactions(limit_s, (transaction,))
    flow.source.stable = dict(flow.source.at)
    flow.source.at = {FIRST: 1100, SECOND: 100}


@pytest.mark.parametrize(
    ("limit_s", "told_after_s"), [(300.0, 360), (900.0, 960), (None, 960), (86_400.0, 3660)]
)
def test_a_hanging_transaction_is_reported_until_it_ends(
    limit_s: float | None, told_after_s: int
) -> None:
    flow = Flow()
    flow.pass_time(1)
    held_back(flow, limit_s)
    found = flow.pass_time(told_after_s - 10)
    assert [part.code for part in found.partitions] == ["", ""]
    found = flow.pass_time(80)
    first, second = found.partitions
    assert (first.code, first.lag, first.state) == ("OPEN_TRANSACTION", 1000, "COPYING")
    assert first.since_ms == flow.at_ms - 5000
    assert "producer id 7" in first.message
    assert "from upstream offset 100 on" in first.message
    assert "abort --topic orders --partition 0 --start-offset 100" in first.message
    assert (second.code, second.lag, second.state) == ("", 0, "AT_END")
    flow.pass_time(600)
    assert flow.driver.run.errors["OPEN_TRANSACTION"] == 1, "once, for as long as it lasts"
    flow.source.stable = None
    found = flow.pass_time(2)
    assert [(part.code, part.lag) for part in found.partitions] == [("", 1000), ("", 0)]


def test_transactions_that_follow_one_another_are_nothing_to_tell() -> None:
    flow = Flow()
    held_back(flow, 300.0)
    for stable in range(100, 1000, 5):
        flow.source.stable = {FIRST: stable, SECOND: 100}
        found = flow.pass_time(20)
        assert [part.code for part in found.partitions] == ["", ""]


def test_another_topic_in_place_of_the_copied_one_is_nothing_that_is_safe() -> None:
    flow = Flow()
    flow.pass_time(1)
    flow.driver.run.follow(PAUSED)
    for lane in flow.lanes:
        lane.gives_back(*(tp for tp in (FIRST, SECOND) if lane.holds(tp)), ordinal=100)
        lane.goes()
    flow.source.at = {FIRST: 99, SECOND: 100}
    found = flow.pass_time(20)
    assert (found.loss_records, found.loss_ms, found.loss_unknown) == (0, 19_000, 1)
    assert found.partitions[0].loss_records is None
    assert "RPO_EXCEEDED" in flow.pass_time(20).reason


def test_a_source_that_diverged_is_nothing_that_is_safe() -> None:
    flow = Flow()
    flow.pass_time(1)
    next(one for one in flow.lanes if one.holds(FIRST)).troubled(FIRST, "SOURCE_DIVERGED")
    found = flow.pass_time(20)
    assert (found.partitions[0].loss_records, found.loss_unknown) == (None, 1)
    assert "it has stopped with SOURCE_DIVERGED" in flow.pass_time(20).rpo_excess


@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_the_wall_clock_may_be_set(step_s: int) -> None:
    flow = Flow()
    flow.pass_time(5)
    flow.driver.clock.set_by(step_s)
    flow.source.at = {FIRST: 100, SECOND: 150}
    assert flow.pass_time(20).loss_ms == 20_000
    assert "RPO_EXCEEDED" in flow.pass_time(20).rpo_excess


def test_asking_takes_a_small_part_of_the_time() -> None:
    flow = Flow()
    flow.source.takes_s = 0.5
    flow.source.asked.clear()
    flow.pass_time(100)
    pauses = [b - a for a, b in zip(flow.source.asked, flow.source.asked[1:], strict=False)]
    assert min(pauses) >= flow.source.takes_s / SHARE_OF_TIME


def test_a_partition_that_never_began_is_not_known_and_exceeds_the_rpo() -> None:
    flow = Flow()
    flow.driver.run.set_plans([plan_of(0), plan_of(1), plan_of(2)])
    third = TopicPartition("orders", 2)
    flow.source.at[third] = 50
    found = flow.pass_time(3)
    assert (found.loss_records, found.loss_unknown, found.loss_ms) == (0, 1, 2000)
    said = flow.pass_time(RPO_S).rpo_excess
    assert "without the source records of the last 32 s would be lost; orders-2" in said


def throttled(flow: Flow) -> None:
    for lane in flow.lanes:
        assert lane.lane is not None
        lane.lane.throttle = Throttle(source_ms=500, target_ms=12_000)


def degraded(flow: Flow) -> None:
    assert flow.lanes[0].lane is not None
    flow.lanes[0].lane.unreachable = UnreachableCluster(
        code="UNREACHABLE", message="cluster B: no broker answers"
    )


def limited(flow: Flow) -> None:
    flow.driver.run.pacer = cast("Pacer", BINDING)


def stopped(flow: Flow) -> None:
    next(one for one in flow.lanes if one.holds(FIRST)).troubled(FIRST, "RECORD_TOO_LARGE")


def alone(flow: Flow) -> None:
    flow.source.at[SECOND] = 101


def gone(flow: Flow) -> None:
    for lane in flow.lanes:
        lane.goes()
        flow.driver.run.leases[0].lanes.clear()


@dataclass
class Binding:
    """A pacer (which keeps a flow within its limit) that slows the flow down at present."""

    limit: int = 5000
    is_binding: bool = True

    def tick(self, lanes: object, partitions: object) -> None: ...
    def recompute_soon(self) -> None: ...


BINDING = Binding()


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (lambda _: None, "2 lanes, and the network or the brokers are at their limit"),
        (
            throttled,
            "the flow is throttled by a quota of the source's brokers (they mute the connection "
            "for 0.5 s) and the target's brokers (they mute the connection for 12 s)",
        ),
        (degraded, "cluster B: no broker answers [UNREACHABLE]"),
        (limited, "the flow is throttled by its limit of 5.0 KB/s"),
        (stopped, "it has stopped with RECORD_TOO_LARGE"),
        (alone, "only this partition is behind"),
        (gone, "no lane runs"),
    ],
    ids=["lanes", "quota", "unreachable", "limit", "code", "one", "none"],
)
def test_the_reason_names_the_bottleneck(cause: Callable[[Flow], None], said: str) -> None:
    flow = Flow()
    flow.pass_time(1)
    flow.source.at = {FIRST: 2000, SECOND: 1900}
    cause(flow)
    found = flow.pass_time(RPO_S + 2)
    assert said in found.rpo_excess
    assert "orders-0 is furthest behind" in found.rpo_excess


HOUR_S: Final = 3600
KEPT_MS: Final = 4 * HOUR_S * 1000


def far_behind(flow: Flow) -> None:
    """Make the last copied record 3 hours old, with 10,000 more records waiting in each
    partition.
    """
    flow.source.kept_ms = KEPT_MS
    flow.source.at = {FIRST: 10_000, SECOND: 10_000}
    flow.at_ms = flow.driver.clock.wall_ms() - 3 * HOUR_S * 1000
    flow.copied(100, end=10_000)


def test_records_that_are_kept_long_enough_are_no_problem() -> None:
    flow = Flow(rpo_seconds=None)
    far_behind(flow)
    for second in range(120):
        flow.copied(100 + 10 * second, end=10_000)
        found = flow.pass_time(1)
    assert found.state is FlowState.RUNNING, "an hour is left, and 15 minutes are needed"
    part = found.partitions[0]
    assert part.left_ms is not None
    assert 3400_000 < part.left_ms < 3600_000
    assert part.needs_ms is not None
    assert 800_000 < part.needs_ms < 1000_000
    assert not part.is_near_deletion


def test_a_copy_that_is_too_slow_for_the_retention_is_reported_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flow = Flow(rpo_seconds=None)
    far_behind(flow)
    with caplog.at_level(logging.WARNING):
        for second in range(120):
            flow.copied(100 + second, end=10_000)
            found = flow.pass_time(1)
    (said,) = [line for line in caplog.messages if "RETENTION_NEAR" in line]
    assert "orders: in 5" in said, "just below an hour is left"
    assert (
        "of 2 partitions that are not copied yet (orders-0 first), and the copy needs 2 h" in said
    )
    assert found.state is FlowState.DEGRADED
    assert "[RETENTION_NEAR]" in found.reason
    flow.copied(10_000, end=10_000)
    with caplog.at_level(logging.WARNING):
        assert flow.pass_time(12).state is FlowState.RUNNING
    assert "retention no longer threatens records" in caplog.messages[-1]


def test_a_topic_that_lags_later_gets_its_outlook_as_soon() -> None:
    flow = Flow(rpo_seconds=None, second="payments")
    payments = TopicPartition("payments", 1)
    flow.source.kept_ms = 2 * HOUR_S * 1000
    flow.source.at = {FIRST: 10_000, payments: 100}
    (lane,) = (one for one in flow.lanes if one.holds(payments))
    lane.progress(payments, ordinal=100, end=100, last_timestamp=flow.at_ms)
    flow.copied(100, end=10_000)
    first, second = flow.pass_time(30).partitions
    assert (bool(first.left_ms), second.left_ms) == (True, None)
    flow.source.at[payments] = 10_000
    found = flow.pass_time(40)
    assert all(part.left_ms for part in found.partitions)


def test_a_partition_that_is_retried_in_vain_keeps_its_outlook() -> None:
    """A stopped partition is retried, and each attempt begins in a lane that has read no record
    yet. The time until the partition's records are deleted must be shown nevertheless.
    """
    flow = Flow(rpo_seconds=None)
    far_behind(flow)
    stopped(flow)
    for _ in range(3):
        flow.pass_time(60)
        (lane,) = (one for one in flow.lanes if one.holds(FIRST))
        assert lane.lane is not None
        assert lane.lane.partitions[FIRST].progress is None
        stopped(flow)
    found = flow.pass_time(60)
    assert all(part.left_ms for part in found.partitions)


@pytest.mark.parametrize("why", ["paused", "stopped"])
def test_a_partition_that_no_lane_of_this_run_has_begun_has_its_outlook(why: str) -> None:
    """The partition was paused or had failed when the mirror started, so no lane has begun it. The
    time until its records are deleted is known nevertheless: at most two hours at first, and one
    hour less after an hour.
    """
    flow = Flow(rpo_seconds=None, begun=False)
    flow.source.kept_ms = KEPT_MS
    flow.source.at = {FIRST: 10_000, SECOND: 10_000}
    written_ms = flow.driver.clock.wall_ms() - 2 * HOUR_S * 1000
    flow.source.rests = {FIRST: IdlePosition(100, written_ms), SECOND: IdlePosition(10_000, 0)}
    if why == "paused":
        flow.driver.run.follow(PAUSED)
    else:
        flow.driver.run.tick()
        for lane in flow.driver.lanes_of(1):
            for tp in filter(lane.holds, (FIRST, SECOND)):
                lane.troubled(tp, "TARGET_CHANGED")
    first, second = flow.pass_time(60).partitions
    assert first.left_ms is not None
    assert 0 < first.left_ms <= 2 * HOUR_S * 1000
    assert second.left_ms is None, "it is at the end"
    assert (first.loss_records, second.loss_records) == (None, None), "nobody has looked"
    found = flow.pass_time(HOUR_S + 60)
    assert found.partitions[0].is_near_deletion
    assert sorted(flow.source.rests_asked) == [FIRST, SECOND], "each once"


@pytest.mark.parametrize(
    ("start", "changes", "expected"),
    [
        (EARLIEST, {}, 0),
        (StartAt(StartKind.OFFSET, 700), {}, 700),
        (StartAt(StartKind.LATEST), {}, None),
        (StartAt(StartKind.TIMESTAMP, 1), {}, None),
        (StartAt(StartKind.LATEST), {"begin_at": 300}, 300),
        (EARLIEST, {"had_row": True}, None),
        (EARLIEST, {"refusal": Refusal(code="X", message="no", is_retriable=True)}, None),
        (EARLIEST, {"targets": 2}, 0),
    ],
)
def test_an_uncopied_partition_is_at_the_start_of_its_copy(
    start: StartAt, changes: dict[str, Any], expected: int | None
) -> None:
    starts = Starts(otherwise=TopicStart(text="", rest=start))
    assert begins(plan_of(0, **changes), Maps({}, {}, 1), starts) == expected


@pytest.mark.parametrize("targets", [0, 2])
def test_a_copied_partition_is_at_the_position_of_the_map(targets: int) -> None:
    plan = plan_of(0, targets=targets)
    key = plan.map_key._replace(branch=1, branches=2) if targets else plan.map_key
    known = PartitionMap(key, "orders")
    known._runs = cast("Any", [Run(0, 5, 0)])
    maps = Maps({key: known}, {}, 1)
    starts = Starts(otherwise=TopicStart(text="earliest", rest=EARLIEST))
    assert begins(plan, maps, starts) == (None if targets else 5)
    unread: dict[int, TwinlogError] = {0: Unreachable("no leader")}
    assert begins(plan, Maps({}, unread, 1), starts) is None
    assert begins(plan, Maps({}, {}, 1), starts) == 0


def begins(plan: PartitionPlan, maps: Maps, starts: Starts) -> int | None:
    """Return the source offset at which the partition would begin. No cluster is queried."""
    asked = IdleQueries(
        read_map=lambda: maps,
        target=cast("Any", None),
        next_batches=cast("Any", None),
        starts=starts,
        is_shared=False,
    )
    empty, targets = LogState(0, 0), plan.targets
    found = replica(plan, maps, Ownership(is_shared=False), target=empty, targets=targets)
    return asked._begins(plan, found)


def test_a_stopped_copy_is_reported_when_a_quarter_of_the_retention_is_left() -> None:
    flow = Flow(rpo_seconds=None)
    far_behind(flow)
    flow.at_ms += HOUR_S * 1000  # two hours are left until records are deleted
    flow.copied(100, end=10_000)
    assert flow.pass_time(HOUR_S - 60).state is FlowState.RUNNING
    found = flow.pass_time(120)
    assert found.state is FlowState.DEGRADED
    assert "the copy is not catching up" in found.reason


def test_a_log_that_is_cut_for_its_size_is_seen_by_its_start() -> None:
    flow = Flow(rpo_seconds=None)
    flow.source.at = {FIRST: 50_000, SECOND: 100}
    flow.copied(20_000, end=50_000)
    for second in range(300):
        flow.source.begins[FIRST] = 10 * second
        flow.source.at[FIRST] = 50_000 + 10 * second
        found = flow.pass_time(1)
    first, second_part = found.partitions
    assert first.left_ms is not None
    assert 1_600_000 < first.left_ms < 1_800_000, "17,000 records at 10 a second"
    assert first.is_near_deletion
    assert second_part.left_ms is None


@pytest.mark.parametrize("unlimited", [NO_LIMIT, 2**63 - 1])
def test_unlimited_retention_is_never_near_and_hidden_retention_is_unknown(unlimited: int) -> None:
    flow = Flow(rpo_seconds=None)
    far_behind(flow)
    flow.source.kept_ms = None
    found = flow.pass_time(200)
    assert found.state is FlowState.RUNNING
    assert {(part.left_ms, part.is_left_known) for part in found.partitions} == {(None, False)}
    flow.source.kept_ms = unlimited
    found = flow.pass_time(700)
    assert {(part.left_ms, part.is_left_known) for part in found.partitions} == {(None, True)}


def test_every_time_of_an_outlook_can_be_written_to_the_status_file() -> None:
    """A value beyond the bounds of a status would end the thread that writes the status file, and
    with it the process.
    """
    flow = Flow(rpo_seconds=None)
    far_behind(flow)
    flow.at_ms *= 1000  # a producer that writes microseconds
    far = 10**12
    flow.source.at = {FIRST: far, SECOND: far}
    flow.copied(100, end=far)
    flow.source.begins = {FIRST: 1}
    flow.pass_time(30)
    flow.copied(102, end=far)
    flow.source.begins = {FIRST: 2}
    found = flow.pass_time(60)
    assert found.partitions[0].left_ms is not None, "the log start moves"
    assert found.partitions[0].needs_ms is None
    assert found.partitions[1].left_ms is None
    assert len(found.status.partitions) == 2


def test_a_flow_whose_source_is_not_queried_reports_no_loss() -> None:
    """With `--once` the source is not queried, so the flow's possible loss is None and not 0, and
    no RPO is exceeded.
    """
    flow = Flow()
    far_behind(flow)
    found = flow_snapshot(flow.driver.run, "exact", None, [], Counter(), FlowSince())
    assert (found.loss_records, found.loss_ms, found.loss_unknown) == (None, None, 0)
    assert (found.rpo_excess, found.state) == ("", FlowState.RUNNING)
