"""How many searches the cold starts of many partitions cost, and which partitions wait for
others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from tests.support.driver import HandClock
from tests.support.lane_takes import HERE_ID, PRODUCER, THERE_ID, take
from tests.support.memory_log import MemoryLog, MemoryView
from twinlog.errors import PartitionError, TwinlogError
from twinlog.lane import cold_starts
from twinlog.lane.cold_starts import SEARCHES_AT_ONCE, ColdStarts
from twinlog.lane.lane_partition import ColdStart, StartResult
from twinlog.lane.messages import TakePartition, Work
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.background import JobKind
from twinlog.mirror.copy.dead_letters import LetterOrigin
from twinlog.mirror.map.offset_map import Mark
from twinlog.mirror.ports import RawRecords
from twinlog.mirror.start.cold_start import AT_ONCE
from twinlog.mirror.start_point import CopyRules, KnownDeadLetters, StartPoint
from twinlog.model import Isolation, TopicId, TopicPartition
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

OTHER_FLOW: Final = 12
NOW_MS: Final = HandClock().wall_ms()
OLD_MS: Final = NOW_MS - 30 * 3_600_000
"""A timestamp so old that the target may have expired the producer ID."""


@dataclass
class Jobs:
    """Searches that were started. The test decides when one runs and when its result is
    delivered.
    """

    searches: list[tuple[Callable[[], Any], Callable[[Any], None], Callable[[Any], None]]] = field(
        default_factory=list
    )
    posted: list[Callable[[], None]] = field(default_factory=list)

    def submit(self, kind: JobKind, job: Any, then: Any, otherwise: Any) -> None:
        assert kind is JobKind.SEARCH
        self.searches.append((job, then, otherwise))

    def post(self, call: Callable[[], None]) -> None:
        self.posted.append(call)

    def run(self) -> None:
        """Run the oldest search, and deliver its result."""
        job, then, _ = self.searches.pop(0)
        answer = job()
        self.deliver()
        then(answer)

    def deliver(self) -> None:
        while self.posted:
            self.posted.pop(0)()


class CountingView(MemoryView):
    """The logs of both clusters. A query counts once, however many partitions it is about."""

    def __init__(self, logs: Mapping[TopicPartition, MemoryLog], topic_id: TopicId) -> None:
        super().__init__(logs, topic_id)
        self.questions = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("topic_ids", "ends", "begins", "read", "producers"):
            self.questions += 1
        return super().__getattribute__(name)


class OneBatch(CountingView):
    """A view in which each read returns only one batch of a partition, as if the batch were
    large.
    """

    def _read(self, log: MemoryLog, offset: int) -> RawRecords:
        return RawRecords(records=log.read(offset, 1), high_watermark=log.ends.high_watermark)


class Client:
    """A client whose view the test provides."""

    def __init__(self, view: CountingView) -> None:
        self.view = view

    @contextmanager
    def keeping_leaders(self) -> Iterator[None]:
        yield


class Side:
    def __init__(self, view: CountingView) -> None:
        self.view = view

    def need_topics(self, topics: object) -> None:
        pass

    @contextmanager
    def borrowed_client(self) -> Iterator[Client]:
        yield Client(self.view)


@dataclass
class Leaders:
    """Knows which partitions have a leader that responds."""

    slow: set[TopicPartition] = field(default_factory=set)

    def of_take(self, take: TakePartition) -> PartitionError | None:
        return None

    def is_sound(self, take: TakePartition) -> bool:
        return take.source not in self.slow


class Lane:
    """Cold starts on in-memory logs."""

    def __init__(
        self,
        partitions: int,
        last_ms: Callable[[int], int] = lambda _number: OLD_MS,
        *,
        is_shared: bool = False,
        dead_letters: str = "",
    ) -> None:
        self.jobs, self.leaders = Jobs(), Leaders()
        here, there = {}, {}
        for number in range(partitions):
            records = [Record(offset=0, timestamp=last_ms(number), key=None, value=b"v")]
            here[TopicPartition("t", number)] = log = MemoryLog()
            log.write(records)
            there[TopicPartition("A.t", number)] = log = MemoryLog()
            log.append(
                bytes(
                    encode_batch(
                        records,
                        codec=Codec.NONE,
                        producer_id=PRODUCER,
                        producer_epoch=0,
                        base_sequence=0,
                    )
                )
            )
        self.logs = there
        self.here, self.there = CountingView(here, HERE_ID), OneBatch(there, THERE_ID)
        work = SimpleNamespace(
            flow="A->B",
            producer_id=PRODUCER,
            is_ours_alone=not is_shared,
            isolation=Isolation.READ_COMMITTED,
            known_producers=(PRODUCER, OTHER_FLOW),
            accept_source_loss=False,
            dead_letters=dead_letters,
        )
        rules = CopyRules(
            producer_id=PRODUCER,
            isolation=Isolation.READ_COMMITTED,
            is_ours_alone=not is_shared,
            producer_expiry_ms=86_400_000,
        )
        self.clock = HandClock()
        ports = LanePorts(
            clock=self.clock,
            source=cast(Any, Side(self.here)),
            target=cast(Any, Side(self.there)),
            background=cast(Any, self.jobs),
            send=lambda _message: None,
        )
        self.found: dict[TopicPartition, StartResult] = {}
        self.starts: dict[TopicPartition, ColdStart] = {}
        self.starter = ColdStarts(
            cast(Work, work),
            rules,
            ports,
            cast(Any, self.leaders),
            cast(Any, self),
        )

    def begin(self, takes: Iterable[TakePartition]) -> None:
        new = [ColdStart(one) for one in takes]
        self.starts |= {start.take.source: start for start in new}
        for start in new:
            self.clock.now += 0.0001  # reading so many Takes needs some milliseconds
            self.starter.expect_late_requests(start)
        self.starter.start(new)

    def on_started(self, one: TakePartition, found: StartResult) -> None:
        start = self.starts[one.source]
        if isinstance(found, StartPoint) and self.starter.must_wait(start, found):
            return
        assert one.source not in self.found, "started twice"
        self.found[one.source] = found

    @property
    def questions(self) -> int:
        return self.here.questions + self.there.questions


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_starts, "ClusterLogView", lambda client: client.view)


def test_partitions_that_wait_for_late_requests_are_searched_together() -> None:
    lane = Lane(200)
    takes = [take(number, wait_ms=2_000, stamps=True) for number in range(200)]
    lane.begin(takes)
    lane.jobs.run()
    assert not lane.found
    before = lane.questions
    lane.clock.now += 3.0
    lane.starter.tick()
    assert len(lane.jobs.searches) == 1
    lane.jobs.run()
    assert len(lane.found) == 200
    tails = -(-200 // AT_ONCE)
    assert lane.questions - before <= 12 + 2 * tails


def test_a_start_waits_for_late_requests_only_where_a_repeat_does_not_show() -> None:
    lane = Lane(2)
    lane.begin([take(0, wait_ms=2_000), take(1, wait_ms=2_000, stamps=True)])
    lane.jobs.run()
    assert [tp.partition for tp in lane.found] == [0]


def test_end_of_a_taken_over_copy_is_found_after_late_requests() -> None:
    lane = Lane(1, is_shared=True)
    (tp,) = lane.logs
    theirs = [Record(offset=0, timestamp=NOW_MS, key=None, value=b"theirs")]
    lane.logs[tp].append(bytes(encode_batch(theirs, codec=Codec.NONE)))
    lane.begin([take(0, wait_ms=2_000, mark=Mark(1, 1))])
    lane.jobs.run()
    assert not lane.found
    lane.clock.now += 3.0
    lane.starter.tick()
    lane.jobs.run()
    (found,) = lane.found.values()
    assert isinstance(found, StartPoint)
    assert found.taken_over


@pytest.mark.parametrize("is_known", [True, False])
def test_shared_topics_wait_for_late_requests_if_the_producer_id_may_be_expired(
    is_known: bool,
) -> None:
    """Other clients write to a shared topic. If the producer ID may be expired there, a start first
    waits for late requests. Then no record of this flow can follow the mark that the start writes
    to the offset map, so the mark is final. Without a final mark, a later start would read
    everything that other clients have written.
    """
    lane = Lane(1, lambda _: NOW_MS if is_known else OLD_MS, is_shared=True)
    lane.begin([take(0, wait_ms=2_000, mark=Mark(1, 1))])
    lane.jobs.run()
    assert bool(lane.found) is is_known
    lane.clock.now += 3.0
    lane.starter.tick()
    while lane.jobs.searches:
        lane.jobs.run()
    assert lane.found


def test_partitions_that_arrive_during_searches_are_gathered() -> None:
    lane = Lane(100)
    for number in range(50):
        lane.begin([take(number)])
    assert len(lane.jobs.searches) == SEARCHES_AT_ONCE
    lane.begin(take(number) for number in range(50, 100))
    lane.jobs.run()
    assert len(lane.jobs.searches) == SEARCHES_AT_ONCE
    while lane.jobs.searches:
        lane.jobs.run()
    assert len(lane.found) == 100
    assert not lane.starter.is_busy


def test_partitions_with_a_silent_broker_delay_no_others() -> None:
    lane = Lane(20)
    lane.leaders.slow = {TopicPartition("t", number) for number in range(0, 20, 2)}
    for number in range(0, 20, 2):
        lane.begin([take(number)])
    stuck = len(lane.jobs.searches)
    assert stuck == SEARCHES_AT_ONCE
    lane.begin([take(1), take(3)])
    assert len(lane.jobs.searches) == stuck + 1


def test_partition_that_left_is_not_started_by_a_running_search() -> None:
    lane = Lane(2)
    lane.begin([take(0)])
    lane.starter.forget(lane.starts[TopicPartition("t", 0)])
    lane.jobs.run()
    assert not lane.found
    lane.begin([take(0)])
    lane.begin([take(1)])
    while lane.jobs.searches:
        lane.jobs.run()
    assert len(lane.found) == 2


def test_the_last_written_partition_starts_before_all_are_searched() -> None:
    busy = TopicPartition("t", 150)
    lane = Lane(200, lambda number: NOW_MS if number == busy.partition else OLD_MS)
    lane.begin(take(number) for number in range(200))
    job, then, _ = lane.jobs.searches.pop()
    answer = job()
    first: list[TopicPartition] = []
    while not first:
        lane.jobs.posted.pop(0)()
        first = list(lane.found)
    assert first[0] == busy
    assert len(first) <= AT_ONCE
    lane.jobs.deliver()
    then(answer)
    assert len(lane.found) == 200


def test_failed_search_reports_to_the_partitions_without_a_result() -> None:
    lane = Lane(AT_ONCE + 8)
    lane.begin(take(number) for number in range(AT_ONCE + 8))
    job, _, failed = lane.jobs.searches.pop()
    job()
    lane.jobs.posted.pop(0)()
    failed(TwinlogError("the lane has ended"))
    errors = [found for found in lane.found.values() if isinstance(found, TwinlogError)]
    assert (len(lane.found), len(errors)) == (AT_ONCE + 8, 8)
    assert not lane.starter.is_busy


def test_very_many_partitions_share_searches_and_one_stays_free() -> None:
    lane = Lane(1000)
    lane.begin(take(number) for number in range(999))
    assert len(lane.jobs.searches) == SEARCHES_AT_ONCE - 1
    lane.begin([take(999)])
    assert len(lane.jobs.searches) == SEARCHES_AT_ONCE
    while lane.jobs.searches:
        lane.jobs.run()
    assert len(lane.found) == 1000


def others_write(log: MemoryLog, batches: int) -> None:
    """Write batches as another Twinlog flow. The target has expired the producer IDs of earlier
    records.
    """
    log.forget(NOW_MS)
    for number in range(batches):
        data = encode_batch(
            [Record(offset=0, timestamp=NOW_MS, key=None, value=b"other")],
            codec=Codec.NONE,
            producer_id=OTHER_FLOW,
            producer_epoch=0,
            base_sequence=number,
        )
        log.append(bytes(data))


def test_a_partition_whose_end_is_searched_delays_no_other() -> None:
    searched = SEARCHES_AT_ONCE + 2
    lane = Lane(201, is_shared=True)
    for number in range(searched):
        others_write(lane.logs[TopicPartition("A.t", number)], 50)
    idle = [take(number, mark=Mark(1, 1, is_final=True)) for number in range(searched, 200)]
    lane.begin([*(take(number, mark=Mark(1, 1)) for number in range(searched)), *idle])
    (_,) = lane.jobs.searches
    lane.jobs.run()
    assert {*lane.found} == {one.source for one in idle}
    lane.starter.tick()
    assert len(lane.jobs.searches) == SEARCHES_AT_ONCE
    lane.begin([take(200, mark=Mark(1, 1, is_final=True))])
    assert len(lane.jobs.searches) == SEARCHES_AT_ONCE + 1
    while lane.jobs.searches:
        lane.jobs.run()
        lane.starter.tick()
    assert len(lane.found) == 201
    assert not [found for found in lane.found.values() if isinstance(found, TwinlogError)]
    assert not lane.starter.is_busy


def test_starts_in_shared_topics_are_read_together() -> None:
    lane = Lane(200, is_shared=True)
    before = lane.questions
    lane.begin([take(number, mark=Mark(1, 1, is_final=True)) for number in range(200)])
    lane.jobs.run()
    assert len(lane.found) == 200
    assert lane.questions - before <= 12 + 2 * -(-200 // AT_ONCE)


def test_dead_letters_of_all_partitions_of_a_search_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings: list[Collection[LetterOrigin]] = []

    def find(
        _client: object, home: TopicPartition, positions: Mapping[LetterOrigin, int]
    ) -> dict[LetterOrigin, KnownDeadLetters]:
        assert home == TopicPartition("letters", 0)
        readings.append(positions.keys())
        there = KnownDeadLetters(THERE_ID, 4, (7,))
        return dict.fromkeys(positions, there)

    monkeypatch.setattr(cold_starts, "read_dead_letters", find)
    lane = Lane(3 * AT_ONCE, dead_letters="letters")
    every = [replace(take(n), transform="ab" if n % 2 else "") for n in range(3 * AT_ONCE)]
    lane.begin(every)
    while lane.jobs.searches:
        lane.jobs.run()
    assert [len(one) for one in readings] == [len(every) // 2]
    assert {tp.partition for tp, one in lane.found.items() if _has_letters(one)} == {
        *range(1, 3 * AT_ONCE, 2)
    }
    assert len(lane.found) == len(every)


def _has_letters(found: StartResult) -> bool:
    return isinstance(found, StartPoint) and found.dead_letters is not None
