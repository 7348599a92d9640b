"""Reserves memory before a run, and frees it step by step as the run needs memory.

A virtual machine may have returned its free memory to its host, and then gets each page again at
the first access. This costs far more than the rest of a write into the page cache: 2.5 s of CPU per
GB were measured, but 0.4 s if the machine already has the memory. The run that first accesses a
page pays for it, and the time is charged to brokers. So a process allocates the memory of a run
before the run begins, and frees a part of it whenever the machine's free memory shrinks, because
the kernel first reuses the memory that was freed last. On a machine that always has its memory,
this has no effect.
"""

from __future__ import annotations

import mmap
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

__all__ = ["Ballast", "available_bytes", "in_step"]

CHUNK: Final = 32 * 2**20
AHEAD: Final = 96 * 2**20
"""Bytes that are freed in advance, in addition to those that were free at the beginning."""
_LOOK_S: Final = 0.02
_MEMORY: Final = Path("/proc/meminfo")
_READY: Final = b"held\n"


class Ballast:
    """A process that reserves memory until the block ends. Does nothing if the machine has too
    little.
    """

    def __init__(self, size: int) -> None:
        self.size = size if size * 2 < available_bytes() else 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """ID of the process that reserves the memory, or None if there is none."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        if self.size:
            command = [sys.executable, "-m", "benchmarks.ballast", str(self.size)]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._process.stdout is not None
            if self._process.stdout.readline() != _READY:  # a benchmark also runs without a reserve
                self.size = 0
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()  # closes its input, which ends the process


def available_bytes() -> int:
    """Return the bytes that are available without swapping, or 0 if the system does not report
    them.
    """
    return _bytes("MemAvailable")


def in_step(free_at_first: int, free_now: int, released: int) -> int:
    """Return how many bytes must have been freed by now."""
    taken_by_others = free_at_first - (free_now - released)
    return taken_by_others + AHEAD


def _bytes(name: str) -> int:
    if not _MEMORY.exists():
        return 0
    for line in _MEMORY.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _chunk() -> mmap.mmap:
    """Return a chunk of memory, of which every page was written to, so that the machine really has
    it. Uses huge pages if the kernel supports them, because freeing small pages would take CPU from
    the measured copy.
    """
    chunk = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        chunk.madvise(mmap.MADV_HUGEPAGE)
    with Path("/dev/zero").open("rb", buffering=0) as zeros:
        while zeros.readinto(chunk) != CHUNK:  # a signal may interrupt the read
            pass
    return chunk


def _hold(size: int) -> None:
    with ThreadPoolExecutor() as cores:
        chunks = list(cores.map(lambda _: _chunk(), range(0, size, CHUNK)))
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    free_at_first, released = _bytes("MemFree"), 0
    while chunks and not select.select([sys.stdin], [], [], _LOOK_S)[0]:
        wanted = in_step(free_at_first, _bytes("MemFree"), released)
        while chunks and released < wanted:
            chunks.pop().close()
            released += CHUNK
    sys.stdin.buffer.read()


if __name__ == "__main__":
    _hold(int(sys.argv[1]))
