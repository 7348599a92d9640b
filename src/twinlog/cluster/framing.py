"""Whole frames from a blocking socket before a deadline."""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

from twinlog.errors import CorruptData

MAX_FRAME_BYTES: Final = 512 * 1024 * 1024
"""An answer is bounded by what we ask for (Fetch: tens of MB); more is not Kafka's protocol."""

_SIZE: Final = struct.Struct(">i")


def receive_frame(
    sock: socket.socket, deadline: float, max_bytes: int = MAX_FRAME_BYTES
) -> memoryview:
    """The next frame without its size, in a buffer of its own; OSError when it does not come."""
    (size,) = _SIZE.unpack(_receive(sock, _SIZE.size, deadline))
    if not 0 <= size <= max_bytes:
        raise CorruptData(
            f"an answer begins with a size of {size} bytes, which is not Kafka's protocol: "
            "is this a TLS listener, or another service?"
        )
    return _receive(sock, size, deadline)


def _receive(sock: socket.socket, size: int, deadline: float) -> memoryview:
    view, got = memoryview(bytearray(size)), 0
    while got < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        count = sock.recv_into(view[got:])
        if not count:
            raise ConnectionResetError("the broker closed the connection")
        got += count
    return view


def reason(error: OSError) -> str:
    """An operating system error in a few words."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    return (error.strerror or str(error) or type(error).__name__).lower()
