"""Retries of a call, with full jitter and a deadline.

*Which errors.* The fate of an error (`errors.Fate`) says if a call is repeated. For a broker's
error code, the table in `wire.error_codes` has the fate, which follows Java's `RetriableException`.
For a connection error, its class has the fate. A caller may give up before its deadline if it knows
that waiting does not help (`client.retriable_now`).

*Which requests.* After a lost connection it is unknown if the broker has executed the request. So a
request is repeated only if executing it twice is harmless:

| request                                           | repeating it                                |
| ------------------------------------------------- | ------------------------------------------- |
| a query                                           | is harmless                                 |
| set a config, a quota or an ACL; create or grow a | sets the same value again, or finds that it |
| topic                                             | exists, which is a result and no error      |
| a batch with sequence numbers                     | is recognised by the leader                 |
| a batch without them (rows of the state topic)    | may append it twice, which readers of the   |
|                                                   | rows allow (`topics.internal_log`)          |
| the end of a transaction                          | is not done: the next epoch finds out what  |
|                                                   | happened (`groups.transactions`)            |

*How long.* A call has a deadline, not a number of attempts, because its caller waits for a time.
Each pause is a random part of a bound, which grows with each failure (full jitter). Without it,
clients that failed together because a broker died would all retry in the same moment. Time while a
broker mutes the connection does not count (`client.clock`).
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
"""A function that returns monotonic seconds, like time.monotonic."""

CHANCE: Final = random.SystemRandom()
"""Random numbers for pauses and for the order of addresses. The generator has no state that forked
lanes could share, or that other code in the process could seed.
"""

MAX_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The bound of the random pause after a failure. It doubles with each failure, up to a cap."""

    initial_ms: int = 100
    cap_ms: int = 30_000

    def bound_s(self, failures: int) -> float:
        """Return the longest pause after this many consecutive failures, in seconds."""
        doublings = min(max(failures - 1, 0), MAX_DOUBLINGS)
        return min(self.cap_ms, self.initial_ms << doublings) / 1000


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time on `clock` after which a call is not retried."""

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
    """The pauses between retries, with the clock, sleep and random numbers that tests replace."""

    backoff: Backoff = Backoff()
    clock: Clock = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    uniform: Callable[[float, float], float] = CHANCE.uniform

    def wait_s(self, failures: int) -> float:
        """Return a random pause after this many consecutive failures, in seconds."""
        return self.uniform(0.0, self.backoff.bound_s(failures))

    def pause(self, failures: int, deadline: Deadline | None = None) -> bool:
        """Sleep and return True, or return False if the deadline would pass during the pause."""
        wait = self.wait_s(failures)
        if deadline is not None and wait >= deadline.left_s:
            return False
        self.sleep(wait)
        return True


DEFAULT_PATIENCE: Final = Patience()


def is_retriable(error: TwinlogError) -> bool:
    return error.fate is Fate.RETRIABLE


def retry(
    operation: Callable[[], T],
    *,
    deadline: Deadline | None,
    retriable: Callable[[TwinlogError], bool] = is_retriable,
    patience: Patience = DEFAULT_PATIENCE,
) -> T:
    """Run the operation until it succeeds, and return its result. Raises the operation's error if
    it is not retriable, or if the deadline would pass during the next pause (None: no deadline).
    """
    failures = 0
    while True:
        try:
            return operation()
        except TwinlogError as error:
            failures += 1
            if not retriable(error) or not patience.pause(failures, deadline):
                raise
