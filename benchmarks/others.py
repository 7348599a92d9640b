"""Measures how much CPU processes outside the benchmark used during a run.

All processes of the benchmark, also brokers and copiers, descend from its own process. The
remaining CPU time of the machine was used by other processes, which makes the run less comparable.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Self

from benchmarks.process_tree import ProcessTree

__all__ = ["TOO_MUCH", "Others", "busy_seconds"]

TOO_MUCH = 0.1
"""Share of CPU above which the report has a warning. The kernel's threads need much less."""

_STAT = Path("/proc/stat")
_LOOK_S = 0.25
_NOT_BUSY = frozenset((3, 4, 7, 8, 9))
"""Columns idle, iowait, steal, and guest times, which user time already includes."""


def busy_seconds(stat: str) -> float:
    """Return the busy time of all cores since boot, from the first line of /proc/stat."""
    columns = stat.split("\n", 1)[0].split()[1:]
    ticks = sum(int(text) for at, text in enumerate(columns) if at not in _NOT_BUSY)
    return ticks / os.sysconf("SC_CLK_TCK")


class Others:
    """Measures the CPU of other processes during a `with` block."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._ours = ProcessTree(os.getpid())
        self._ended = threading.Event()
        # looks often, because an orphaned process leaves the tree, and its CPU time must be counted
        # before
        self._looking = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._busy = busy_seconds(self._stat.read_text())
        self._own = self._ours.sums_s()
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._looking.join()

    def share(self) -> float:
        """Return the share (0 to 1) of all cores' time that other processes have used since the
        start.
        """
        busy = busy_seconds(self._stat.read_text()) - self._busy
        available = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return min(max((busy - self.own_s()) / available, 0.0), 1.0) if available else 0.0

    def own_s(self) -> float:
        """Return the CPU seconds of the benchmark and all its processes since the start of the
        block.
        """
        sums = zip(self._ours.sums_s(), self._own, strict=True)
        return max(now - before for now, before in sums)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._ours.look()
