"""The process of a drill's mirror: it says why it ended, and ends with its drill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.eventually import eventually
from twinlog.control.drill.mirror_process import MirrorProcess
from twinlog.errors import FlowError

ROOT = Path(__file__).parents[3]


def is_over(mirror: MirrorProcess) -> str:
    """What it says of its end, once it has ended."""
    try:
        mirror.check()
    except FlowError as error:
        return str(error)
    raise AssertionError("it runs still")


def test_one_that_ends_by_itself_says_why(tmp_path: Path) -> None:
    mirror = MirrorProcess(tmp_path / "nothing.properties", tmp_path)
    said = eventually(lambda: is_over(mirror))
    assert "[DRILL_FAILED]" in said
    assert "nothing.properties: no such file" in said
    mirror.kill()
    mirror.check()


def test_it_ends_when_its_drill_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:1\n"
        "A->B.enabled = true\n"
    )
    drill = (
        "import sys, time; from pathlib import Path\n"
        "from twinlog.control.drill.mirror_process import MirrorProcess\n"
        "MirrorProcess(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", drill, str(file), str(tmp_path)], cwd=ROOT)
    try:
        (mirror,) = eventually(lambda: psutil.Process(process.pid).children())
        group = eventually(lambda: members(mirror.pid))
        eventually(lambda: (tmp_path / "mirror.log").stat().st_size, what="it runs")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    eventually(lambda: not any(one.is_running() for one in group) and not members(mirror.pid))


def members(group: int) -> list[psutil.Process]:
    """Processes of a process group."""
    found = []
    for one in psutil.process_iter():
        try:
            if os.getpgid(one.pid) == group:
                found.append(one)
        except ProcessLookupError:
            continue
    return found
