"""How much of the machine was used by what is not part of the benchmark, while a run lasted.

Everything the benchmark starts, brokers and copiers, descends from its own process; what the
machine spent beyond that was spent by others, and makes the run less comparable.
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
"""From this share on the report says so; the kernel's own threads stay well below it."""

_STAT = Path("/proc/stat")
_LOOK_S = 0.25
_NOT_BUSY = frozenset((3, 4, 7, 8, 9))
"""Columns idle, iowait, steal; guest times are in user time already."""


def busy_seconds(stat: str) -> float:
    """Busy time of all cores since boot, from the first line of /proc/stat."""
    columns = stat.split("\n", 1)[0].split()[1:]
    ticks = sum(int(text) for at, text in enumerate(columns) if at not in _NOT_BUSY)
    return ticks / os.sysconf("SC_CLK_TCK")


class Others:
    """Measures while this block lasts."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._ours = ProcessTree(os.getpid())
        self._ended = threading.Event()
        # who loses its parent leaves our tree, and takes what it used with it: seen before that
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
        """Which share of all cores' time others used since then, 0 to 1."""
        busy = busy_seconds(self._stat.read_text()) - self._busy
        available = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return min(max((busy - self.own_s()) / available, 0.0), 1.0) if available else 0.0

    def own_s(self) -> float:
        """What the benchmark and all that it started used since then."""
        sums = zip(self._ours.sums_s(), self._own, strict=True)
        return max(now - before for now, before in sums)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._ours.look()
