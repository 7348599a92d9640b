"""A source that does not respond at all counts as silent. A slow source does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.driver import Driver, plan_of
from twinlog.control.risk.source_watch import (
    AFTER_ANSWER_S,
    NOTE_POSITIONS_AFTER_S,
    PULSE_EVERY_S,
    PULSE_WITHIN_S,
    SourceLiveness,
)
from twinlog.errors import Disconnected, TwinlogError, Unauthorized

SILENCE_S = 2 * PULSE_WITHIN_S


@dataclass
class Asked:
    """Sends one query to the source at a time. The test answers it."""

    driver: Driver = field(default_factory=lambda: Driver([plan_of(0), plan_of(1)], lanes=2))
    times: list[float] = field(default_factory=list)
    answered_at: float = float("-inf")
    pulse: SourceLiveness = field(init=False)

    def __post_init__(self) -> None:
        self.pulse = SourceLiveness(run=self.driver.run, ask=lambda: None)
        self.driver.run.tick()
        here = plan_of(0).source
        (self.lane,) = [lane for lane in self.driver.lanes_of(1) if lane.holds(here)]
        self.copied(100)

    def copied(self, upto: int) -> None:
        self.lane.progress(plan_of(0).source, ordinal=upto, end=upto)

    def background(
        self,
        job: Callable[[], Any],
        then: Callable[[Any], None],
        otherwise: Callable[[TwinlogError], None],
    ) -> None:
        self.times.append(self.driver.clock.now)
        self.answer, self.fail = then, otherwise

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds * 10)):
            self.driver.clock.now += 0.1
            self.pulse.poll(self.background, self.answered_at)

    @property
    def is_silent(self) -> bool:
        return self.pulse.silence is not None


def no_answer() -> TwinlogError:
    return Disconnected("10.0.0.3:9092 of cluster A has not answered within 5 s")


def test_it_is_queried_every_second_and_by_one_query_at_a_time() -> None:
    asked = Asked()
    for _ in range(3):
        asked.wait(PULSE_EVERY_S + 0.2)
        asked.answer(None)
    asked.wait(30)
    assert len(asked.times) == 4


def test_it_is_not_asked_while_it_answers_another_question_every_second() -> None:
    asked = Asked()
    for _ in range(30):
        asked.answered_at = asked.driver.clock.now
        asked.wait(PULSE_EVERY_S + 0.2)
    assert asked.times == []
    asked.wait(AFTER_ANSWER_S)
    assert len(asked.times) == 1
    asked.fail(no_answer())
    asked.answered_at = asked.driver.clock.now
    asked.wait(PULSE_EVERY_S + 0.2)
    assert len(asked.times) == 2, "the end of a silence is noticed as early as its begin"


def test_silence_begins_with_a_question_without_an_answer_and_ends_with_an_answer() -> None:
    asked = Asked()
    asked.wait(SILENCE_S)
    seen = [asked.is_silent]  # the source may only be slow
    asked.fail(no_answer())
    seen.append(asked.is_silent)
    asked.wait(2)
    seen.append(asked.is_silent)
    asked.answer(None)
    seen.append(asked.is_silent)
    assert seen == [False, True, True, False]


def test_source_whose_records_come_is_slow_and_not_silent() -> None:
    asked = Asked()
    asked.wait(NOTE_POSITIONS_AFTER_S + 1)
    asked.copied(150)
    asked.wait(SILENCE_S - NOTE_POSITIONS_AFTER_S)
    asked.fail(no_answer())
    assert not asked.is_silent


def test_records_that_were_read_before_the_silence_are_no_sign_of_life() -> None:
    asked = Asked()
    asked.wait(NOTE_POSITIONS_AFTER_S - 2)
    asked.copied(150)
    asked.wait(SILENCE_S - NOTE_POSITIONS_AFTER_S + 2)
    asked.fail(no_answer())
    assert asked.is_silent


def test_source_that_refuses_a_question_is_not_silent() -> None:
    asked = Asked()
    asked.wait(PULSE_EVERY_S + 0.2)
    asked.fail(no_answer())
    asked.wait(PULSE_EVERY_S + 0.2)
    asked.fail(Unauthorized("no"))
    assert not asked.is_silent
