"""A port that accepts no connections until it is opened to a cluster, which may be distant."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["Forwarder", "accept"]


class Forwarder:
    """Forwards connections to a cluster. Clients use the port only for bootstrapping, because
    brokers then return their own addresses.

    With a delay, bytes arrive that much later in both directions.
    """

    def __init__(self, port: int, *, delay_s: float = 0.0) -> None:
        self._port = port
        self._delay_s = delay_s

    @contextmanager
    def open_to(self, bootstrap: str) -> Iterator[None]:
        host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
        listener = socket.create_server(("127.0.0.1", self._port))
        thread = threading.Thread(target=accept, args=(listener, host, int(port), self._delay_s))
        thread.daemon = True
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(5)


def accept(listener: socket.socket, host: str, port: int, delay_s: float = 0.0) -> None:
    """Forward connections until the listener is closed."""
    with suppress(OSError):  # the listener was closed
        while True:
            near, _ = listener.accept()
            far = socket.create_connection((host, port))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=(one, other, delay_s), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket, delay_s: float) -> None:
    on_the_way = queue.SimpleQueue[tuple[float, bytes]]()
    threading.Thread(target=_arrive, args=(on_the_way, other), daemon=True).start()
    with suppress(OSError):
        while data := one.recv(1 << 16):
            on_the_way.put((time.monotonic() + delay_s, data))
        on_the_way.put((time.monotonic() + delay_s, b""))


def _arrive(on_the_way: queue.SimpleQueue[tuple[float, bytes]], other: socket.socket) -> None:
    with suppress(OSError):
        while (arrived := on_the_way.get())[1]:
            time.sleep(max(0.0, arrived[0] - time.monotonic()))  # the delay of the link
            other.sendall(arrived[1])
        other.shutdown(socket.SHUT_WR)
