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

MOST_KEPT: Final = 16
"""As many as a backlog keeps busy: one is being filled, the others' batches wait for the target."""

KEPT_AT_REST: Final = 3
"""Of those that nobody holds, once answers are small."""


class FramePool:
    """The large buffers of one connection."""

    def __init__(self) -> None:
        self._kept: deque[bytearray] = deque()

    def take(self, size: int) -> memoryview:
        """A writable buffer of this size; its content is whatever it was before."""
        if not POOLED_FROM_BYTES <= size <= MOST_BYTES:
            if len(self._kept) > KEPT_AT_REST:
                self._rest()
            return memoryview(bytearray(size))
        for _ in range(len(self._kept)):
            frame = self._kept.popleft()
            self._kept.append(frame)
            if len(frame) >= size and _is_free(frame):
                return memoryview(frame)[:size]
        frame = bytearray(-(-size // STEP_BYTES) * STEP_BYTES)
        if len(self._kept) == MOST_KEPT:
            self._kept.popleft()  # it goes when its last slice does
        self._kept.append(frame)
        return memoryview(frame)[:size]

    def _rest(self) -> None:
        while len(self._kept) > KEPT_AT_REST and _is_free(self._kept[0]):
            self._kept.popleft()


def _is_free(frame: bytearray) -> bool:
    """Nobody has a view of it: only then Python lets it be resized."""
    try:
        frame.pop()
    except BufferError:
        return False
    frame.append(0)
    return True
