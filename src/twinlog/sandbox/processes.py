"""Processes that are identified by ID and marker, so that any process can end them, not only their
parent.

The system may reuse an ID after the process has ended. So every process has a marker in its command
line: a path in its sandbox folder. A signal is sent only if the command line of the ID has the
marker.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_POLL_SECONDS = 0.02
_EXEC_SECONDS = 1.0

NO_PROCESS = 0
"""Used instead of a process ID before a process is started. Such a MarkedProcess is not alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedProcess:
    """A process, to which signals are sent only if its command line has the marker."""

    pid: int
    marker: str

    @property
    def alive(self) -> bool:
        if self.pid == NO_PROCESS:
            return False
        _reap(self.pid)
        return any(self.marker in part for part in _command_line(self.pid))

    def send(self, number: signal.Signals) -> None:
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def freeze(self) -> None:
        """Send SIGSTOP, and wait until all threads are stopped."""
        self.send(signal.SIGSTOP)
        wait_until(lambda: not self.alive or _is_stopped(self.pid), within=10)

    def end(self, *, patience: float) -> None:
        """Send SIGTERM, and then SIGKILL if the process does not end within `patience` seconds."""
        self.send(signal.SIGCONT)  # a stopped process would not handle SIGTERM
        self.send(signal.SIGTERM)
        if not wait_until(lambda: not self.alive, within=patience):
            self.kill()

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        wait_until(lambda: not self.alive, within=10)


def spawn(command: Sequence[str], *, marker: str, output: Path) -> MarkedProcess:
    """Start a command in its own session, so that a Ctrl-C on this terminal does not end it."""
    # posix_spawn instead of Popen, because no object of this process needs to own the child
    pid = os.posix_spawnp(
        command[0],
        list(command),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable_fds()),
        ],
        setsid=True,
    )
    return MarkedProcess(pid=pid, marker=marker)


def _inheritable_fds() -> list[int]:
    """Return the inheritable file descriptors of this process, to close them in a child. Brokers
    may outlive this process, and would otherwise keep a shell's pipe or lock open.
    """
    descriptors = []
    for path in Path("/proc/self/fd").iterdir():
        number = int(path.name)
        try:
            if number > 2 and os.get_inheritable(number):
                descriptors.append(number)
        except OSError:  # already closed, like the descriptor that was used to list this folder
            continue
    return descriptors


def wait_until(condition: Callable[[], bool], *, within: float) -> bool:
    """Wait until the condition is true. Returns False if it is not true within `within` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _command_line(pid: int) -> list[str]:
    """Return a process's command line, or [] if the process does not exist or is a zombie."""
    command: list[str] = []

    def settled() -> bool:
        nonlocal command
        try:
            process = psutil.Process(pid)
            command = process.cmdline()
            # the command line is also empty for a moment during exec, so wait until it is not
            return bool(command) or process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        except psutil.Error:
            command = []
            return True

    wait_until(settled, within=_EXEC_SECONDS)
    return command


def _is_stopped(pid: int) -> bool:
    """Return True if all threads are stopped. A signal stops them one after the other."""
    try:
        states = [
            # the state is the first field after the name, which may contain any characters
            (thread / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return False  # a thread has ended since the folder was listed
    return set(states) <= {"T", "t"}


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # not a child of this process, or already reaped
