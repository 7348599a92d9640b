"""Adds up CPU time and memory of a program and all processes it started, also those that ended.

Who belongs to the program: its descendants, and everything in its session (it is started as a
session leader, so a process whose parent died is still counted).

CPU time of a process that ended is in its parent's "waited-for children" once the parent has waited
for it. A parent that never waits leaves no such trace, so every process is also remembered as it
was last seen. Both sums can only be too small; the larger one is taken.
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
    """What /proc/PID/stat says about one process."""

    pid: int
    parent: int
    session: int
    started_ticks: int
    ended: bool
    """A zombie: its parent has not waited for it yet."""
    own_s: float
    """User and system time of the process itself."""
    waited_s: float
    """User and system time of its ended children, and theirs, for whom it has waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appearance:
    """When a process was first seen, and what it was."""

    pid: int
    at: float
    command: str
    """Of this moment: a process that becomes another program (exec) appears once more."""


def parse_stat(text: str) -> ProcessStat:
    """Read one /proc/PID/stat; the name in parentheses may hold spaces and parentheses."""
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
    """Bytes of the Pss line of a smaps_rollup; 0 for a process that has just ended."""
    match = _PSS_LINE.search(text)
    return int(match[1]) * 1024 if match else 0


def read_processes(proc: Path = _PROC) -> dict[int, ProcessStat]:
    """Every process of this machine that can be read."""
    found = {}
    for entry in os.scandir(proc):
        if not entry.name.isdigit():
            continue
        try:
            stat = parse_stat((proc / entry.name / "stat").read_text())
        except (OSError, IndexError, ValueError):  # it ended while we looked
            continue
        found[stat.pid] = stat
    return found


def members_of(root: int, processes: Mapping[int, ProcessStat]) -> list[ProcessStat]:
    """The process `root`, its descendants, and everything in its session."""
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
    """The processes of one program, observed from outside."""

    def __init__(self, root: int, proc: Path = _PROC) -> None:
        self.root = root
        self.appearances: dict[tuple[int, int, str], Appearance] = {}
        """Every process ever seen, by pid, start time (a pid may be used again) and command."""
        self.peak_pss_bytes = 0
        self._proc = proc
        self._last_seen: dict[tuple[int, int], float] = {}

    def look(self) -> list[ProcessStat]:
        """The members of this moment; call it often, so that short-lived ones are seen."""
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
        """User and system seconds that all members have used since they started."""
        return max(self.sums_s())

    def sums_s(self) -> tuple[float, float]:
        """The same twice: with what parents waited for, and as each one was last seen."""
        members = self.look()
        waited = sum(stat.own_s + stat.waited_s for stat in members)
        return waited, sum(self._last_seen.values())

    def pss_bytes(self) -> int:
        """Proportional set size of all members now: shared pages count once over all sharers."""
        total = sum(self._pss(stat.pid) for stat in self.look())
        self.peak_pss_bytes = max(self.peak_pss_bytes, total)
        return total

    def first_seen(self, *parts: str, nth: int = 1) -> float | None:
        """When the nth process with all `parts` in its command line was first seen."""
        times = sorted(
            seen.at for seen in self.appearances.values() if _has_all(seen.command, parts)
        )
        return times[nth - 1] if len(times) >= nth else None

    def seen_between(self, begin: float, end: float) -> int:
        """How many processes were first seen in this span of `time.monotonic()`."""
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
