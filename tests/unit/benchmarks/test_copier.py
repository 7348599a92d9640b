"""A copier is started alone, is observed, and is ended with all processes that it has started."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from benchmarks.copier import Copier, CopierFailed, Launch, warnings_in
from benchmarks.process_tree import members_of, read_processes

# a program that ignores SIGTERM and leaves a child process
STUBBORN = (
    "import signal, subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print('ready', flush=True)\n"
    "{}\n"
    "time.sleep(60)\n"
)


def launch(folder: Path, code: str) -> Launch:
    return Launch(system="test", command=[sys.executable, "-c", code], log=folder / "log")


def wait_ready(copier: Copier) -> None:
    deadline = time.monotonic() + 20
    while "ready" not in copier.last_words():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nothing_of_its_session_outlives_it(tmp_path: Path) -> None:
    with Copier(launch(tmp_path, STUBBORN.format("pass"))) as copier:
        wait_ready(copier)
        copier.check()
        root = copier.tree.root
        assert len(members_of(root, read_processes())) == 2
    left = [stat for stat in read_processes().values() if stat.session == root and not stat.ended]
    assert left == []
    assert copier.exit_code == -15
    assert copier.stop_s is not None


def test_one_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.copier._STOP_WITHIN_S", 0.5)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN)\nprint('ready', flush=True)\n"
    with Copier(launch(tmp_path, code + "time.sleep(60)")) as copier:
        wait_ready(copier)
    assert copier.exit_code == -9


def test_its_warnings_are_kept(tmp_path: Path) -> None:
    code = "print('INFO fine'); print('12:00 WARNING slow'); print('x ERROR bad'); print('ready')"
    with Copier(launch(tmp_path, code)) as copier:
        wait_ready(copier)
    assert warnings_in(copier.launch.log) == ["12:00 WARNING slow", "x ERROR bad"]


def test_one_that_ended_by_itself_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with Copier(launch(tmp_path, "print('no such topic'); raise SystemExit(3)")) as copier:
        deadline = time.monotonic() + 20
        with pytest.raises(CopierFailed, match="exit code 3: no such topic"):
            while time.monotonic() < deadline:
                copier.check()
                time.sleep(0.01)
