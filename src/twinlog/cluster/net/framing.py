"""Reads whole frames (size and content) from a socket. A read has a deadline, and a maximum time in
which no byte arrives.

`FramePool` has buffers for large responses. A buffer is reused once no slice of it is referenced. A
new buffer of 8 MB costs about a millisecond: a page fault per 4 KiB, and zeros that the socket
overwrites. New buffers would cost 0.06 s for each copied GB, a twentieth of a lane's CPU.

No code returns a buffer to the pool, because slices of it wait in the queues of the copy until the
target has acknowledged them. Instead, the pool checks whether a buffer still has views.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import struct
import time
from collections import deque
from typing import Final

from twinlog.addresses import IoError
from twinlog.errors import CorruptData

MAX_FRAME_BYTES: Final = 512 * 1024 * 1024
"""Maximum size of a response. Requests limit it to tens of MB, so a larger one is not Kafka's."""


class ResponseTimeout(TimeoutError):
    """A response was not complete in time."""

    def __init__(self, got: int, size: int, *, is_silent: bool) -> None:
        """`got` of `size` bytes arrived. `is_silent`: no byte arrived for the permitted time."""
        super().__init__()
        self.got, self.size, self.is_silent = got, size, is_silent

    def why(self, timeout_s: float, silent_s: float, key: str) -> str:
        """Return text with the number of bytes that arrived, and the limit that ended the wait.

        `key` is the configuration key that sets `timeout_s`, or empty if none does.
        """
        arrived = f"{self.got:,} of {self.size:,} bytes arrived" if self.got else "no byte arrived"
        if self.is_silent:
            return f"{arrived}{', and no more for' if self.got else ' for'} {silent_s:.3g} s"
        return f"{arrived} in {timeout_s:.3g} s{f', the limit of {key}' if key else ''}"


_SIZE: Final = struct.Struct(">i")
_TLS_ALERT: Final = b"\x15\x03"


def receive_frame(
    sock: socket.socket,
    deadline: float,
    max_bytes: int = MAX_FRAME_BYTES,
    silent_s: float = math.inf,
) -> memoryview:
    """Return the next frame, without its size, in a new buffer.

    Raises ResponseTimeout if the frame is not complete at `deadline` or if no byte arrives for
    `silent_s`. Raises another OSError if the connection breaks, and CorruptData if the size is
    negative or above `max_bytes`.
    """
    first = bytes(_receive(sock, _SIZE.size, deadline, silent_s))
    (size,) = _SIZE.unpack(first)
    if not 0 <= size <= max_bytes:
        raise CorruptData(_other_service(first, size, max_bytes), code="NOT_KAFKA")
    return _receive(sock, size, deadline, silent_s)


def _other_service(first: bytes, size: int, max_bytes: int) -> str:
    """Return a message about a peer that does not respond as a broker: `first`, the first bytes of
    its response, are not a size.
    """
    if first[:2] == _TLS_ALERT:
        return (
            "it responds with a TLS alert, so it is a TLS listener: set security.protocol to SSL "
            "or SASL_SSL"
        )
    if first == b"HTTP":
        return "it responds like a web server (HTTP), not like a Kafka broker"
    return (
        f"its response begins with {first!r}, which is not the size of a response (it would be "
        f"{size} bytes, the maximum is {max_bytes}), so it does not use Kafka's protocol"
    )


def _receive(sock: socket.socket, size: int, deadline: float, silent_s: float) -> memoryview:
    view, received = memoryview(bytearray(size)), 0
    last_received = time.monotonic()
    sock.setblocking(False)
    while received < size:
        left = min(deadline, last_received + silent_s) - time.monotonic()
        try:
            count = sock.recv_into(view[received:]) if left > 0 else -1
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            # TLS returns bytes only after a whole record, and the record may take longer than
            # `silent_s` to arrive, so any readable byte of the socket shows that the broker is not
            # silent
            count = 0 if is_readable(sock, left) else -1
        else:
            if not count:
                raise ConnectionResetError("the broker closed the connection")
        if count < 0:
            raise ResponseTimeout(received, size, is_silent=last_received + silent_s < deadline)
        received += count
        last_received = time.monotonic()
    return view


def is_readable(sock: socket.socket, timeout_s: float) -> bool:
    """Return True if bytes or the end of the connection arrive within `timeout_s`."""
    # poll instead of select, because file descriptors of a large process may exceed select's limit
    # of 1024
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(max(timeout_s, 0.0) * 1000))


def reason(error: IoError) -> str:
    """Return a short text for one of `IO_ERRORS`, in lower case."""
    if isinstance(error, TimeoutError):
        return "timed out"
    text = error.strerror if isinstance(error, OSError) else None
    return (text or str(error) or type(error).__name__).lower()


POOLED_FROM_BYTES: Final = 256 * 1024
"""Minimum size of a pooled buffer. Smaller ones come from the heap, without new page faults."""

STEP_BYTES: Final = 1024 * 1024
"""Buffer sizes are multiples of this number, so that a buffer fits similar responses."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a pooled buffer. Larger responses, which have a single large batch, are rare."""

SPARE_BYTES: Final = 2 * STEP_BYTES
"""Maximum unused part of a reused buffer. Small, because memory limits count only the response."""

MOST_KEPT: Final = 16
"""Maximum number of buffers. With a backlog, one is filled while all others are in flight."""


class FramePool:
    """The large buffers of one thread's connections. `free_bytes` is the maximum total size of
    unreferenced buffers, without the one that is reused next.
    """

    def __init__(self, free_bytes: int) -> None:
        self._free_bytes = free_bytes
        self._kept: deque[bytearray] = deque()

    def buffer(self, size: int) -> memoryview:
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
        """Return an unreferenced buffer that fits, or None. Drops unreferenced buffers beyond
        `free_bytes`.
        """
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
    """Return True if the buffer has no views. Python permits resizing only without views."""
    try:
        frame.pop()
    except BufferError:
        return False
    frame.append(0)
    return True
