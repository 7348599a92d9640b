"""The mirror process of a drill reports why it ended, and ends with its drill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually
from twinlog.control.drill.rehearsal import MirrorProcess
from twinlog.errors import FlowError
from twinlog.folders import memory_file

ROOT = Path(__file__).parents[3]


def is_over(mirror: MirrorProcess) -> str:
    """Return the mirror's report about its end. Raises AssertionError while the mirror runs."""
    try:
        mirror.check()
    except FlowError as error:
        return str(error)
    raise AssertionError("it runs still")


def test_one_that_ends_by_itself_says_why(tmp_path: Path) -> None:
    mirror = MirrorProcess(tmp_path / "nothing.properties")
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
        "from twinlog.control.drill.rehearsal import MirrorProcess\n"
        "from twinlog.folders import memory_file\n"
        "with memory_file(Path(sys.argv[1]).read_text()) as file:\n"
        "    mirror = MirrorProcess(Path(f'/proc/self/fd/{file}'), pass_fds=(file,))\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", drill, str(file)], cwd=ROOT)
    try:
        (mirror,) = eventually(lambda: psutil.Process(process.pid).children())
        group = eventually(lambda: members(mirror.pid))
        log = Path(f"/proc/{mirror.pid}/fd/1")
        eventually(lambda: "serves" in log.read_text(), what="it runs with its file")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    eventually(lambda: not any(one.is_running() for one in group) and not members(mirror.pid))


def test_a_memory_file_is_there_while_it_is_used_and_has_no_name() -> None:
    text = "sasl.jaas.config = \u00fcber " + "x" * 100_000
    with memory_file(text) as file:
        path = Path(f"/proc/self/fd/{file}")
        assert path.read_text(encoding="utf-8") == path.read_text(encoding="utf-8") == text
        assert not path.resolve().exists()
        assert not os.get_inheritable(file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def members(group: int) -> list[psutil.Process]:
    """Return the processes of a process group."""
    found = []
    for one in psutil.process_iter():
        try:
            if os.getpgid(one.pid) == group:
                found.append(one)
        except ProcessLookupError:
            continue
    return found
