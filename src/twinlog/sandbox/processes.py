"""Processes known by their id alone, so that another process than the starter can end them.

An id may be used again by the system after its process has ended. So every process of ours has a
marker in its command line (a path of its sandbox folder), and no signal is sent to an id whose
command line does not carry it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_POLL_SECONDS = 0.02
_EXEC_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedProcess:
    """A process that is only ever signalled while its command line carries the marker."""

    pid: int
    marker: str

    @property
    def alive(self) -> bool:
        _reap(self.pid)
        return any(self.marker in part for part in _command_line(self.pid))

    def send(self, number: signal.Signals) -> None:
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def freeze(self) -> None:
        """SIGSTOP; none of its threads runs when this returns."""
        self.send(signal.SIGSTOP)
        wait_until(lambda: not self.alive or _is_stopped(self.pid), within=10)

    def end(self, *, patience: float) -> None:
        """SIGTERM, and SIGKILL when that did not end it within `patience` seconds."""
        self.send(signal.SIGCONT)  # a frozen process would never see the SIGTERM
        self.send(signal.SIGTERM)
        if not wait_until(lambda: not self.alive, within=patience):
            self.kill()

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        wait_until(lambda: not self.alive, within=10)


def spawn(command: Sequence[str], *, marker: str, output: Path) -> MarkedProcess:
    """Start a command in a session of its own (a Ctrl-C at our terminal does not reach it)."""
    # posix_spawn rather than Popen: nothing of ours has to outlive us to own the child
    pid = os.posix_spawnp(
        command[0],
        list(command),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, one) for one in _handed_on()),
        ],
        setsid=True,
    )
    return MarkedProcess(pid=pid, marker=marker)


def _handed_on() -> list[int]:
    """Descriptors that our own starter left open for all below it: brokers outlive us, and would
    hold a shell's pipe or lock as long as they run.
    """
    found = []
    for path in Path("/proc/self/fd").iterdir():
        number = int(path.name)
        try:
            if number > 2 and os.get_inheritable(number):
                found.append(number)
        except OSError:  # closed since, as that of the list itself
            continue
    return found


def wait_until(condition: Callable[[], bool], *, within: float) -> bool:
    """Whether the condition came true before the deadline."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _command_line(pid: int) -> list[str]:
    """The command line; empty when there is no such process, or only its zombie."""
    command: list[str] = []

    def settled() -> bool:
        nonlocal command
        try:
            process = psutil.Process(pid)
            command = process.cmdline()
            # empty also for a moment inside exec: only then is it worth another check
            return bool(command) or process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        except psutil.Error:
            command = []
            return True

    wait_until(settled, within=_EXEC_SECONDS)
    return command


def _is_stopped(pid: int) -> bool:
    """Whether all threads are; the signal comes to one after the other."""
    try:
        states = [
            # behind the name, which may hold anything
            (thread / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return False  # a thread has ended meanwhile
    return set(states) <= {"T", "t"}


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # not our child, or gone before
