"""When the next lease may be tried, where leases end by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.clock import Clock

FIRST_PAUSE_S: Final = 4.0
MAX_LEASE_RETRY_S: Final = 30.0


@dataclass(slots=True, kw_only=True)
class LeaseRetry:
    """One flow's: a Spark job without a ready lane is likely to fail again."""

    clock: Clock
    failed: int = 0
    """How many have failed since a lane was ready."""
    _next: float = 0.0

    def on_failure(self) -> None:
        self.failed += 1
        pause_s = min(FIRST_PAUSE_S * 2 ** (self.failed - 1), MAX_LEASE_RETRY_S)
        self._next = self.clock.monotonic() + pause_s

    def works(self) -> None:
        """A lane is ready."""
        self.failed = 0

    @property
    def is_due(self) -> bool:
        return self.clock.monotonic() >= self._next
