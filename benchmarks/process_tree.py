"""Adds up the CPU time and memory of a program and all processes that it has started, also ended
ones.

A program's processes are its descendants, and all processes in its session. The program is started
as a session leader, so that processes whose parent has died are still counted.

After a process has ended and its parent has waited for it, its CPU time is part of the parent's
"waited-for children". Some parents never wait, so the last observed CPU time of every process is
also stored. Both sums can only be too small, so the larger one is used.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessStat", "ProcessTree", "members_of", "parse_pss", "parse_stat", "read_processes"]

_PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PSS_LINE = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """The data of one process in /proc/PID/stat."""

    pid: int
    parent: int
    session: int
    started_ticks: int
    ended: bool
    """True for a zombie, for which its parent has not waited yet."""
    own_s: float
    """User and system seconds of the process itself."""
    waited_s: float
    """User and system seconds of ended descendants for which the process has waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appearance:
    """The first observation of a process with a certain command line."""

    pid: int
    at: float
    command: str
    """The command line at this time. A process that executes another program (exec) has a second
    Appearance.
    """


def parse_stat(text: str) -> ProcessStat:
    """Parse a /proc/PID/stat. The name in parentheses may contain spaces and parentheses."""
    pid, _, rest = text.partition(" (")
    fields = rest.rpartition(")")[2].split()
    user, system, waited_user, waited_system = (int(field) for field in fields[11:15])
    return ProcessStat(
        pid=int(pid),
        parent=int(fields[1]),
        session=int(fields[3]),
        started_ticks=int(fields[19]),
        ended=fields[0] in {"Z", "X"},
        own_s=(user + system) / _TICKS_PER_SECOND,
        waited_s=(waited_user + waited_system) / _TICKS_PER_SECOND,
    )


def parse_pss(text: bytes) -> int:
    """Return the bytes in the Pss line of a smaps_rollup, or 0 if the process has just ended."""
    match = _PSS_LINE.search(text)
    return int(match[1]) * 1024 if match else 0


def read_processes(proc: Path = _PROC) -> dict[int, ProcessStat]:
    """Return all processes of this machine that can be read, by ID."""
    found = {}
    for entry in os.scandir(proc):
        if not entry.name.isdigit():
            continue
        try:
            stat = parse_stat((proc / entry.name / "stat").read_text())
        except (OSError, IndexError, ValueError):  # the process has ended in the meantime
            continue
        found[stat.pid] = stat
    return found


def members_of(root: int, processes: Mapping[int, ProcessStat]) -> list[ProcessStat]:
    """Return the process `root`, its descendants, and all processes in its session."""
    children: dict[int, list[int]] = {}
    for stat in processes.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    todo = [pid for pid, stat in processes.items() if root in (pid, stat.session)]
    members: dict[int, ProcessStat] = {}
    while todo:
        pid = todo.pop()
        if pid not in members:
            members[pid] = processes[pid]
            todo += children.get(pid, [])
    return list(members.values())


class ProcessTree:
    """Observes the processes of one program from outside."""

    def __init__(self, root: int, proc: Path = _PROC) -> None:
        self.root = root
        self.appearances: dict[tuple[int, int, str], Appearance] = {}
        """All observed processes, by pid, start time (because a pid may be reused) and command."""
        self.peak_pss_bytes = 0
        self._proc = proc
        self._last_seen: dict[tuple[int, int], float] = {}

    def look(self) -> list[ProcessStat]:
        """Return the current processes. Must be called often, so that short-lived ones are
        observed.
        """
        members = members_of(self.root, read_processes(self._proc))
        for stat in members:
            self._last_seen[stat.pid, stat.started_ticks] = stat.own_s
            command = self._command(stat.pid)
            key = stat.pid, stat.started_ticks, command
            if command and key not in self.appearances:
                seen = Appearance(pid=stat.pid, at=time.monotonic(), command=command)
                self.appearances[key] = seen
        return members

    def cpu_s(self) -> float:
        """Return the user and system seconds that all processes have used since their start."""
        return max(self.sums_s())

    def sums_s(self) -> tuple[float, float]:
        """Return the CPU seconds of all processes as two sums: with the waited-for children of
        parents, and from the last observation of each process.
        """
        members = self.look()
        waited = sum(stat.own_s + stat.waited_s for stat in members)
        return waited, sum(self._last_seen.values())

    def pss_bytes(self) -> int:
        """Return the current proportional set size of all processes, in which shared pages count
        once.
        """
        total = sum(self._pss(stat.pid) for stat in self.look())
        self.peak_pss_bytes = max(self.peak_pss_bytes, total)
        return total

    def first_seen(self, *parts: str, nth: int = 1) -> float | None:
        """Return when the nth process with all `parts` in its command line was first observed, or
        None.
        """
        times = sorted(
            seen.at for seen in self.appearances.values() if _has_all(seen.command, parts)
        )
        return times[nth - 1] if len(times) >= nth else None

    def seen_between(self, begin: float, end: float) -> int:
        """Return how many processes were first observed between two times (monotonic)."""
        return len({seen.pid for seen in self.appearances.values() if begin <= seen.at <= end})

    def _command(self, pid: int) -> str:
        try:
            raw = (self._proc / str(pid) / "cmdline").read_bytes()
        except OSError:
            return ""
        return raw.replace(b"\0", b" ").decode(errors="replace").strip()

    def _pss(self, pid: int) -> int:
        try:
            return parse_pss((self._proc / str(pid) / "smaps_rollup").read_bytes())
        except OSError:
            return 0


def _has_all(command: str, parts: Iterable[str]) -> bool:
    return all(part in command for part in parts)
