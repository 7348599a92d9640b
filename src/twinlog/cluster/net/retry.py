"""Retries of a call, with full jitter and a deadline. `errors.Fate` decides which errors are
retried.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from twinlog.errors import Fate, TwinlogError

T = TypeVar("T")

Clock = Callable[[], float]
"""Monotonic seconds, like time.monotonic."""

CHANCE: Final = random.SystemRandom()
"""Randomness for waits and orders, without state that forked lanes would share or a caller would
seed.
"""

MAX_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait after the n-th failure: a random time up to a bound that doubles up to a
    cap.

    Full jitter is used, because clients that failed together must not retry together.
    """

    initial_ms: int = 100
    cap_ms: int = 30_000

    def bound_s(self, failures: int) -> float:
        """Return the longest pause after this many consecutive failures (1 is the first)."""
        doublings = min(max(failures - 1, 0), MAX_DOUBLINGS)
        return min(self.cap_ms, self.initial_ms << doublings) / 1000


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a clock after which nothing is retried."""

    at: float
    clock: Clock = time.monotonic

    @classmethod
    def within(cls, seconds: float, clock: Clock = time.monotonic) -> Deadline:
        return cls(clock() + seconds, clock)

    @property
    def left_s(self) -> float:
        return max(self.at - self.clock(), 0.0)

    @property
    def has_passed(self) -> bool:
        return self.clock() >= self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The environment of a retry: pauses, clock, sleep and randomness."""

    backoff: Backoff = Backoff()
    clock: Clock = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    uniform: Callable[[float, float], float] = CHANCE.uniform

    def deadline(self, seconds: float) -> Deadline:
        return Deadline.within(seconds, self.clock)

    def pause(self, failures: int, deadline: Deadline | None = None) -> bool:
        """Sleep after this many failures. Returns False immediately if the deadline would pass."""
        wait = self.uniform(0.0, self.backoff.bound_s(failures))
        if deadline is not None and wait >= deadline.left_s:
            return False
        self.sleep(wait)
        return True


DEFAULT_PATIENCE: Final = Patience()


def is_retriable(error: TwinlogError) -> bool:
    """Return whether the error itself is marked as retriable."""
    return error.fate is Fate.RETRIABLE


def retry(
    operation: Callable[[], T],
    *,
    deadline: Deadline | None,
    retriable: Callable[[TwinlogError], bool] = is_retriable,
    patience: Patience = DEFAULT_PATIENCE,
) -> T:
    """Return the operation's result. Raises its last error if retrying cannot help or the deadline
    passes.
    """
    failures = 0
    while True:
        try:
            return operation()
        except TwinlogError as error:
            failures += 1
            if not retriable(error) or not patience.pause(failures, deadline):
                raise
