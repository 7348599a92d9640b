"""The benchmark's ballast: memory that it reserves before a run, and frees when the run needs
more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.ballast import AHEAD, Ballast, available_bytes, in_step
from tests.support.stopwatch import Stopwatch

pytestmark = pytest.mark.skipif(
    not Path("/proc/meminfo").exists(), reason="this system does not tell its memory"
)
MB = 2**20


def pss_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) // 1024


def test_ballast_is_freed_for_other_processes_with_a_margin() -> None:
    free = 8000 * MB
    assert in_step(free, free, 0) == AHEAD
    # the freed memory is available, so the run has not used any
    assert in_step(free, free + AHEAD, AHEAD) == AHEAD
    assert in_step(free, free - 50 * MB, AHEAD) == 2 * AHEAD + 50 * MB


def test_holds_memory_that_is_really_there_and_gives_it_back() -> None:
    with Ballast(800 * MB) as ballast:
        assert ballast.pid is not None
        assert pss_mb(ballast.pid) > 50, "all but what others took since, and a little more"
        pid = ballast.pid
    assert not Path(f"/proc/{pid}").exists()


def test_takes_nothing_where_there_is_too_little() -> None:
    with Stopwatch() as since, Ballast(available_bytes()) as ballast:
        assert (ballast.size, ballast.pid) == (0, None)
    assert since.seconds < 5
