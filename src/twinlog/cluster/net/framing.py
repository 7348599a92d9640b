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
_TLS_ALERT: Final = b"\x15\x03"


def receive_frame(
    sock: socket.socket, deadline: float, max_bytes: int = MAX_FRAME_BYTES
) -> memoryview:
    """The next frame without its size, in a buffer of its own; OSError when it does not come."""
    first = bytes(_receive(sock, _SIZE.size, deadline))
    (size,) = _SIZE.unpack(first)
    if not 0 <= size <= max_bytes:
        raise CorruptData(_other_service(first, size, max_bytes), code="NOT_KAFKA")
    return _receive(sock, size, deadline)


def _other_service(first: bytes, size: int, max_bytes: int) -> str:
    """Who begins an answer with these bytes, where a frame has its size."""
    if first[:2] == _TLS_ALERT:
        return (
            "it answers with an alert of TLS: is this a TLS listener? set security.protocol to SSL "
            "or SASL_SSL"
        )
    if first == b"HTTP":
        return "it answers as a web server does (HTTP): that is not Kafka's protocol"
    return (
        f"its answer begins with {first!r} where a size is due (a size of {size} bytes, at most "
        f"{max_bytes} can be right): that is not Kafka's protocol"
    )


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
