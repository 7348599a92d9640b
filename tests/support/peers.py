"""Servers in the test's process that behave like brokers or like other services."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Peer = Callable[[socket.socket], None]


@contextmanager
def peer(behave: Peer) -> Iterator[int]:
    """Run a server, and yield its port. `behave` is called for each connection."""
    server = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            taken.append(sock)
            behave(sock)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        for sock in taken:
            sock.close()


def silent(_sock: socket.socket) -> None:
    pass


def closing(sock: socket.socket) -> None:
    sock.recv(1024)
    sock.close()


def saying(data: bytes) -> Peer:
    def behave(sock: socket.socket) -> None:
        sock.recv(1024)
        sock.sendall(data)

    return behave


def api_versions_answer(correlation_id: int) -> bytes:
    """Return an ApiVersions v0 response with a single API (18, versions 0 to 0). It rejects v3, so
    that the client falls back to v0.
    """
    body = struct.pack(">ihihhh", correlation_id, 0, 1, 18, 0, 0)
    return struct.pack(">i", len(body)) + body


def old_broker(sock: socket.socket) -> None:
    """Reject ApiVersions v3 with UNSUPPORTED_VERSION in the layout of v0. Then answer v0 properly
    (KIP-511).
    """
    frame = sock.recv(1024)
    (correlation_id,) = struct.unpack_from(">i", frame, 8)
    refusal = struct.pack(">ihihhh", correlation_id, 35, 1, 18, 0, 0)
    sock.sendall(struct.pack(">i", len(refusal)) + refusal)
    frame = sock.recv(1024)
    api_key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
    assert (api_key, version) == (18, 0)
    sock.sendall(api_versions_answer(correlation_id))


def refusing(sock: socket.socket, *, error: int) -> None:
    """Act as a broker with SASL that answers the handshake with this error, and rejects the
    login.
    """

    def answer(body: bytes) -> None:
        if frame := sock.recv(1024):
            (correlation_id,) = struct.unpack_from(">i", frame, 8)
            sock.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)

    answer(struct.pack(">hi", 35, 0))
    keys = ((18, 0, 0), (17, 1, 1), (36, 1, 1), (3, 4, 4))
    answer(struct.pack(">hi", 0, len(keys)) + b"".join(struct.pack(">hhh", *key) for key in keys))
    answer(struct.pack(">hih", error, 1, 5) + b"PLAIN")
    answer(struct.pack(">hh", 58, 11) + b"wrong login" + struct.pack(">iq", 0, 0))
