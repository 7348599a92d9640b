"""How a round of the transforms (a Spark job for several ranges of records) handles records that
fail. Jobs are computed here instead of by Spark.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from py4j.protocol import Py4JNetworkError

from tests.support.driver import HandClock
from tests.support.eventually import eventually
from tests.support.standalone import free_port
from twinlog.channel.frames import ChannelAddress
from twinlog.channel.lending import RangeOffer
from twinlog.clock import GrowingPause
from twinlog.config.flow.transforms import OnError
from twinlog.errors import TwinlogError
from twinlog.lane.transforming import UNANSWERED_AFTER_S
from twinlog.mirror.copy.ranges import RangeFailure
from twinlog.records.lent import NOT_UNPACKED, LentRanges, RangePart
from twinlog.spark.application import FirstRangeAnswered, RangePorts, RecordSkipped
from twinlog.transforms.application import (
    MOST_RANGES,
    ROUND_EVERY_S,
    Application,
    LanePortWatch,
)
from twinlog.transforms.rounds import (
    LEAST_BYTES,
    TASK_BYTES,
    TRIES,
    UNLIMITED,
    JobFailed,
    JobTimedOut,
    Rounds,
    split_into_tasks,
)
from twinlog.wire.record_batch import Codec

PORT: Final = ChannelAddress(host="127.0.0.1", port=1, token="t")


@dataclass(slots=True, kw_only=True)
class ComputedRounds(Rounds):
    """Rounds whose jobs fail for the records in `bad`."""

    spark: Any = None
    transform: Any = None
    lent: LentRanges = field(
        default_factory=lambda: LentRanges(ports=(), codec=Codec.NONE, max_bytes=1)
    )
    bad: frozenset[tuple[int, int]] = frozenset()
    """Each failing record, as (number of the range, offset)."""
    fails: Callable[[RangePart], str | None] = lambda _: None
    runs: list[list[RangePart]] = field(default_factory=list)
    answers: dict[int, RangePart] = field(default_factory=dict)

    @property
    def is_stopped(self) -> bool:
        return False

    def _run(self, parts: Sequence[RangePart]) -> None:
        self.runs.append([*parts])
        for part in parts:
            if part.number in self.answers:
                continue
            found = self.fails(part)
            bad = [
                at
                for number, at in self.bad
                if number == part.number and part.first <= at < part.end
            ]
            if set(bad) - set(part.left_out) or found:
                raise JobFailed(found or f"fails at {min(bad)}")
            if part.answers:
                self.answers[part.number] = part


def part(number: int, first: int = 0, end: int = 1000) -> RangePart:
    return RangePart(
        port="lane:1", number=number, topic="orders", partition=number, first=first, end=end
    )


@given(st.sets(st.tuples(st.integers(0, 2), st.integers(0, 999)), max_size=6))
def test_stop_answers_everything_before_the_first_failure(bad: set[tuple[int, int]]) -> None:
    rounds = ComputedRounds(bad=frozenset(bad))
    rounds.answer([part(number) for number in range(3)])
    for number in range(3):
        first = min((at for one, at in bad if one == number), default=None)
        found = rounds.answers[number]
        assert found.end == (1000 if first is None else first)
        assert (None if found.failure is None else found.failure.offset) == first
        assert found.left_out == ()
    assert not rounds.skipped


@given(st.sets(st.tuples(st.integers(0, 2), st.integers(0, 999)), max_size=6))
def test_skip_answers_everything_else(bad: set[tuple[int, int]]) -> None:
    rounds = ComputedRounds(bad=frozenset(bad), on_error=OnError.SKIP)
    rounds.answer([part(number) for number in range(3)])
    for number in range(3):
        found = rounds.answers[number]
        assert (found.end, found.failure) == (1000, None)
        assert found.left_out == tuple(sorted(at for one, at in bad if one == number))
    assert {(one.number, failure.offset) for one, failure in rounds.skipped} == bad
    assert len(rounds.skipped) == len(bad)


@given(st.sets(st.tuples(st.integers(0, 2), st.integers(0, 999)), max_size=6))
def test_quarantine_answers_the_other_records_and_names_failed_ones(
    bad: set[tuple[int, int]],
) -> None:
    rounds = ComputedRounds(bad=frozenset(bad), on_error=OnError.QUARANTINE, name="mask, cut")
    rounds.answer([part(number) for number in range(3)])
    for number in range(3):
        found, failed = rounds.answers[number], sorted(at for one, at in bad if one == number)
        assert (found.end, found.failure, [*found.left_out]) == (1000, None, failed)
        assert [one.offset for one in found.quarantined] == failed
        assert {one.transform for one in found.quarantined} <= {"mask, cut"}
    assert len(rounds.skipped) == len(bad)


def test_without_failures_there_is_one_job() -> None:
    rounds = ComputedRounds()
    rounds.answer([part(number) for number in range(3)])
    assert [len(one) for one in rounds.runs] == [3]


@pytest.mark.parametrize("on_error", [*OnError])
def test_a_failure_of_no_single_record_stops_at_the_first(on_error: OnError) -> None:
    rounds = ComputedRounds(
        fails=lambda one: "too much memory" if one.end - one.first > 10 else None,
        on_error=on_error,
    )
    rounds.answer([part(0, first=100)])
    text = "too much memory (only together with other records)"
    assert rounds.answers[0].failure == RangeFailure(offset=100, text=text)
    assert rounds.answers[0].end == 100
    assert sum(one[0].answers and one[0].end == 1000 for one in rounds.runs) == 1 + TRIES


@pytest.mark.parametrize("on_error", [OnError.SKIP, OnError.QUARANTINE])
def test_records_that_cannot_be_unpacked_are_not_left_out(on_error: OnError) -> None:
    """The records from offset 600 on are in a batch that is too large to be unpacked. They stop the
    partition, whatever `on_error` is, and are not left out.
    """
    rounds = ComputedRounds(
        bad=frozenset({(0, 100)}),
        fails=lambda part: f"{NOT_UNPACKED}: too large" if part.end > 600 else None,
        on_error=on_error,
    )
    rounds.answer([part(0)])
    answer = rounds.answers[0]
    assert (answer.end, answer.left_out) == (600, (100,))
    assert answer.failure is not None and answer.failure.offset == 600


def test_a_failure_that_does_not_happen_again_is_none() -> None:
    left = iter(["the worker died", "the worker died"])
    rounds = ComputedRounds(fails=lambda _: next(left, None))
    rounds.answer([part(0), part(1)])
    assert [one.failure for one in rounds.answers.values()] == [None, None]


def test_an_unreachable_lane_does_not_hold_up_others() -> None:
    def fails(one: RangePart) -> str | None:
        if one.port == "lane:0":
            raise TwinlogError("no lane", code="CHANNEL_LOST")
        return None

    rounds = ComputedRounds(fails=fails)
    lost = structs.replace(part(0), port="lane:0")
    with pytest.raises(TwinlogError, match="no lane"):
        rounds.answer([part(1), lost, part(2)])
    assert [*rounds.answers] == [1, 2]
    assert [len(one) for one in rounds.runs] == [3, 1, 2]


# -- the ranges that form a round


def offer(
    number: int, *, transform: str = "a", size: int = 1, partition: int | None = None
) -> RangeOffer:
    return RangeOffer(
        number=number,
        topic="orders",
        partition=number if partition is None else partition,
        transform=transform,
        first=0,
        end=10,
        size=size,
    )


def application(**chains: Rounds) -> tuple[Application, list[Any]]:
    said: list[Any] = []

    def begin(offer: RangeOffer) -> Any:
        return chains.get(offer.transform)

    made = Application(begin=begin, say=said.append)
    made.watch.ports = frozenset({PORT})
    made.watch.connected = {PORT}
    return made, said


def test_a_round_has_the_waiting_ranges_of_one_chain() -> None:
    a, b = ComputedRounds(bad=frozenset({(4, 7)}), on_error=OnError.SKIP), ComputedRounds()
    made, said = application(a=a, b=b)
    for number, transform in enumerate("aabxaa"):
        made.watch.offers.put((PORT, offer(number, transform=transform)))
    assert made.step(0.0)
    assert [one.number for one in a.runs[0]] == [0, 1, 4, 5]
    assert a.lent.ports == (PORT,)
    assert not b.runs
    assert said == [
        FirstRangeAnswered(),
        RecordSkipped(topic="orders", partition=4, offset=7, text="fails at 7"),
    ]
    assert made.step(0.0)
    assert [[one.number for one in run] for run in b.runs] == [[2]]
    assert not made.step(0.0)  # a range with an unknown transform is not run


def test_a_round_is_limited_by_bytes() -> None:
    """The first round (Spark job) of the transforms has few bytes. Each later round has as many
    bytes as the round before it would have processed in one second.
    """
    a = ComputedRounds()
    half = a.round_bytes // 2
    made, _ = application(a=a)
    for number, size in enumerate((1, LEAST_BYTES, 1, half, half, 9 * half)):
        made.watch.offers.put((PORT, offer(number, size=size)))
    while made.step(0.0):
        pass
    assert [[one.number for one in run] for run in a.runs] == [[0, 1], [2, 3, 4], [5]]
    assert a.most_bytes == a.round_bytes


def test_small_rounds_begin_five_times_a_second_at_most() -> None:
    a = ComputedRounds()
    made, _ = application(a=a)
    made.watch.offers.put((PORT, offer(0)))
    begun = time.monotonic()
    assert made.step(0.0)
    made.watch.offers.put((PORT, offer(1)))
    later = threading.Timer(ROUND_EVERY_S / 4, made.watch.offers.put, [(PORT, offer(2))])
    later.start()
    assert made.step(0.0)
    assert time.monotonic() - begun >= ROUND_EVERY_S
    made.watch.offers.put((PORT, offer(3, size=LEAST_BYTES)))
    with mock.patch.object(time, "sleep", side_effect=AssertionError("a large round waits")):
        assert made.step(0.0)
    assert [[one.number for one in run] for run in a.runs] == [[0], [1, 2], [3]]


def test_thousands_of_small_ranges_are_not_compared_with_each_other() -> None:
    """Records that arrive one by one while Spark starts are thousands of ranges. If every two of
    them were compared, this would take minutes, and more ranges would wait afterwards.
    """
    count = 20_000
    a = ComputedRounds()
    made, _ = application(a=a)
    for number in range(count):
        bounds = {"first": number, "end": number + 1, "partition": 0}
        made.watch.offers.put((PORT, structs.replace(offer(number), **bounds)))
    begun = time.process_time()
    while made.step(0.0):
        pass
    assert [part.number for run in a.runs for part in run] == [*range(count)]
    assert max(map(len, a.runs)) == MOST_RANGES
    assert time.process_time() - begun < 20


def test_large_ranges_are_not_computed_at_the_same_time() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def waits(part: RangePart) -> None:
        begun.set()
        assert part.number != 0 or may_end.wait(60.0)

    a = ComputedRounds(fails=waits)
    made, _ = application(a=a)
    for number in range(2):
        made.watch.offers.put((PORT, offer(number, size=made.bytes_at_once // 2 + 1)))
    threads = [threading.Thread(target=made.step) for _ in range(2)]
    for one in threads:
        one.start()
    assert begun.wait(60.0)
    eventually(lambda: not made._waiting, what="the second round waits")
    assert [[one.number for one in run] for run in a.runs] == [[0]]
    may_end.set()
    for one in threads:
        one.join(60.0)
    assert [[one.number for one in run] for run in a.runs] == [[0], [1]]


def test_ranges_with_the_same_records_are_in_different_rounds() -> None:
    """A partition has moved to another lane, whose first range overlaps a range of the earlier lane
    that is still waiting. The two ranges must be in different rounds of transforms. Otherwise a row
    could get into the wrong range.
    """
    a = ComputedRounds()
    made, _ = application(a=a)
    old, new, after = (
        structs.replace(offer(number, partition=0), first=first, end=first + 10)
        for number, first in enumerate((0, 5, 10))
    )
    elsewhere = offer(3)
    for one in (old, new, after, elsewhere):
        made.watch.offers.put((PORT, one))
    assert made.step(0.0) and made.step(0.0)
    assert [[one.number for one in run] for run in a.runs] == [[0, 2, 3], [1]]


@pytest.mark.parametrize("on_error", [*OnError])
def test_no_record_is_skipped_because_everything_fails(on_error: OnError) -> None:
    """Every job fails, even one without records, for example because the disk is full. So no record
    is at fault, and none is skipped.
    """
    broken = [True]
    rounds = ComputedRounds(fails=lambda _: "No space left" if broken else None, on_error=on_error)
    with pytest.raises(TwinlogError, match="so no record is the cause: No space left"):
        rounds.answer([part(0)])
    assert not rounds.skipped and not rounds.answers
    broken.clear()
    rounds.answer([part(0)])
    assert rounds.answers[0].left_out == ()


def test_ranges_of_a_failed_round_are_tried_again() -> None:
    left = iter([TwinlogError("no lane", code="CHANNEL_LOST")])

    def fails(_: RangePart) -> str | None:
        for error in left:
            raise error
        return None

    a = ComputedRounds(fails=fails)
    made, _ = application(a=a)
    made.watch.offers.put((PORT, offer(0)))
    assert made.step(0.0) and made.step(0.0)
    assert [*a.answers] == [0]


def test_records_of_a_failed_round_are_reported_once() -> None:
    """A lane ends during a round, so that all ranges of the round are answered again."""
    left = iter([TwinlogError("no lane", code="CHANNEL_LOST")])

    def fails(one: RangePart) -> None:
        for error in left if one.number == 1 else ():
            a.answers.clear()
            raise error

    a = ComputedRounds(bad=frozenset({(0, 7)}), fails=fails, on_error=OnError.SKIP)
    made, said = application(a=a)
    for number in range(2):
        made.watch.offers.put((PORT, offer(number)))
    assert made.step(0.0)
    assert said == []
    assert len(a.skipped) == 1
    assert made.step(0.0)
    assert said[1:] == [RecordSkipped(topic="orders", partition=0, offset=7, text="fails at 7")]


def test_end_of_spark_between_two_rounds_is_named() -> None:
    """The JVM ends while no round (Spark job) is running. The next round ends the application with
    an error that names its range.
    """

    def set_job_group(*_: object, **__: object) -> None:
        raise Py4JNetworkError("the connection is closed")

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setJobGroup=set_job_group))
    lent = LentRanges(ports=(PORT,), codec=Codec.NONE, max_bytes=1)
    made, _ = application(a=Rounds(spark=spark, transform=lambda rows: rows, lent=lent))
    made.watch.offers.put((PORT, offer(0)))
    with pytest.raises(
        TwinlogError, match=r"Spark ended, while it .* of orders-0 \[0, 10\)"
    ) as raised:
        made.step(0.0)
    assert raised.value.code == "TRANSFORM_UNAVAILABLE"


@given(st.lists(st.integers(0, 3 * TASK_BYTES), min_size=1, max_size=30), st.integers(1, 4))
def test_tasks_share_the_ranges(sizes: list[int], cores: int) -> None:
    parts = [structs.replace(part(at), size=size) for at, size in enumerate(sizes)]
    tasks = split_into_tasks(parts, cores)
    assert sorted(one.number for task in tasks for one in task) == [*range(len(sizes))]
    assert all(tasks)
    assert len(tasks) <= min(cores, 1 + sum(sizes) // TASK_BYTES)
    loads = [sum(one.size for one in task) for task in tasks]
    assert max(loads) <= sum(sizes) / len(tasks) + max(sizes)


def test_offers_of_a_lane_that_has_ended_are_dropped() -> None:
    a = ComputedRounds()
    made, _ = application(a=a)
    made.watch.offers.put((PORT, offer(0)))
    made.watch.connected.clear()
    assert not made.step(0.0)
    made.watch.connected.add(PORT)
    made.watch.offers.put((PORT, offer(1)))
    made.watch.offers.put((PORT, offer(1)))  # offered again before it was answered
    assert made.step(0.0)
    assert [[one.number for one in run] for run in a.runs] == [[1]]


# -- a transform that is slow


@dataclass(slots=True, kw_only=True)
class SlowRounds(ComputedRounds):
    """Rounds in which each record takes some time. Only these rounds move their clock."""

    record_s: Callable[[int], float]
    job_s: float = 0.0
    """Seconds that a job takes in addition to its records."""
    clock: HandClock = field(default_factory=HandClock)
    waited_s: float = 0.0
    """Longest time without an answer, in seconds."""
    answered_s: float = 10_000.0

    def _run(self, parts: Sequence[RangePart]) -> None:
        offsets = {at for one in parts for at in range(one.first, one.end)}
        offsets -= {at for one in parts for at in one.left_out}
        needed_s, limit_s = sum(map(self.record_s, offsets)) + self.job_s, self._limit_s(parts)
        self.clock.now += min(needed_s, limit_s)
        if needed_s > limit_s:
            raise JobTimedOut(f"no result within {limit_s:g} s")
        super(SlowRounds, self)._run(parts)
        if all(one.answers for one in parts):
            self.waited_s = max(self.waited_s, self.clock.now - self.answered_s)
            self.answered_s = self.clock.now

    def copied(self, end: int) -> int:
        """Offer the rest of the range again until all of it is answered or a record fails. Return
        the offset at which it stops.
        """
        first, number = 0, 0
        while first < end:
            self.answer([part(number, first, end)])
            found = self.answers[number]
            assert found.end > first or found.failure is not None
            first, number = found.end, number + 1
            if found.failure is not None:
                assert found.failure == RangeFailure(offset=first, text="no result within 60 s")
                break
        return first


def test_a_slow_transform_progresses() -> None:
    rounds = SlowRounds(record_s=lambda _: 0.5)
    assert rounds.copied(1000) == 1000
    assert rounds.waited_s < UNANSWERED_AFTER_S
    assert rounds.clock.now - 10_000 < 1.5 * 500, "little is computed twice"


@pytest.mark.parametrize("at", [0, 1, 500, 998, 999])
@pytest.mark.parametrize("on_error", [OnError.STOP, OnError.SKIP])
def test_a_record_that_hangs_is_found_before_the_lane_gives_up(at: int, on_error: OnError) -> None:
    rounds = SlowRounds(record_s=lambda one: 1e9 if one == at else 1e-6, on_error=on_error)
    end = rounds.copied(1000)
    assert end == (at if on_error is OnError.STOP else 1000)
    assert [failure.offset for _, failure in rounds.skipped] == [at] * (on_error is OnError.SKIP)
    assert rounds.waited_s < UNANSWERED_AFTER_S
    assert {*range(1000)} - {at} <= {
        offset
        for one in rounds.answers.values()
        for offset in range(one.first, one.end)
        if offset not in one.left_out
    } | {*range(end, 1000)}


def test_a_record_that_hangs_does_not_hold_up_other_ranges() -> None:
    rounds = SlowRounds(record_s=lambda one: 1e9 if one == 0 else 1e-6)
    rounds.answer([part(0), *(part(number, 1) for number in range(1, 9))])
    assert all(rounds.answers[number].failure is None for number in range(1, 9))
    assert rounds.answers[0].failure == RangeFailure(offset=0, text="no result within 60 s")
    assert rounds.waited_s < UNANSWERED_AFTER_S


def test_rounds_have_full_size_again_after_a_moment() -> None:
    """After a slow round, rounds are small, because the machine may have stalled. After some fast
    rounds they must have the full size again.
    """
    late = [True]
    rounds = SlowRounds(record_s=lambda _: 61.0 if late else 1e-6)
    rounds._run_for_error([part(0)])
    late.clear()
    assert rounds.most_offsets == 500
    assert rounds.copied(600_000) == 600_000
    assert rounds.most_offsets == UNLIMITED
    assert len(rounds.runs) < 20
    rounds.answer([part(number) for number in range(1000, 1003)])
    assert len(rounds.runs[-1]) == 3


def test_poison_of_a_slow_transform_is_the_record_that_fails() -> None:
    rounds = SlowRounds(record_s=lambda _: 0.3, bad=frozenset((n, 150) for n in range(200)))
    first, number = 0, 0
    while True:
        rounds.answer([part(number, first)])
        found = rounds.answers[number]
        first, number = found.end, number + 1
        if found.failure is not None:
            break
    assert found.failure.offset == 150
    assert rounds.waited_s < UNANSWERED_AFTER_S


def test_a_port_that_this_host_cannot_reach_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = GrowingPause(first_s=0.0, most_s=0.0)
    monkeypatch.setattr("twinlog.transforms.application.GrowingPause", lambda **_: never)
    watch, port = LanePortWatch(), free_port()
    closed = ChannelAddress(host="127.0.0.1", port=port, token="t" * 43)
    watch.connect(RangePorts(ports=(closed,)))
    eventually(lambda: caplog.messages, what="a warning")
    watch.connect(RangePorts(ports=()))
    (line,) = caplog.messages
    assert line.startswith(f"this host cannot reach the port of a lane at 127.0.0.1:{port}, so ")


@pytest.mark.parametrize(
    ("every", "jobs"), [(1, 3.1), (2, 5.1), (20, 9), (100, 13)], ids=lambda one: f"{one}"
)
def test_many_records_that_fail_cost_few_jobs(every: int, jobs: float) -> None:
    bad = [*range(0, 1000, every)]
    rounds = ComputedRounds(bad=frozenset((0, at) for at in bad), on_error=OnError.SKIP)
    rounds.answer([part(0)])
    assert [*rounds.answers[0].left_out] == bad
    assert len(rounds.runs) <= jobs * len(bad) + 15


@pytest.mark.parametrize("every", [1, 2, 4])
def test_range_with_many_records_that_fail_is_answered_in_parts(every: int) -> None:
    bad = [*range(0, 200, every)]
    rounds = SlowRounds(
        record_s=lambda _: 0.0,
        job_s=0.5,
        bad=frozenset((number, at) for number in range(30) for at in bad),
        on_error=OnError.QUARANTINE,
    )
    assert rounds.copied(200) == 200
    assert rounds.waited_s < 60
    assert [failure.offset for _, failure in rounds.skipped] == bad
    answers = [*rounds.answers.values()]
    assert [one.offset for it in answers for one in it.quarantined] == bad
    assert len(answers) > 2
    assert all(one.is_cut is (one.end < 200) for one in answers)


@given(st.integers(0, 1 << 30), st.sampled_from([*OnError]))
def test_transform_that_decides_anew_gets_answers_that_fit(seed: int, on_error: OnError) -> None:
    dice = random.Random(seed)

    def fails(one: RangePart) -> str | None:
        tried = {*range(one.first, one.end)} - {*one.left_out}
        return "unlucky" if any(dice.random() < 0.05 for _ in tried) else None

    rounds = SlowRounds(record_s=lambda _: 0.0, job_s=4.0, fails=fails, on_error=on_error)
    first, number = 0, 0
    while first < 60 and number < 60:
        rounds.answer([part(number, first, 60)])
        found = rounds.answers[number]
        failed = [one.offset for one in found.quarantined]
        assert failed == (sorted(found.left_out) if on_error is OnError.QUARANTINE else [])
        assert all(found.first <= at < found.end for at in found.left_out)
        assert found.end == 60 or found.is_cut
        if found.failure is None:
            assert found.end > first
        else:
            assert found.failure.offset == found.end
        first, number = found.end, number + 1
