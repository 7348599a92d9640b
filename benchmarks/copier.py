"""Starts a copier in its own session, observes its processes, and ends all of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.process_tree import ProcessTree, members_of, read_processes

__all__ = ["Copier", "CopierFailed", "Launch", "end_session", "warnings_in"]

_STOP_WITHIN_S = 20.0
_WARNING = re.compile(r"\b(WARN|WARNING|ERROR|CRITICAL)\b")
_LINES = 8
_LINE_LENGTH = 300


class CopierFailed(Exception):
    """A copier ended unexpectedly, or did not finish in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The command and environment of a copier."""

    system: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)


class Copier:
    """A running copier, which is stopped at the end of the `with` block."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.exit_code: int | None = None
        self.stop_s: float | None = None
        with launch.log.open("wb") as log:
            self.started = time.monotonic()
            self._process = subprocess.Popen(
                list(launch.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**_inherited(), **launch.environment},
                # in its own session, so that Ctrl-C does not end it, and orphans can still be found
                start_new_session=True,
            )
        self.tree = ProcessTree(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def check(self) -> None:
        """Raise CopierFailed if the copier has ended."""
        code = self._process.poll()
        if code is not None:
            raise CopierFailed(f"ended by itself with exit code {code}: {self.last_words()}")

    def last_words(self) -> str:
        """Return the end of the copier's output as one line."""
        text = self.launch.log.read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " / ".join(lines[-3:])[-600:] or "it printed nothing"

    def stop(self) -> None:
        """Send SIGTERM, and later SIGKILL to all processes of the session that still run."""
        if self.stop_s is not None:
            return
        began = time.monotonic()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_WITHIN_S)
        self.stop_s = time.monotonic() - began
        end_session(self._process)
        self.exit_code = self._process.returncode


def warnings_in(log: Path) -> list[str]:
    """Return the first lines with WARN or ERROR in a copier's output. Empty if it never started."""
    if not log.exists():
        return []
    lines = log.read_text(errors="replace").splitlines()
    found = [line.strip() for line in lines if _WARNING.search(line)]
    return [line[:_LINE_LENGTH] for line in found[:_LINES]]


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all others of its session by their IDs, until none remains."""
    deadline = time.monotonic() + _STOP_WITHIN_S
    while left := _alive_in_session(process.pid):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise CopierFailed(f"processes {left} cannot be ended")
        time.sleep(0.02)
    process.wait(_STOP_WITHIN_S)


def _alive_in_session(session: int) -> list[int]:
    # orphans of a dead session leader included, because only the copier's processes are in this
    # session
    members = members_of(session, read_processes())
    return [stat.pid for stat in members if stat.session == session and not stat.ended]


def _inherited() -> dict[str, str]:
    # without PYTHONPATH, so that the copier does not import the benchmark's modules
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
