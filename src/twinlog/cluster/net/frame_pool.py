"""Buffers for large answers, used again once nobody holds a slice of them.

A fresh buffer of 8 MB costs about a millisecond: a page fault for every 4 KiB, and zeros that the
socket overwrites. That is 0.06 s for each GB that is copied, a twentieth of a lane's CPU.
"""

from __future__ import annotations

from collections import deque
from typing import Final

POOLED_FROM_BYTES: Final = 256 * 1024
"""Smaller buffers come from the heap, which keeps its pages."""

STEP_BYTES: Final = 1024 * 1024
"""Sizes are rounded up to this, so that an answer of about the same size fits again."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""Larger answers are single batches; their buffers are not kept."""

SPARE_BYTES: Final = 2 * STEP_BYTES
"""A larger buffer may not be held by a small answer: what is queued is counted without it."""

MOST_KEPT: Final = 16
"""As many as a backlog keeps busy: one is being filled, the others' batches wait for the target."""


class FramePool:
    """The large buffers of one thread's connections; those that nobody holds are `free_bytes` at
    the most, beside the one that is used next.
    """

    def __init__(self, free_bytes: int) -> None:
        self._free_bytes = free_bytes
        self._kept: deque[bytearray] = deque()

    def take(self, size: int) -> memoryview:
        """A writable buffer of this size; its content is whatever it was before."""
        frame = self._reuse(size)
        if not POOLED_FROM_BYTES <= size <= MOST_BYTES:
            return memoryview(bytearray(size))
        if frame is None:
            frame = bytearray(-(-size // STEP_BYTES) * STEP_BYTES)
            if len(self._kept) == MOST_KEPT:
                self._kept.popleft()  # it goes when its last slice does
            self._kept.append(frame)
        return memoryview(frame)[:size]

    def _reuse(self, size: int) -> bytearray | None:
        """A buffer that fits and that nobody holds; lets go of those too many."""
        found: bytearray | None = None
        free = 0
        for _ in range(len(self._kept)):
            frame = self._kept.popleft()
            if _is_free(frame):
                if found is None and size <= len(frame) <= size + SPARE_BYTES:
                    found = frame
                else:
                    free += len(frame)
                    if free > self._free_bytes:
                        continue
            self._kept.append(frame)
        return found


def _is_free(frame: bytearray) -> bool:
    """Nobody has a view of it: only then Python lets it be resized."""
    try:
        frame.pop()
    except BufferError:
        return False
    frame.append(0)
    return True
