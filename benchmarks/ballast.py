"""Memory that is there when a run needs it: held before the run, let go in step with its growth.

A virtual machine may have given its free memory back to its host, and get it again page by page at
the first touch. That costs far more than all the rest of a write into the page cache (measured:
2.5 s of CPU a GB, against 0.4 s once the memory is there), falls to whichever run touches a page
first, and is charged to brokers. So a process takes what a run will need before the run begins, and
lets a little of it go whenever the machine's free memory has become less: what the kernel gives out
next is what was freed last. Where memory is always there, this changes nothing.
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
"""So much is free, beyond what was free at the beginning, before it is needed."""
_LOOK_S: Final = 0.02
_MEMORY: Final = Path("/proc/meminfo")
_READY: Final = b"held\n"


class Ballast:
    """A process that holds memory until this block ends; nothing where there is too little."""

    def __init__(self, size: int) -> None:
        self.size = size if size * 2 < available_bytes() else 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process that holds it; None where there is too little to hold any."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        if self.size:
            command = [sys.executable, "-m", "benchmarks.ballast", str(self.size)]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._process.stdout is not None
            if self._process.stdout.readline() != _READY:  # no reason to end a benchmark
                self.size = 0
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()  # the end of its input ends it


def available_bytes() -> int:
    """What could be had without swapping; 0 where the system does not say."""
    return _bytes("MemAvailable")


def in_step(free_at_first: int, free_now: int, released: int) -> int:
    """How many bytes must have been let go by now."""
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
    """Memory that is really there, because every page of it was written to; in huge pages where
    the kernel has them, or letting it go would take CPU from the copy that is measured.
    """
    chunk = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        chunk.madvise(mmap.MADV_HUGEPAGE)
    with Path("/dev/zero").open("rb", buffering=0) as zeros:
        while zeros.readinto(chunk) != CHUNK:  # a signal may cut it short
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
