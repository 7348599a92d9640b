"""Whether the source answers at all. A broker that is frozen, or behind a line that drops packets,
breaks no connection: a fetch waits request.timeout.ms (30 s) for it, and until then its lane takes
an end of the log that is old for the end.

Silence is two requests in a row without an answer (`source_questions.PULSE_WITHIN_S` each), over
connections that nothing else uses, for what a broker has in memory. So neither a large question nor
a fetch that takes long is an outage. Nor is a broker that is so loaded that it answers none of
these while lanes still get records of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twinlog.codes import Trait, has
from twinlog.control.risk.background import InBackground
from twinlog.control.risk.running_flow import RunningFlow
from twinlog.errors import TwinlogError

EVERY_S: Final = 1.0
LATELY_S: Final = 4.0
"""Lanes report once a second what they have read; what they read before the silence is reported by
then.
"""


@dataclass(slots=True, kw_only=True)
class Pulse:
    """Of one run of a flow; in the supervisor's thread."""

    run: RunningFlow
    ask: Callable[[], None]
    """Returns when the source has answered, and raises TwinlogError; in any thread."""
    silence: TwinlogError | None = None
    """Why the source does not answer. None: it does, or nobody knows."""
    _asked_at: float = float("-inf")
    _is_asking: bool = False
    _copied: int | None = None
    """Where all positions were, in sum, LATELY_S after it was asked."""

    def tend(self, background: InBackground) -> None:
        """Ask again where it is time."""
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
