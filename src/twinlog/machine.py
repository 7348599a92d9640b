"""Number of cores and memory that this process can use: those of the machine, or a cgroup's limits.

Every cgroup from the process's own up to the root can have a limit, and the lowest limit applies.
In a container, `/proc/self/cgroup` contains `0::/`, and the container's limits are at the root of
the mounted file system.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")


def usable_cores(root: Path = ROOT, own_cgroup: Path = OWN) -> int:
    """Return the number of cores that this process can use, rounded up."""
    cores = float(len(os.sched_getaffinity(0)))
    for limit in _limits("cpu.max", root, own_cgroup):
        quota, _, period = limit.partition(" ")
        if quota.isdecimal() and period.isdecimal():
            cores = min(cores, int(quota) / int(period))
    return max(1, math.ceil(cores))


def memory_limit(root: Path = ROOT, own_cgroup: Path = OWN) -> int | None:
    """Return the cgroup's memory limit in bytes, or None. (The kernel kills processes above it.)"""
    limits = [int(limit) for limit in _limits("memory.max", root, own_cgroup) if limit.isdecimal()]
    return min(limits, default=None)


def _limits(name: str, root: Path, own_cgroup: Path) -> Iterator[str]:
    """Yield the limit `name` of this process's cgroup and its parents that have one (version 2)."""
    try:
        lines = own_cgroup.read_text().splitlines()
    except OSError:
        return
    path = next((line[3:] for line in lines if line.startswith("0::")), "/")
    group = root / path.lstrip("/")
    for folder in (group, *group.parents):
        if folder.is_relative_to(root) and (folder / name).is_file():
            yield (folder / name).read_text().strip()
