"""A port that leads nowhere until it is opened to a cluster."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["Forwarder", "accept"]


class Forwarder:
    """Passes connections on; for bootstrap, since brokers then name their own addresses."""

    def __init__(self, port: int) -> None:
        self._port = port

    @contextmanager
    def open_to(self, bootstrap: str) -> Iterator[None]:
        host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
        listener = socket.create_server(("127.0.0.1", self._port))
        thread = threading.Thread(target=accept, args=(listener, host, int(port)), daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(5)


def accept(listener: socket.socket, host: str, port: int) -> None:
    """Pass on what comes in, until the listener is closed."""
    with suppress(OSError):  # it was closed
        while True:
            near, _ = listener.accept()
            far = socket.create_connection((host, port))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
