"""When flows are checked, to be shown: once a second, and for a small part of the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twinlog.control.watch.snapshot import FlowSnapshot

EVERY_S: Final = 1.0
SHARE_OF_TIME: Final = 0.035
"""Of the thread that decides: it takes no more, however many partitions there are, ..."""

LONGEST_PAUSE_S: Final = 30.0
"""... but for this."""


@dataclass(slots=True, kw_only=True)
class Showing:
    """Of one supervisor, in its thread. With 100,000 partitions a check and all that is made of it
    take 0.8 s of CPU: in every second, intents would be followed late.
    """

    check: Callable[[], list[FlowSnapshot]]
    on_snapshot: Callable[[list[FlowSnapshot]], None]
    on_turn: Callable[[], None]
    """In seconds without a check: the thread lives."""
    clock: Callable[[], float] = time.monotonic
    cpu_clock: Callable[[], float] = time.thread_time
    _turned_at: float = float("-inf")
    _next_check: float = float("-inf")

    def turn(self) -> None:
        """Call it as often as you like."""
        now = self.clock()
        if now - self._turned_at < EVERY_S:
            return
        self._turned_at = now
        if now < self._next_check:
            self.on_turn()
            return
        began = self.cpu_clock()
        self.on_snapshot(self.check())
        cost_s = self.cpu_clock() - began
        self._next_check = now + min(cost_s / SHARE_OF_TIME, LONGEST_PAUSE_S)
