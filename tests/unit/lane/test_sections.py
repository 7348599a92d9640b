"""Reading a distant partition in sections returns the same batches as single responses."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.support.far_broker import NODE, TOPIC, TOPIC_ID, TRIP_S, FarBroker, Log
from tests.support.one_copy import K, a_copy, answer, sent
from tests.support.sweeps import sweep
from twinlog.config.flow.tuning import Tuning
from twinlog.errors import Disconnected, TwinlogError
from twinlog.lane.sides.pace import TopicBuckets
from twinlog.lane.sides.sections import CONNECTIONS, LogSection, SectionedRead
from twinlog.lane.sides.source_side import SourceSide, WaitsFor
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.fetch import (
    VERSION_BY_ID,
    FetchAnswer,
    FetchedPartition,
    FetchSession,
)

TP = TopicPartition(TOPIC, 0)
SECTION_BYTES = 4_000


def a_read(copy: PartitionCopy, log: Log) -> SectionedRead:
    return SectionedRead(
        tp=TP,
        topic_id=TOPIC_ID,
        node=1,
        session=FetchSession(VERSION_BY_ID, Isolation.READ_UNCOMMITTED, is_kept=False),
        leader_epoch=0,
        section_bytes=SECTION_BYTES,
        next_offset=copy.intake.position,
        bytes_per_offset=log.chance.uniform(20, 2_000),
    )


def answer_of(found: bytes, **changes: Any) -> FetchAnswer:
    values: dict[str, Any] = {
        "tp": TP,
        "error": 0,
        "high_watermark": 0,
        "last_stable_offset": 0,
        "log_start": 0,
        "aborted": (),
        "diverging": None,
        "preferred_replica": -1,
        "records": memoryview(bytearray(found)),
    }
    fetched = FetchedPartition(**(values | changes))
    return FetchAnswer(throttle_ms=0, error=0, partitions=(fetched,))


def content(copy: PartitionCopy) -> list[tuple[int, int, int]]:
    return [(one.ordinal, one.upstream, one.count) for one in copy._queue]


def read_in_sections(log: Log, *, also_compacts: bool) -> PartitionCopy:
    copy, in_flight = a_copy(), list[LogSection]()
    ahead = a_read(copy, log)
    while True:
        while (
            len(in_flight) < CONNECTIONS
            and (one := ahead.next_section(end=log.end, limit=CONNECTIONS, has_room=True))
            is not None
        ):
            one.sent_at = 0.0
            in_flight.append(one)
        if not in_flight:
            return copy
        if also_compacts and log.chance.random() < 0.05:
            log.compact()
        section = in_flight.pop(log.chance.randrange(len(in_flight)))
        records = log.read(section.offset, section.most_bytes)
        assert ahead.on_answer(section, answer_of(records)) is not None
        ahead.window.adapt(0.1, 0.1, is_full=True)
        while (due := ahead.pop_due(copy.intake.position)) is not None:
            before = copy.intake.position
            copy.on_fetched(cast("memoryview", due[1].records), (), 0)
            size = len(due[1].records or b"")
            ahead.learn(due[0], size, before, copy.intake.position)


@pytest.mark.parametrize("seed", range(20))
def test_batches_arrive_in_order_and_once_whatever_was_estimated(seed: int) -> None:
    log = Log(random.Random(seed))
    for sizes in ((10,), (2_000,), (10, 300, 9_000), (100, 200)):
        log.write(60, sizes)
    copy = read_in_sections(log, also_compacts=False)
    one_by_one = a_copy()
    while one_by_one.intake.position < copy.intake.position:
        records = memoryview(bytearray(log.read(one_by_one.intake.position, SECTION_BYTES)))
        one_by_one.on_fetched(records, (), 0)
    assert content(one_by_one)[: len(content(copy))] == content(copy)
    assert copy.intake.position > 0.9 * log.end
    assert not copy.intake.jumps


@pytest.mark.parametrize("seed", range(20))
def test_log_that_is_compacted_in_the_meantime_loses_nothing_that_was_kept(seed: int) -> None:
    log = Log(random.Random(seed))
    log.write(300, (10, 300, 2_000))
    copy = read_in_sections(log, also_compacts=True)
    copied = content(copy)
    upstreams = [upstream for _, upstream, _ in copied]
    assert upstreams == sorted(set(upstreams))
    kept = {base for base, _ in log.batches if base < copy.intake.position}
    assert kept <= set(upstreams)


@pytest.mark.parametrize(
    "odd", [{"error": 74}, {"diverging": (1, 2)}, {"preferred_replica": 2}, {"records": None}]
)
def test_anything_but_records_ends_it(odd: dict[str, Any]) -> None:
    log = Log(random.Random(1))
    log.write(100, (100,))
    copy = a_copy()
    ahead = a_read(copy, log)
    section = ahead.next_section(end=log.end, limit=1, has_room=True)
    assert section is not None
    assert ahead.on_answer(section, answer_of(b"", **odd)) is None


def test_without_room_only_a_missing_rest_is_requested() -> None:
    log = Log(random.Random(1))
    log.write(300, (100,))
    copy = a_copy()
    ahead = a_read(copy, log)
    # too large an estimate, so that the second section begins too early
    ahead.bytes_per_offset = 1_000
    first = ahead.next_section(end=log.end, limit=2, has_room=True)
    assert first is not None
    first.sent_at = 0.0
    second = ahead.next_section(end=log.end, limit=2, has_room=True)
    assert second is not None
    second.sent_at = 0.0
    assert ahead.next_section(end=log.end, limit=3, has_room=False) is None
    ahead.sections.popleft()  # as if the copy had accepted only a part of this section
    assert ahead.on_answer(second, answer_of(log.read(second.offset, SECTION_BYTES))) is not None
    assert ahead.pop_due(second.offset - 2) is None
    rest = ahead.next_section(end=log.end, limit=1, has_room=False)
    assert rest is not None
    assert rest.offset == second.offset - 2


@dataclass
class Lane:
    """The reading side of a lane with copies of distant logs. The target accepts batches at a given
    speed.
    """

    logs: list[Log]
    memory_bytes: int
    chance: random.Random
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    taken: list[list[tuple[int, int]]] = field(default_factory=list)
    """For each copy, the upstream offset and the number of records of every batch that was sent."""

    def __post_init__(self) -> None:
        self.broker = FarBroker(self.chance, self.logs)
        self.source = SourceSide(
            side=self.broker,
            clock=self.broker.clock,
            isolation=self.isolation,
            memory_bytes=self.memory_bytes,
            events=cast("Any", self),
            pace=TopicBuckets(self.broker.clock, has_budget=False),
            tuning=Tuning(fetch_bytes=4 * SECTION_BYTES, partition_fetch_bytes=SECTION_BYTES),
        )
        self.copies = []
        for number in range(len(self.logs)):
            copy = a_copy()
            copy.source = TopicPartition(TOPIC, number)
            copy.source_topic_id = TOPIC_ID
            self.copies.append(copy)
            self.taken.append([])
            self.source.add(copy)
        self.most_used = 0

    def on_arrived(self, copy: PartitionCopy) -> None:
        """Do nothing, because no part of this lane waits for arrivals."""

    def on_jumped(self, tp: TopicPartition, jumps: Iterable[tuple[int, int]]) -> None:
        raise AssertionError(f"{tp} lacks {jumps}")

    def on_troubled(self, tp: TopicPartition, error: TwinlogError) -> None:
        raise AssertionError(tp) from error

    def turn(self, *, target_takes: int) -> None:
        """Run one turn of the lane, which takes a tenth of a round trip. The target accepts at most
        `target_takes` batches of each copy.
        """
        self.broker.clock.now += TRIP_S / 10
        for key, connection in list(self.broker.connections.items()):
            try:
                self.source.on_readable(key, connection)
            except Disconnected:
                del self.broker.connections[key]
                self.source.on_disconnected(key)
        for copy, taken in zip(self.copies, self.taken, strict=True):
            for _ in range(target_takes):
                copy.tail.on_durable(copy.tail.runs[-1])  # so that no batch waits for the map
                for one in sent(copy):
                    taken.append((one.upstream, one.count))
                    answer(copy, K + one.ordinal)
        self.source.pump(hurry=False)
        self.most_used = max(self.most_used, self.memory_bytes - self.source.room_bytes)

    def is_done(self) -> bool:
        return all(
            copy.intake.position == log.end and copy.is_idle
            for copy, log in zip(self.copies, self.logs, strict=True)
        )

    def are_in_sections(self) -> int:
        return len(self.source._in[WaitsFor.SECTIONS])


@pytest.fixture(autouse=True)
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.lane.sides.source_side.MIN_ROOM_BYTES", SECTION_BYTES)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("seed", sweep(range(10), in_gate=3))
def test_lane_copies_far_logs_exactly_in_little_memory_whatever_happens(
    seed: int, partitions: int
) -> None:
    chance = random.Random(seed)
    logs = [Log(chance) for _ in range(partitions)]
    for log in logs:
        log.write(400, (10, 300, 900))
    lane = Lane(logs, 12 * SECTION_BYTES, chance)
    for turn in range(4_000):
        if lane.is_done():
            break
        lane.turn(target_takes=chance.choice((0, 0, 1)))
        if turn % 30 == 0 and turn < 500:
            lane.broker.lose_one()
        if turn % 70 == 0 and turn < 500:
            lane.broker.elect(lane.broker.epoch + 1)
        if turn == 200:
            logs[0].write(100, (300,))
    assert lane.is_done()
    for log, taken in zip(logs, lane.taken, strict=True):
        assert [upstream for upstream, _ in taken] == [base for base, _ in log.batches]
        assert sum(count for _, count in taken) == log.end
    assert lane.broker.requests_outside_of_sessions > 10
    # the most is the lane's memory, and for each copy one response to a request that was sent
    # without room
    assert lane.most_used <= lane.memory_bytes + partitions * 2 * SECTION_BYTES


@pytest.mark.parametrize("seed", sweep(range(10), in_gate=3))
def test_aborted_records_of_a_far_log_are_left_out_whatever_happens(seed: int) -> None:
    """Sections begin within transactions, so several sections read the same transaction markers.
    Aborted records are left out, whatever requests are lost.
    """
    chance = random.Random(seed)
    log = Log(chance)
    log.transact(500, (10, 300, 900))
    lane = Lane([log], 12 * SECTION_BYTES, chance, Isolation.READ_COMMITTED)
    for turn in range(4_000):
        if lane.is_done():
            break
        lane.turn(target_takes=chance.choice((0, 0, 1)))
        if turn % 60 == 0 and turn < 500:
            lane.broker.lose_one()
        if turn % 140 == 0 and turn < 500:
            lane.broker.elect(lane.broker.epoch + 1)
    assert lane.is_done()
    assert [upstream for upstream, _ in lane.taken[0]] == log.kept
    assert 100 < len(log.kept) < 400
    assert lane.broker.requests_outside_of_sessions > 10


def test_memory_is_full_and_not_exceeded_while_the_target_takes_nothing() -> None:
    chance = random.Random(1)
    log = Log(chance)
    log.write(2_000, (300,))
    lane = Lane([log], 20 * SECTION_BYTES, chance)
    for _ in range(500):
        lane.turn(target_takes=0)
    assert 15 * SECTION_BYTES < lane.most_used <= 21 * SECTION_BYTES
    while not lane.is_done():
        lane.turn(target_takes=10)
    assert sum(count for _, count in lane.taken[0]) == log.end


@pytest.fixture
def large_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sections large, so that each has many batches, as is usual."""
    monkeypatch.setattr(f"{__name__}.SECTION_BYTES", 40_000)
    monkeypatch.setattr("twinlog.lane.sides.sections.LEAST_REST_BYTES", 1_000)


@pytest.mark.usefixtures("large_sections")
def test_far_log_is_read_many_times_faster_and_little_is_read_twice() -> None:
    chance = random.Random(1)
    log = Log(chance)
    log.write(6_000, (300,))
    lane, turns = Lane([log], 100 * SECTION_BYTES, chance), 0
    while not lane.is_done():
        lane.turn(target_takes=20)
        turns += 1
    size = sum(len(one) for _, one in log.batches)
    assert turns / 10 < size / SECTION_BYTES / 4
    assert lane.broker.returned_bytes < 1.15 * size
    assert not lane.are_in_sections()
    assert lane.source.partitions[TP].node == NODE, "it is back in the fetch session"


def test_lane_with_little_memory_reads_response_by_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("twinlog.lane.sides.source_side.MIN_ROOM_BYTES", 1_000)
    chance = random.Random(1)
    log = Log(chance)
    log.write(200, (100,))
    lane = Lane([log], SECTION_BYTES, chance)
    while not lane.is_done():
        lane.turn(target_takes=10)
    assert not lane.broker.requests_outside_of_sessions
