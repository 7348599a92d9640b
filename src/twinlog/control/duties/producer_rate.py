"""How fast producers may write while a flow does not keep its RPO.

They get half of what the copy carries, so that it catches up about as fast as it fell behind, and
less where the loss grows on. A quota helps only while records are copied: where nothing moves (the
target is away, the flow is paused), producers are let go, for an outage of the copy is to be no
outage of the source. Nor are they held back, or more than they are, while less and less waits: a
copy that catches up needs nobody's help, as with the history of a topic that is copied again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from twinlog.codes import PartitionState
from twinlog.control.watch.snapshot import PartitionSnapshot

LEAST: Final = 16 * 1024
"""Bytes per second."""
SHARE: Final = 0.5
LESS: Final = 0.7
ADJUST_S: Final = 10.0
MEASURED_S: Final = 20.0
"""A flow with a limit moves in bursts."""
MOST_LOWERINGS: Final = 20
"""Who gets a thousandth of what they got and it helps nothing is not who writes."""
IN_VAIN_S: Final = 600.0
STANDS_AFTER_S: Final = 30.0
"""So long without a byte."""

MOVING: Final = (
    *(PartitionState.STARTING, PartitionState.COPYING),
    *(PartitionState.DRAINING, PartitionState.AT_END),
)


@dataclass(slots=True)
class HeldRate:
    """What is set, for those who look at the flow; written by the duty's thread."""

    bytes_per_second: int | None = None
    """Of each user at each broker; None: nothing holds them back."""


def curable_loss_ms(parts: Iterable[PartitionSnapshot]) -> int:
    """The loss that slower producers would make less: of partitions that are copied and are behind.

    One that has stopped with a code or is paused, or waits for a transaction to end, would stay
    behind however slow they are, and the producers of all others must not pay for it.
    """
    behind = (part for part in parts if part.lag > 0 and not part.code)
    return max((part.loss_ms for part in behind if part.state in MOVING), default=0)


class Waiting(NamedTuple):
    """Records that are not copied yet, and of how many partitions that is known."""

    partitions: int
    records: int

    @classmethod
    def of(cls, parts: Iterable[PartitionSnapshot]) -> Self:
        """Of those that slower producers would help."""
        lags = [one.lag for one in parts if one.lag >= 0 and not one.code and one.state in MOVING]
        return cls(len(lags), sum(lags))


class ProducerRate:
    """Decides; seconds are of one clock that only goes forward."""

    def __init__(self, rpo_ms: int) -> None:
        self._rpo_ms = rpo_ms
        self._seen: deque[tuple[float, int]] = deque()
        self._waiting: deque[tuple[float, Waiting]] = deque()
        self._moved_at: float | None = None
        self._next = 0.0
        self._last_loss_ms = 0
        self._lowered = 0
        self._not_before = float("-inf")
        self.is_in_vain = False
        """Producers were let go because it did not help; tried again after some minutes."""
        self.rate: int | None = None
        """Bytes per second of each user at each broker; None: as they like."""

    def see(
        self, at: float, loss_ms: int, copied: int, brokers: int, waiting: Waiting
    ) -> int | None:
        """The rate from now on. `copied`: bytes since the flow began; `loss_ms` -1: not known."""
        speed, falls_behind = self._speed(at, copied), self._falls_behind(at, waiting)
        stands = self._moved_at is None or at - self._moved_at > STANDS_AFTER_S
        self.is_in_vain = self.is_in_vain and at < self._not_before
        if stands or 0 <= loss_ms <= self._rpo_ms // 2:
            self.rate = None
        elif self.rate is None:
            is_late = loss_ms > self._rpo_ms and falls_behind
            if is_late and speed is not None and not self.is_in_vain:
                self._lowered = 0
                self._set(at, loss_ms, SHARE * speed / max(brokers, 1))
        elif at >= self._next and loss_ms >= 0:
            grows = loss_ms >= self._last_loss_ms and falls_behind
            self._lowered += grows
            self._set(at, loss_ms, self.rate * LESS if grows else self.rate)
            if self._lowered > MOST_LOWERINGS:
                # users with quotas of their own, or a flow back, which holds this one's user
                self.rate, self.is_in_vain, self._not_before = None, True, at + IN_VAIN_S
        return self.rate

    def _set(self, at: float, loss_ms: int, rate: float) -> None:
        self.rate = max(int(rate), LEAST)
        self._next, self._last_loss_ms = at + ADJUST_S, loss_ms

    def _falls_behind(self, at: float, waiting: Waiting) -> bool:
        """Whether no less waits than some seconds ago; False while it is too early to say."""
        seen = self._waiting
        if seen and waiting.partitions != seen[-1][1].partitions:
            seen.clear()
        seen.append((at, waiting))
        while len(seen) > 2 and seen[1][0] <= at - MEASURED_S:
            seen.popleft()
        began, before = seen[0]
        return at - began >= 1.0 and waiting.records >= max(before.records, 1)

    def _speed(self, at: float, copied: int) -> float | None:
        """Bytes per second over the last seconds; None where none was copied, or it is too early
        to say.
        """
        seen = self._seen
        if seen and copied < seen[-1][1]:  # partitions left: what they copied is not counted on
            seen.clear()
        if seen and copied > seen[-1][1]:
            self._moved_at = at
        seen.append((at, copied))
        while len(seen) > 2 and seen[1][0] <= at - MEASURED_S:
            seen.popleft()
        began, before = seen[0]
        took = at - began
        return (copied - before) / took if took >= 1.0 and copied > before else None
