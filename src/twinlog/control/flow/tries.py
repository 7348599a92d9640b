"""When a flow that cannot be set up is tried again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from twinlog.clock import Clock, GrowingPause
from twinlog.codes import Trait, has
from twinlog.control.leading.lead import SetupWaiting
from twinlog.errors import TwinlogError

RETRY_S: Final = 0.5
MAX_SETUP_PAUSE_S: Final = 30.0
MAX_AWAY_PAUSE_S: Final = 5.0
"""Of a cluster that does not answer: a standby takes over within 15 s, after an outage too."""


@dataclass(slots=True, kw_only=True)
class Tries:
    """Of one flow, over all its runs."""

    clock: Clock
    due_at: float = 0.0
    """By the monotonic clock."""
    began: float = field(init=False)
    _pause: GrowingPause = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock.monotonic()
        self._pause = GrowingPause(first_s=RETRY_S, most_s=MAX_SETUP_PAUSE_S)

    @property
    def is_due(self) -> bool:
        return self.clock.monotonic() >= self.due_at

    @property
    def lasted_s(self) -> float:
        """Since the flow was known."""
        return self.clock.monotonic() - self.began

    @property
    def due_ms(self) -> int:
        """The next one, by the wall's clock."""
        return self.clock.wall_ms() + int(1000 * (self.due_at - self.clock.monotonic()))

    def again(self, after_s: float = 0.0) -> None:
        """As if none had failed."""
        self._pause.reset()
        self.due_at = self.clock.monotonic() + after_s

    def failed(self, error: TwinlogError) -> None:
        pause_s = RETRY_S  # a free lead must not wait for us
        if not isinstance(error, SetupWaiting):
            most_s = MAX_AWAY_PAUSE_S if has(error.code, Trait.AWAY) else MAX_SETUP_PAUSE_S
            pause_s = min(self._pause.next_s(most_s), most_s)
        self.due_at = self.clock.monotonic() + pause_s
