"""Duties run in rounds. They continue after errors, and end on request."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.support.eventually import PATIENCE_S, eventually
from twinlog.control.duties.rounds import Duties, Duty, NotPermitted
from twinlog.errors import Disconnected, TwinlogError


def nothing(_round: int) -> None:
    """Do not fail in any round."""


@dataclass(kw_only=True)
class Counting(Duty):
    """A duty that counts its rounds. Some of them fail."""

    name: str = "counting"
    interval_s: float = 0.01
    ends_once: bool = True
    fail: Callable[[int], BaseException | None] = nothing
    rounds: int = 0
    closed_in: list[str] = field(default_factory=list)

    def round(self) -> None:
        self.rounds += 1
        error = self.fail(self.rounds)
        if error is not None:
            raise error

    def close(self) -> None:
        self.closed_in.append(threading.current_thread().name)


def test_rounds_continue_until_it_is_stopped_and_then_close_in_their_own_thread() -> None:
    duty = Counting()
    duties = Duties("A->B", [duty])
    duties.start()
    eventually(lambda: duty.rounds > 3)
    duties.stop()
    duties.join(PATIENCE_S)
    ended_at = duty.rounds
    assert duty.closed_in == ["twinlog-counting"]
    assert not duties.is_alive
    assert duty.rounds == ended_at


def test_a_duty_that_pauses_needs_no_thread_and_is_closed_at_once() -> None:
    duty = Counting(interval_s=1000.0)
    duties = Duties("A->B", [duty])
    duties.start()
    eventually(lambda: duty.rounds)
    eventually(lambda: all(t.name != "twinlog-counting" for t in threading.enumerate()))
    assert duties.is_alive
    duties.stop()
    duties.join(PATIENCE_S)
    assert (duty.rounds, duty.closed_in, duties.is_alive) == (1, ["twinlog-counting"], False)


def test_no_round_begins_while_they_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.duties.rounds.HELD_PAUSE_S", 0.01)
    held, other = Counting(), Counting()
    duties, others = Duties("A->B", [held]), Duties("A->C", [other])
    duties.set_held(is_held=True)
    for one in (duties, others):
        one.start()
    eventually(lambda: other.rounds > 20)
    duties.run_once()
    assert held.rounds == 0
    duties.set_held(is_held=False)
    eventually(lambda: held.rounds > 3)
    for one in (duties, others):
        one.stop()
        one.join(PATIENCE_S)


def test_an_error_is_one_line_and_the_rounds_and_other_duties_continue(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.control.duties.rounds.FIRST_PAUSE_S", 0.01)
    away = Disconnected("B: the broker closed the connection")
    failing = Counting(name="failing", fail=lambda at: away if at < 4 else None)
    other = Counting(name="other")
    seen: list[TwinlogError] = []
    duties = Duties("A->B", [failing, other], on_error=seen.append)
    with caplog.at_level(logging.INFO):
        duties.start()
        eventually(lambda: failing.rounds > 5 and other.rounds > 5)
        duties.stop()
        duties.join(PATIENCE_S)
    assert seen == [away] * 3, "each is counted"
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", f"A->B: failing: {away}; trying again"),
        ("INFO", "A->B: failing: works again"),
    ]
    assert caplog.records[1].__dict__["news"], "and people see it"


def test_a_missing_permission_is_logged_once_and_tried_again_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = NotPermitted("no heartbeats: grant WRITE", flow="A->B")
    duty, lines, errors = Counting(fail=lambda _: refused), list[str](), list[TwinlogError]()
    duties = Duties("A->B", [duty], on_error=errors.append, log_once=lines.append)
    duties.start()
    eventually(lambda: bool(lines))
    duties.stop()
    duties.join(PATIENCE_S)
    assert (duty.rounds, lines, errors) == (1, ["A->B: no heartbeats: grant WRITE"], [])
    monkeypatch.setattr("twinlog.control.duties.rounds.REFUSED_PAUSE_S", 0.01)
    duty.fail = lambda at: refused if at < 4 else None
    duties = Duties("A->B", [duty], on_error=errors.append, log_once=lines.append)
    duties.start()
    eventually(lambda: duty.rounds > 5)
    duties.stop()
    duties.join(PATIENCE_S)
    assert (len(lines), errors, caplog.text) == (3, [], "")


def test_a_bug_is_seen_and_stops_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.control.duties.rounds.FIRST_PAUSE_S", 0.01)
    duty = Counting(fail=lambda at: KeyError("orders") if at == 1 else None)
    seen: list[TwinlogError] = []
    duties = Duties("A->B", [duty], on_error=seen.append)
    duties.start()
    eventually(lambda: duty.rounds > 2)
    duties.stop()
    duties.join(PATIENCE_S)
    assert len(seen) == 1
    assert "Traceback" in caplog.text


def test_once_runs_one_round_of_those_that_end_it_in_their_order() -> None:
    order: list[str] = []

    def noting(name: str) -> Callable[[int], None]:
        return lambda _: order.append(name)

    configs = Counting(name="configs", fail=noting("configs"))
    beats = Counting(name="heartbeats", ends_once=False, fail=noting("heartbeats"))
    groups = Counting(name="groups", fail=noting("groups"))
    Duties("A->B", [configs, beats, groups]).run_once()
    assert order == ["configs", "groups"]
    assert len(configs.closed_in) == len(groups.closed_in) == 1


@dataclass(kw_only=True)
class CountingTheEnd(Counting):
    """A duty that has a last round after the copy has drained."""

    last_rounds: int = 0

    def last_round(self) -> None:
        self.last_rounds += 1
        raise Disconnected("B: the broker closed the connection")


def test_duties_with_a_last_round_are_informed_of_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, other, second = CountingTheEnd(), Counting(), CountingTheEnd()
    duties = Duties("A->B", [first, other, second])
    duties.start()
    duties.end(5.0)
    rounds = first.rounds, other.rounds
    assert (first.last_rounds, second.last_rounds) == (1, 1)
    assert "counting: the final round failed: B: the broker closed the connection" in caplog.text
    assert (first.rounds, other.rounds) == rounds
