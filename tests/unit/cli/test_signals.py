"""The first signal requests a clean shutdown. The second signal ends the process immediately."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.eventually import PATIENCE_S
from tests.support.peers import peer
from tests.support.stopwatch import Stopwatch
from twinlog.cli.terminal.signals import on_signals

PROGRAM = """
import sys, threading, time
from twinlog.cli.terminal.signals import on_signals
stop = threading.Event()
with on_signals(lambda _: stop.set()):
    print("ready", flush=True)
    stop.wait()
    print("stopping", flush=True)
    time.sleep(float(sys.argv[1]))
"""


def program(seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_lets_it_end_in_order(number: signal.Signals) -> None:
    with program(0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode) == ("stopping\n", 0)
    assert "a second signal stops immediately" in err


def test_a_second_signal_ends_it_at_once() -> None:
    with program(60) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stopping\n"
        with Stopwatch() as since:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
        assert process.returncode == -signal.SIGINT
        assert since.seconds < 5


def test_a_closed_terminal_ends_no_command_under_nohup() -> None:
    """A command that cannot reload its configuration ignores SIGHUP if nohup started it. A command
    that can reload it still does so.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with on_signals(print):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        with on_signals(print, reload=print):
            assert signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with on_signals(print):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


INTERRUPTED = """
import signal, threading
from twinlog.cli.terminal.signals import on_signals
signal.alarm(60)  # ends this process if it has stopped
reload, stop, said = threading.Event(), threading.Event(), []
def asks(event):
    return lambda name: (said.append(name), event.set())
with on_signals(asks(stop), asks(reload)):
    for event, number in ((reload, signal.SIGHUP), (stop, signal.SIGTERM)):
        with event._cond:  # as in the midst of wait
            signal.raise_signal(number)
        event.wait()
print(*said)
"""


def test_a_signal_in_the_midst_of_a_wait_stops_nothing_permanently() -> None:
    found = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (found.stdout, found.returncode) == ("SIGHUP SIGTERM\n", 0), found.stderr


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Make commands react to SIGINT. Shells let processes in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize("command", ["check", "status", "support-bundle", "verify"])
def test_a_signal_ends_a_command_that_waits_for_a_cluster(command: str, tmp_path: Path) -> None:
    file, is_asked = tmp_path / "mm2.properties", threading.Event()
    with peer(lambda _: is_asked.set()) as port:
        servers = f"bootstrap.servers = 127.0.0.1:{port}"
        file.write_text(f"clusters = A, B\n{servers}\nA->B.enabled = true\n")
        with Command(tmp_path / command, command, str(file)) as waiting:
            assert is_asked.wait(PATIENCE_S)
            with Stopwatch() as since:
                waiting.process.send_signal(signal.SIGINT)
                assert waiting.wait() == 130, waiting.stderr
    assert since.seconds < 5
