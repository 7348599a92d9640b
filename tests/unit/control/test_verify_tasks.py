"""Spark tasks that each compare a section find the same differences as one process that compares
the whole partition.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.fetched_logs import Cluster, fetch_from_memory
from tests.support.memory_log import MemoryLog
from twinlog.channel.codec import MessageCodec
from twinlog.channel.server import LaneConnected, LaneMessage
from twinlog.control.verify import workers
from twinlog.control.verify.workers import (
    ClusterPair,
    OnStep,
    SparkWorkers,
    ThreadWorkers,
    WalkProgress,
    extent,
)
from twinlog.errors import TwinlogError
from twinlog.mirror.findings import Span
from twinlog.mirror.map.offset_map import Mark, Run
from twinlog.mirror.verify.difference import Compared, DifferenceKind
from twinlog.mirror.verify.walk import Rules
from twinlog.model import Isolation, TopicPartition
from twinlog.spark.verify import VERIFY_MESSAGES, VerifyDone, VerifyStep, VerifyTaken, VerifyWork
from twinlog.survey import verify
from twinlog.survey.replica import Witness, copied_below
from twinlog.survey.verify import (
    MappedCopy,
    PartitionBounds,
    VerifyTask,
    verify_partition,
)
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

HERE, THERE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
NOW = 1_750_000_000_000
DAY_MS = 86_400_000
COUNT = 60
CODEC = MessageCodec(VERIFY_MESSAGES)
WHOLE = (Run(0, 0, 0),)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch_from_memory(monkeypatch)
    monkeypatch.setattr(workers, "TICK_S", 0.001)


def record(number: int) -> Record:
    return Record(0, NOW + number * DAY_MS // 10, b"k%d" % number, b"v%d" % number, ())


def log_of(some: list[Record], each: int = 7, codec: Codec = Codec.NONE) -> MemoryLog:
    log = MemoryLog()
    for at in range(0, len(some), each):
        log._store(encode_batch(some[at : at + each], codec=codec))
    return log


def wanted(here: MemoryLog, there: MemoryLog, runs: tuple[Run, ...], *, deep: bool) -> VerifyTask:
    known = cast("Any", SimpleNamespace(runs=runs, mark=Mark(runs[-1].ordinal, 0)))
    return VerifyTask(
        source=HERE,
        target=THERE,
        here=PartitionBounds(start=0, end=here.end),
        there=PartitionBounds(start=0, end=there.end),
        later_source_end=here.end,
        mapped_copy=MappedCopy.of(
            known, copied_below(known, there.end, Witness.LOG_END).reach, there.end
        ),
        producers=frozenset((5,)),
        rules=Rules(is_deep=deep),
        isolation=Isolation.READ_COMMITTED,
        is_led=False,
        source_may_lack=False,
        target_may_lack=False,
    )


class Engine:
    """Runs the tasks of a job one after the other. Messages are encoded as between Spark's
    executors.
    """

    def __init__(self, tasks: SparkWorkers, here: MemoryLog, there: MemoryLog) -> None:
        self.tasks, self.here, self.there = tasks, here, there
        self.jobs: list[int] = []
        self.attempts = 1

    def start(self, number: int, count: int) -> Any:
        self.jobs.append(count)
        done = threading.Event()
        for task in range(count):
            for _ in range(self.attempts):
                self._task(number, task)
        done.set()
        return SimpleNamespace(done=done, error=None, cancel=lambda: None)

    def _task(self, number: int, task: int) -> None:
        sent: list[Any] = []
        peer: Any = SimpleNamespace(
            identity=SimpleNamespace(lease=number, lane=task),
            send=lambda message: sent.append(CODEC.decode(CODEC.encode(message))),
        )
        self.tasks.deliver(LaneConnected(peer))
        work = sent.pop()
        assert isinstance(work, VerifyWork)
        compared, why_not = Compared(), ""
        source, target = (cast("Any", Cluster(log)) for log in (self.here, self.there))
        try:
            verify_partition(work.wanted, source, target, lambda _: None, compared)
        except TwinlogError as error:
            why_not = str(error)
        for message in (VerifyStep(offsets=1), VerifyDone(compared=compared, why_not=why_not)):
            self.tasks.deliver(LaneMessage(peer, CODEC.decode(CODEC.encode(message))))
        assert isinstance(sent.pop(), VerifyTaken)


def by_tasks(
    one: VerifyTask,
    here: MemoryLog,
    there: MemoryLog,
    attempts: int = 1,
    on_step: OnStep = lambda _: None,
) -> Compared:
    tasks = SparkWorkers()
    tasks.starter = engine = Engine(tasks, here, there)
    engine.attempts = attempts
    settings = cast("Any", _settings())
    clusters = ClusterPair(source=settings, target=settings)
    (found,) = tasks.verify(clusters, [one], on_step)
    assert not found.why_not
    assert engine.jobs[0] > 5
    return found.compared


class Bar:
    """Records the reported progress of a job as (True in the second pass, done, total)."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, int, int]] = []

    def step(self, progress: WalkProgress) -> None:
        self.seen.append((progress.is_again, progress.done, progress.total))

    def last(self, *, is_again: bool = False) -> tuple[int, int]:
        """Return the last (done, total). Check that the progress has never decreased."""
        of_it = [(done, total) for again, done, total in self.seen if again is is_again]
        assert of_it == sorted(of_it)
        return of_it[-1]


@pytest.mark.parametrize("attempts", [1, 2], ids=["once", "repeated"])
def test_progress_reaches_all_that_is_to_be_compared(
    monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    """The progress reaches the total of the records to compare. This is so even if sections are
    shorter than a step of the progress, or if a task is repeated.
    """
    monkeypatch.setattr(verify, "LEAST_OFFSETS", 8)
    some = [record(number) for number in range(COUNT)]
    here, there = log_of(some), log_of(some)
    one, bar = wanted(here, there, WHOLE, deep=False), Bar()
    by_tasks(one, here, there, attempts, bar.step)
    assert bar.last() == (COUNT, COUNT)
    assert not any(is_again for is_again, *_ in bar.seen)
    # only a part of the logs is compared
    some_of_it, bar = replace(one, since=11, until=53), Bar()
    by_tasks(some_of_it, here, there, attempts, bar.step)
    assert bar.last() == (42, 42)
    # ranges that differ are read once more, which is counted separately
    lost, bar = log_of(some[:31] + some[32:]), Bar()
    by_tasks(wanted(here, lost, WHOLE, deep=False), here, lost, attempts, bar.step)
    assert bar.last() == (COUNT - 1, COUNT - 1)
    done, total = bar.last(is_again=True)
    assert 0 < done == total < COUNT - 1


def test_records_before_the_requested_ones_are_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison from a later offset on gets only the runs of the map that it needs. The first of
    these runs is not where the copy began.
    """
    monkeypatch.setattr(verify, "LEAST_OFFSETS", 2)
    some = [record(number) for number in range(COUNT)]
    here, there = log_of(some[:30]), log_of(some)
    here.end += 1
    for at in range(30, COUNT, 7):
        here._store(encode_batch(some[at : at + 7], codec=Codec.NONE))
    one = wanted(here, there, (Run(0, 0, 0), Run(30, 31, 30)), deep=False)
    found = by_tasks(replace(one, since=41), here, there)
    assert (found.differences, found.equal, +found.gaps) == ([], COUNT - 40, {})


class Entered(Cluster):
    """A client that is closed by another object."""

    def __enter__(self) -> Entered:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_threads_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [record(number) for number in range(COUNT)]
    here, there = log_of(some), log_of(some[:-1])
    logs = iter((here, there))
    monkeypatch.setattr(workers, "ClusterClient", lambda *_, **__: Entered(next(logs)))
    monkeypatch.setattr(workers, "MOST_THREADS", 1)
    one, bar = replace(wanted(here, there, WHOLE, deep=False), since=20), Bar()
    settings = cast("Any", _settings())
    # the second partition ends before the end that the broker reported
    short = replace(one, there=PartitionBounds(start=0, end=COUNT + 5))
    ThreadWorkers().verify(ClusterPair(source=settings, target=settings), [one, short], bar.step)
    assert len(bar.seen) > 4
    assert bar.last() == (39 + 45, 39 + 45)


@pytest.mark.parametrize(
    ("change", "offsets"),
    [
        ({}, 50),
        ({"since": 30}, 30),
        ({"since": 1 << 62}, 0),
        ({"until": 30}, 20),
        ({"until": 200}, 50),
        ({"since": 35, "until": 30}, 0),
        ({"here": PartitionBounds(start=25, end=61)}, 34),
        ({"there": PartitionBounds(start=20, end=50)}, 30),
        ({"mapped_copy": MappedCopy()}, 0),
        ({"mapped_copy": MappedCopy(runs=(Run(0, 10, 0), Run(15, 26, 16)))}, 50),
    ],
)
def test_extent_of_a_walk(change: dict[str, Any], offsets: int) -> None:
    """`extent` returns how many offsets a comparison reads, for different changes of its bounds.
    The copy began at source offset 10. Offset 25 of the source and offset 15 of the target have no
    record.
    """
    log = log_of([record(number) for number in range(50)])
    one = wanted(log, log, (Run(0, 10, 0), Run(15, 26, 16)), deep=False)
    one = replace(one, here=PartitionBounds(start=0, end=61))
    assert extent(replace(one, **change)) == offsets


def _settings() -> Any:
    from tests.support.settings import settings_for

    return settings_for("127.0.0.1:1", "s")


def swap(some: list[Record]) -> list[Record]:
    return [*some[:23], some[24], some[23], *some[25:]]


def flip(some: list[Record]) -> list[Record]:
    return [*some[:17], some[17]._replace(value=b"w17"), *some[18:]]


FAULTS: dict[str, Callable[[list[Record]], list[Record]]] = {
    "none": lambda some: some,
    "flipped": flip,
    "last lost": lambda some: some[:-1],
    "first lost": lambda some: some[1:],
    "lost": lambda some: some[:31] + some[32:],
    "twice": lambda some: some[:12] + some[11:],
    "swapped": swap,
}


@pytest.mark.parametrize("deep", [False, True], ids=["quick", "deep"])
@pytest.mark.parametrize("least", [3, 8, 10])
@pytest.mark.parametrize("fault", FAULTS)
def test_sections_find_the_same_as_a_whole_walk(
    monkeypatch: pytest.MonkeyPatch, fault: str, least: int, deep: bool
) -> None:
    monkeypatch.setattr(verify, "LEAST_OFFSETS", least)
    some = [record(number) for number in range(COUNT)]
    here, there = log_of(some), log_of(FAULTS[fault](some))
    one = wanted(here, there, WHOLE, deep=deep)
    whole = Compared()
    verify_partition(
        one, cast("Any", Cluster(here)), cast("Any", Cluster(there)), lambda _: None, whole
    )
    assert whole.is_identical is (fault == "none")
    found = by_tasks(one, here, there)
    assert found.differences == whole.differences
    assert (found.equal, found.gaps, found.pending) == (whole.equal, whole.gaps, whole.pending)
    if deep:
        assert found.days == whole.days
        assert by_tasks(one, here, there, attempts=2).days == whole.days


def test_shifted_row_and_gaps_of_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "LEAST_OFFSETS", 4)
    some = [record(number) for number in range(COUNT)]
    here, there = log_of(some), log_of(some)
    found = by_tasks(wanted(here, there, (*WHOLE, Run(30, 31, 30)), deep=False), here, there)
    assert [(one.kind, one.source) for one in found.differences] == [
        (DifferenceKind.SHIFTED, Span(30, 31)),
        (DifferenceKind.SHIFTED, Span(31, 60)),
    ]
    # the copy began at offset 9, and a marker is at offset 40
    here.batches.clear()
    here.end = 0
    for at in range(0, 40, 10):
        here._store(encode_batch(some[at : at + 10], codec=Codec.NONE))
    here.end = 41
    here._store(encode_batch(some[40:], codec=Codec.NONE))
    there = log_of(some[9:], codec=Codec.ZSTD)
    runs = (Run(0, 9, 0), Run(31, 41, 31))
    one = wanted(here, there, runs, deep=False)
    found = by_tasks(one, here, there)
    assert (found.differences, found.equal) == ([], 51)
    whole = Compared()
    verify_partition(
        one, cast("Any", Cluster(here)), cast("Any", Cluster(there)), lambda _: None, whole
    )
    assert found.gaps == whole.gaps


def test_digest_of_a_day_is_of_its_records_alone() -> None:
    """The digest of a day depends only on the day's records, and not on batches, codecs or offsets.
    So deep reports of copies of one source can be compared.
    """
    some = [record(number) for number in range(COUNT)]
    days = []
    for codec, each in ((Codec.NONE, 7), (Codec.LZ4, 7), (Codec.GZIP, 13)):
        here, there = log_of(some), log_of(some, each, codec)
        found = Compared()
        one = wanted(here, there, WHOLE, deep=True)
        verify_partition(
            one, cast("Any", Cluster(here)), cast("Any", Cluster(there)), lambda _: None, found
        )
        assert (found.is_identical, found.by_bytes, found.equal) == (True, 0, COUNT)
        days.append(found.days)
    assert days[0] == days[1] == days[2]
    assert [day.both.records for _, day in sorted(days[0].items())] == [4, 10, 10, 10, 10, 10, 6]
    assert all(not day.source.records and not day.target.records for day in days[0].values())


def test_days_with_differences_have_different_digests() -> None:
    some = [record(number) for number in range(COUNT)]
    here = log_of(some)
    for change in (flip, swap):
        there = log_of(change(some))
        found = Compared()
        one = wanted(here, there, WHOLE, deep=True)
        verify_partition(
            one, cast("Any", Cluster(here)), cast("Any", Cluster(there)), lambda _: None, found
        )
        assert sum(day.both.records for day in found.days.values()) < COUNT
        assert any(day.source.digest != day.target.digest for day in found.days.values())
