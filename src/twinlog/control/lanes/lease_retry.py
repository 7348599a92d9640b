"""When the next lease may be tried, where leases end by themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from twinlog.clock import Clock, GrowingPause

MAX_LEASE_RETRY_S: Final = 30.0


@dataclass(slots=True, kw_only=True)
class LeaseRetry:
    """One flow's: a Spark job without a ready lane is likely to fail again."""

    clock: Clock
    _next: float = 0.0
    _pause: GrowingPause = field(
        default_factory=lambda: GrowingPause(first_s=4.0, most_s=MAX_LEASE_RETRY_S)
    )

    @property
    def failed(self) -> int:
        """How many have failed since a lane was ready."""
        return self._pause.failures

    def on_failure(self) -> None:
        self._next = self.clock.monotonic() + self._pause.next_s()

    def works(self) -> None:
        """A lane is ready."""
        self._pause.reset()

    @property
    def is_due(self) -> bool:
        return self.clock.monotonic() >= self._next
