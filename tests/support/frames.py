"""Frames of Kafka's protocol on a connection: each has its size and then that many bytes."""

from __future__ import annotations

import socket
import struct

__all__ = ["read_frame", "send_frame"]


def read_frame(peer: socket.socket) -> bytearray:
    """Return the next frame without its size. Raises EOFError at the end of the connection."""
    (size,) = struct.unpack(">i", _exactly(peer, 4))
    return _exactly(peer, size)


def send_frame(peer: socket.socket, frame: bytes | bytearray) -> None:
    """Send a frame with its size."""
    peer.sendall(struct.pack(">i", len(frame)) + frame)


def _exactly(peer: socket.socket, size: int) -> bytearray:
    found = bytearray()
    while len(found) < size:
        part = peer.recv(size - len(found))
        if not part:
            raise EOFError
        found += part
    return found
