"""Decides how fast producers may write while a flow exceeds its RPO.

**Problem.** If producers write faster than the flow copies, the possible loss grows without limit.
A quota slows them down, but it also slows applications down. So it must help, and must not last
longer than its reason.

**Rules**

1. Producers get half of the copy's throughput, so that the copy catches up about as fast as it fell
   behind. They get less if the loss still grows.
2. Producers are not throttled while nothing is copied, for example because the target is down or
   the flow is paused. An outage of the copy must not become an outage of the source.
3. Producers are not throttled, or not further, while the number of waiting records decreases.
   Then the copy catches up by itself, as when the history of a topic is copied again.
4. The quota ends when the loss is half of the RPO. The quota also ends if many decreases did not
   help, because then producers have quotas of their own. It is tried again after ten minutes.

**After a crash.** The decision needs no stored data, because a new leader measures again. The quota
is stored in the brokers, and its row in the state topic, so that the quota is removed after any
crash (`client.producer_hold`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Self, TypeVar

from twinlog.codes import PartitionState
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.quantities import known, largest

LEAST: Final = 16 * 1024
"""Minimum quota in bytes per second."""
SHARE: Final = 0.5
LESS: Final = 0.7
ADJUST_S: Final = 10.0
MEASURED_S: Final = 20.0
"""Length of a measurement in seconds: long, because a flow with a rate limit copies in bursts."""
MOST_LOWERINGS: Final = 20
"""Maximum number of decreases. If a thousandth of the rate does not help, the quota does not apply
to the producers that write.
"""
IN_VAIN_S: Final = 600.0
STOPPED_AFTER_S: Final = 30.0
"""Seconds without a copied byte after which the copy counts as stopped."""

T = TypeVar("T")

MOVING: Final = (
    *(PartitionState.STARTING, PartitionState.COPYING),
    *(PartitionState.DRAINING, PartitionState.AT_END),
)


@dataclass(slots=True)
class HeldRate:
    """The producer quota in effect, for display. The duty's thread writes it."""

    bytes_per_second: int | None = None
    """Maximum bytes per second of each user at each broker, or None if there is no quota."""


def curable_loss_ms(partitions: Iterable[PartitionSnapshot]) -> int | None:
    """Return the possible loss that slower producers would reduce, or None if unknown. Only
    partitions that are copied and lag are included.

    A partition that has failed with a code, is paused, or waits for the end of a transaction would
    lag however slow producers are. The producers of all other partitions must not be throttled
    because of it.
    """
    behind = [part for part in partitions if part.lag and not part.code and part.state in MOVING]
    return largest(part.loss_ms for part in behind) if behind else 0


class WaitingCounts(NamedTuple):
    """Number of uncopied records, and number of partitions for which this count is known."""

    partitions: int
    records: int

    @classmethod
    def of(cls, partitions: Iterable[PartitionSnapshot]) -> Self:
        """Count the waiting records of partitions that slower producers would help."""
        lags = known(part.lag for part in partitions if not part.code and part.state in MOVING)
        return cls(len(lags), sum(lags))


def _add_measurement(seen: deque[tuple[float, T]], now: float, value: T) -> tuple[float, T]:
    """Append a value to the measurements of the last seconds. Return the oldest measurement: its
    time and value.
    """
    seen.append((now, value))
    while len(seen) > 2 and seen[1][0] <= now - MEASURED_S:
        seen.popleft()
    return seen[0]


class ProducerRate:
    """Decides the rate of producers. Times are seconds of a monotonic clock."""

    def __init__(self, rpo_ms: int) -> None:
        self._rpo_ms = rpo_ms
        self._seen: deque[tuple[float, int]] = deque()
        self._waiting: deque[tuple[float, WaitingCounts]] = deque()
        self._moved_at: float | None = None
        self._next = 0.0
        self._last_loss_ms = 0
        self._lowered = 0
        self._not_before = float("-inf")
        self.is_in_vain = False
        """True if the quota was removed because it did not help. It is tried again later."""
        self.rate: int | None = None
        """Maximum bytes per second of each user at each broker, or None if there is no quota."""

    def next_rate(
        self, now: float, loss_ms: int | None, copied: int, brokers: int, waiting: WaitingCounts
    ) -> int | None:
        """Return the new rate. `copied`: bytes since the flow began; `loss_ms`: the possible loss,
        or None if unknown.
        """
        speed, falls_behind = self._speed(now, copied), self._falls_behind(now, waiting)
        stands = self._moved_at is None or now - self._moved_at > STOPPED_AFTER_S
        self.is_in_vain = self.is_in_vain and now < self._not_before
        if stands or (loss_ms is not None and loss_ms <= self._rpo_ms // 2):
            self.rate = None
        elif loss_ms is None:
            pass
        elif self.rate is None:
            is_late = loss_ms > self._rpo_ms and falls_behind
            if is_late and speed is not None and not self.is_in_vain:
                self._lowered = 0
                self._set_rate(now, loss_ms, SHARE * speed / max(brokers, 1))
        elif now >= self._next:
            grows = loss_ms >= self._last_loss_ms and falls_behind
            self._lowered += grows
            self._set_rate(now, loss_ms, self.rate * LESS if grows else self.rate)
            if self._lowered > MOST_LOWERINGS:
                # the quota does not help. Either all producers have quotas of their own, or a flow
                # back writes as this flow's user, so that the quota throttles this flow as well
                self.rate, self.is_in_vain, self._not_before = None, True, now + IN_VAIN_S
        return self.rate

    def _set_rate(self, now: float, loss_ms: int, rate: float) -> None:
        self.rate = max(int(rate), LEAST)
        self._next, self._last_loss_ms = now + ADJUST_S, loss_ms

    def _falls_behind(self, now: float, waiting: WaitingCounts) -> bool:
        """Return True if at least as many records wait as some seconds ago. Return False if fewer
        wait, or if it is too early to know.
        """
        seen = self._waiting
        if seen and waiting.partitions != seen[-1][1].partitions:
            seen.clear()
        began, before = _add_measurement(seen, now, waiting)
        return now - began >= 1.0 and waiting.records >= max(before.records, 1)

    def _speed(self, now: float, copied: int) -> float | None:
        """Return the copied bytes per second, or None if there are none or it is too early."""
        seen = self._seen
        # fewer bytes than before: partitions were removed, and their bytes are no longer counted
        if seen and copied < seen[-1][1]:
            seen.clear()
        if seen and copied > seen[-1][1]:
            self._moved_at = now
        began, before = _add_measurement(seen, now, copied)
        took = now - began
        return (copied - before) / took if took >= 1.0 and copied > before else None
