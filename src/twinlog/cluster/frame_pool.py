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

KEPT: Final = 3
"""One that is being filled, and those whose batches are on their way to the target."""


class FramePool:
    """The large buffers of one connection."""

    def __init__(self) -> None:
        self._kept: deque[bytearray] = deque()

    def take(self, size: int) -> memoryview:
        """A writable buffer of this size; its content is whatever it was before."""
        if not POOLED_FROM_BYTES <= size <= MOST_BYTES:
            return memoryview(bytearray(size))
        for _ in range(len(self._kept)):
            frame = self._kept.popleft()
            if len(frame) >= size and _is_free(frame):
                self._kept.append(frame)
                return memoryview(frame)[:size]
            self._kept.append(frame)
        frame = bytearray(-(-size // STEP_BYTES) * STEP_BYTES)
        if len(self._kept) == KEPT:
            self._kept.popleft()  # it goes when its last slice does
        self._kept.append(frame)
        return memoryview(frame)[:size]


def _is_free(frame: bytearray) -> bool:
    """Nobody has a view of it: only then Python lets it be resized."""
    try:
        frame.pop()
    except BufferError:
        return False
    frame.append(0)
    return True
