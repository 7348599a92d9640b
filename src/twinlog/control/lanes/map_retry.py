"""When an offset map that could not be read is read again, and what is said of it meanwhile."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from twinlog.clock import CLOCK, Clock, GrowingPause
from twinlog.control.lanes.partitions import RETRY_FAILED_S, Partition
from twinlog.errors import Fate, TwinlogError
from twinlog.flow_log import FlowLog

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class MapRetry:
    """Of one flow: one line when it begins and one when it ends, with pauses that grow."""

    flow: str
    clock: Clock = CLOCK
    is_reading: bool = False
    began: float = 0.0
    """Monotonic: when the reading began. Rows that came later may not be in it."""
    _next_at: float = 0.0
    _pause: GrowingPause = field(
        default_factory=lambda: GrowingPause(first_s=0.5, most_s=RETRY_FAILED_S)
    )
    _problem: str = ""

    @property
    def is_due(self) -> bool:
        """Nothing is being read, and the pause is over."""
        return not self.is_reading and self.clock.monotonic() >= self._next_at

    def begin(self) -> None:
        """It is being read now."""
        self.is_reading, self.began = True, self.clock.monotonic()

    def failed(self, error: TwinlogError) -> None:
        """None of it could be read."""
        self.is_reading = False
        self._next_at = self.clock.monotonic() + self._pause.next_s()
        if error.code != self._problem:
            self._problem = error.code
            FlowLog(log, self.flow).warning(
                "the offset map cannot be read: %s; trying again", error
            )

    def works(self) -> None:
        """It was read."""
        self.is_reading = False
        self._next_at = 0.0
        self._pause.reset()
        if self._problem:
            FlowLog(log, self.flow).news("the offset map can be read again")
            self._problem = ""


def unmapped(partition: Partition, error: TwinlogError) -> None:
    """A partition cannot start without its map: it says why, and is tried again."""
    partition.troubled(error.code, error.what, retriable=error.fate is Fate.RETRIABLE)
