"""Retries with growing pauses and full jitter, a deadline, and errors that are not retried."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twinlog.cluster.net.retry import Backoff, Deadline, Patience, retry
from twinlog.errors import AuthenticationFailed, Disconnected, TwinlogError, Unreachable


class Time:
    """A clock that moves only by calls of `sleep`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def longest(_low: float, high: float) -> float:
    return high


def patience(time: Time, **backoff: int) -> Patience:
    return Patience(backoff=Backoff(**backoff), clock=time.clock, sleep=time.sleep, uniform=longest)


def failing(times: int, error: TwinlogError) -> Callable[[], str]:
    """Return an operation that raises the error `times` times before it succeeds."""
    left = times

    def operation() -> str:
        nonlocal left
        if left:
            left -= 1
            raise error
        return "done"

    return operation


def test_bound_doubles_up_to_the_cap() -> None:
    backoff = Backoff(initial_ms=100, cap_ms=1_000)
    assert [backoff.bound_s(n) for n in (1, 2, 3, 4, 5, 500)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_pause_is_anything_up_to_the_bound() -> None:
    asked: list[tuple[float, float]] = []

    def chance(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    time = Time()
    Patience(clock=time.clock, sleep=time.sleep, uniform=chance).pause(3)
    assert asked == [(0.0, 0.4)]


def test_result_of_the_first_success_is_returned() -> None:
    time = Time()
    result = retry(
        failing(3, Disconnected("gone")),
        deadline=Deadline.within(60, time.clock),
        patience=patience(time),
    )
    assert result == "done"
    assert time.slept == [0.1, 0.2, 0.4]


def test_fatal_error_is_raised_immediately() -> None:
    time = Time()
    with pytest.raises(AuthenticationFailed):
        retry(failing(1, AuthenticationFailed("no")), deadline=None, patience=patience(time))
    assert time.slept == []


def test_last_error_is_raised_before_the_deadline_passes() -> None:
    time = Time()
    with pytest.raises(Unreachable):
        retry(
            failing(99, Unreachable("nobody")),
            deadline=Deadline.within(1.0, time.clock),
            patience=patience(time),
        )
    assert time.slept == [0.1, 0.2, 0.4]
    assert time.now < 1001.0


def test_caller_may_decide_which_errors_are_retried() -> None:
    time = Time()
    result = retry(
        failing(1, AuthenticationFailed("not yet")),
        deadline=None,
        retriable=lambda _error: True,
        patience=patience(time),
    )
    assert result == "done"
