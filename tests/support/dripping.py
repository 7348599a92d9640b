"""Clients that occupy a web server's connections by sending very slowly."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from twinlog.addresses import Address

DRIP_S = 0.5


class Drippers:
    """Clients that send a request's headers byte by byte. They reconnect when the server closes
    them.
    """

    def __init__(self, address: Address, number: int) -> None:
        self._address = address
        self._number = number
        self.connections: list[socket.socket] = []
        self.rounds = self.closed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        for one in self.connections:
            one.close()

    def _connect(self) -> None:
        connection = socket.create_connection(self._address)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        connection.setblocking(False)
        self.connections.append(connection)

    def _run(self) -> None:
        while not self._stop.wait(DRIP_S):
            for one in list(self.connections):
                try:
                    one.send(b"a")
                    is_open = one.recv(1) != b""
                except BlockingIOError:
                    is_open = True
                except OSError:
                    is_open = False
                if not is_open:
                    self.closed += 1
                    self.connections.remove(one)
                    one.close()
            with suppress(OSError):
                while len(self.connections) < self._number and not self._stop.is_set():
                    self._connect()
            self.rounds += 1


@contextmanager
def dripping(address: Address, number: int) -> Iterator[Drippers]:
    drippers = Drippers(address, number)
    drippers.start()
    try:
        yield drippers
    finally:
        drippers.stop()
