"""Buffers for large responses. They are reused once no slice of them is referenced.

A new buffer of 8 MB costs about a millisecond, for a page fault per 4 KiB and for zeros that the
socket overwrites. That would be 0.06 s for each copied GB, a twentieth of a lane's CPU.

No code returns a buffer to the pool, because slices of it wait in the queues of the copy until the
target has acknowledged them. Instead, the pool checks whether a buffer still has views.
"""

from __future__ import annotations

from collections import deque
from typing import Final

POOLED_FROM_BYTES: Final = 256 * 1024
"""Smaller buffers are allocated from the heap, which keeps its pages."""

STEP_BYTES: Final = 1024 * 1024
"""Sizes are rounded up to a multiple of this, so that a buffer fits the next similar response."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""Larger responses are single large batches. Their buffers are not kept."""

SPARE_BYTES: Final = 2 * STEP_BYTES
"""Maximum unused part of a buffer. Limits of memory count only the response in it."""

MOST_KEPT: Final = 16
"""Number used by a copy with a backlog: one is filled while batches in the others are in flight."""


class FramePool:
    """The large buffers of one thread's connections. Unreferenced ones have at most `free_bytes`
    together, without the one that is used next.
    """

    def __init__(self, free_bytes: int) -> None:
        self._free_bytes = free_bytes
        self._kept: deque[bytearray] = deque()

    def take(self, size: int) -> memoryview:
        """Return a writable buffer of this size, with arbitrary content."""
        frame = self._reuse(size)
        if not POOLED_FROM_BYTES <= size <= MOST_BYTES:
            return memoryview(bytearray(size))
        if frame is None:
            frame = bytearray(-(-size // STEP_BYTES) * STEP_BYTES)
            if len(self._kept) == MOST_KEPT:
                self._kept.popleft()  # Python frees it together with its last slice
            self._kept.append(frame)
        return memoryview(frame)[:size]

    def _reuse(self, size: int) -> bytearray | None:
        """Return an unreferenced buffer that fits, or None. Drops surplus ones."""
        reused: bytearray | None = None
        free = 0
        for _ in range(len(self._kept)):
            frame = self._kept.popleft()
            if _is_free(frame):
                if reused is None and size <= len(frame) <= size + SPARE_BYTES:
                    reused = frame
                else:
                    free += len(frame)
                    if free > self._free_bytes:
                        continue
            self._kept.append(frame)
        return reused


def _is_free(frame: bytearray) -> bool:
    """Return whether it has no views. Python allows resizing it only then."""
    try:
        frame.pop()
    except BufferError:
        return False
    frame.append(0)
    return True
