"""Detects whether the source responds at all.

A broker that is frozen, or whose packets are dropped, does not break connections: a fetch waits
request.timeout.ms (30 s) for it, and until then its lane regards an old log end as current.

The source is silent after two requests in a row without an answer
(`source_questions.PULSE_WITHIN_S` each), over connections that nothing else uses, for data that a
broker has in memory. A large query or a slow fetch is therefore not an outage. Nor is a broker that
is too busy to answer these requests while lanes still receive records from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twinlog.codes import Trait, has
from twinlog.control.risk.running_flow import InBackground, RunningFlow
from twinlog.errors import TwinlogError

EVERY_S: Final = 1.0
LATELY_S: Final = 4.0
"""Lanes report once a second what they have read, so records from before the silence are reported
within this time.
"""


@dataclass(slots=True, kw_only=True)
class Pulse:
    """The check of one run of a flow, in the supervisor's thread."""

    run: RunningFlow
    ask: Callable[[], None]
    """Returns when the source has responded, and raises TwinlogError; called in any thread."""
    silence: TwinlogError | None = None
    """Why the source does not respond; None if it does, or if unknown."""
    _asked_at: float = float("-inf")
    _is_asking: bool = False
    _copied: int | None = None
    """Sum of all positions, LATELY_S after the request."""

    def tend(self, background: InBackground) -> None:
        """Send the next request if it is due."""
        now = self.run.clock.monotonic()
        if self._is_asking:
            if self._copied is None and now - self._asked_at >= LATELY_S:
                self._copied = self._positions()
            return
        if now - self._asked_at < EVERY_S or self.run.is_stopping:
            return
        self._is_asking, self._asked_at, self._copied = True, now, None
        background(self.ask, self._answered, self._failed)

    def _answered(self, _: None) -> None:
        self._is_asking, self.silence = False, None

    def _failed(self, error: TwinlogError) -> None:
        self._is_asking = False
        is_moving = self._copied is not None and self._positions() > self._copied
        is_silent = has(error.code, Trait.AWAY) and not is_moving
        self.silence = error if is_silent else None

    def _positions(self) -> int:
        return sum(one.recovery.upstream for one in self.run.partitions.values())
