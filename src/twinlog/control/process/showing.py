"""When snapshots of flows are taken: once a second, but only for a small part of the CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twinlog.control.watch.snapshot import FlowSnapshot

EVERY_S: Final = 1.0
SHARE_OF_TIME: Final = 0.035
"""Maximum share of the supervisor thread's time, however many partitions there are, ..."""

LONGEST_PAUSE_S: Final = 30.0
"""... unless this pause would be exceeded."""


@dataclass(slots=True, kw_only=True)
class Showing:
    """Takes the snapshots of one supervisor, in its thread. With 100,000 partitions one snapshot
    and its uses take 0.8 s of CPU; if that happened every second, intents would be followed late.
    """

    check: Callable[[], list[FlowSnapshot]]
    on_snapshot: Callable[[list[FlowSnapshot]], None]
    on_turn: Callable[[], None]
    """Called in seconds without snapshots, to show that the thread is alive."""
    clock: Callable[[], float] = time.monotonic
    cpu_clock: Callable[[], float] = time.thread_time
    _turned_at: float = float("-inf")
    _next_check: float = float("-inf")

    def turn(self) -> None:
        """Take snapshots if they are due; call it as often as you like."""
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
