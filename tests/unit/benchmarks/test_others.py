"""The CPU time and memory that other programs on the machine use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.others import Others, busy_seconds
from tests.support.eventually import eventually

TICKS = os.sysconf("SC_CLK_TCK")


def line(*seconds: int) -> str:
    return "cpu  " + " ".join(str(each * TICKS) for each in seconds) + "\ncpu0 1 2 3\n"


def test_idle_stolen_and_guest_time_is_not_busy() -> None:
    assert busy_seconds(line(1, 2, 4, 1000, 1000, 8, 16, 1000, 1000, 1000)) == pytest.approx(31)


def test_cpu_time_beyond_the_benchmarks_belongs_to_other_programs(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(line(10, 0, 0, 0))
    with Others(stat) as others:
        assert others.share() == 0
        stat.write_text(line(10_000, 0, 0, 0))
        assert others.share() == 1


def test_a_process_without_its_parent_still_belongs_to_the_benchmark() -> None:
    burn = "import time\nwhile time.process_time() < 0.8: pass"
    with Others() as others:
        parent = ["sh", "-c", '"$0" -c "$1" & sleep 1.5', sys.executable, burn]
        subprocess.run(parent, start_new_session=True, check=True)
        eventually(lambda: others.own_s() > 0.3)
