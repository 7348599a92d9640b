"""Clients that poll a mirror's flows every two seconds, like open pages."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final, Self

__all__ = ["EVERY_S", "Polling"]

EVERY_S: Final = 2.0
"""Polling interval of the page, in seconds."""
GIVEN_UP_S: Final = 30.0
STOPPED_WITHIN_S: Final = 0.2


@dataclass(slots=True, eq=False)
class _Request:
    due: float
    socket: socket.socket | None = None
    answer: bytes = b""


class Polling:
    """Many polling clients in one thread, which parses no response and only wakes for requests."""

    def __init__(self, port: int, clients: int) -> None:
        self._port = port
        began = time.monotonic()
        self._waiting = deque(_Request(began + EVERY_S * n / clients) for n in range(clients))
        """Requests in the order of their due times, because all clients have the same interval."""
        self._open: dict[_Request, None] = {}
        """Requests without a complete response, the oldest first."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answered = 0
        self.refused = 0
        """Number of requests without a response or with a status other than 200. They occur only
        before the mirror serves.
        """
        self.cores = 0.0
        """CPU seconds per second of the clients. Set at the end."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        asked = (
            f"GET /api/v1/flows HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            "Connection: close\r\n\r\n"
        ).encode()
        began = time.monotonic()
        with selectors.DefaultSelector() as selector:
            while not self._stop.is_set():
                now = time.monotonic()
                while self._waiting and self._waiting[0].due <= now:
                    self._ask(self._waiting.popleft(), asked, selector)
                while self._open and (oldest := next(iter(self._open))).due + GIVEN_UP_S < now:
                    self._end(oldest, selector)
                due = self._waiting[0].due if self._waiting else now + STOPPED_WITHIN_S
                for key, _ in selector.select(min(max(due - now, 0), STOPPED_WITHIN_S)):
                    self._read(key.data, selector)
            for one in self._open:
                if one.socket is not None:
                    one.socket.close()
        self.cores = time.thread_time() / (time.monotonic() - began)

    def _ask(self, one: _Request, asked: bytes, selector: selectors.BaseSelector) -> None:
        self._open[one] = None
        try:
            one.socket = socket.socket()
            one.socket.connect(("127.0.0.1", self._port))
            one.socket.sendall(asked)
        except OSError:
            self._end(one, selector)
            return
        one.socket.setblocking(False)
        selector.register(one.socket, selectors.EVENT_READ, one)

    def _read(self, one: _Request, selector: selectors.BaseSelector) -> None:
        assert one.socket is not None
        try:
            part = one.socket.recv(1 << 16)
        except OSError:
            part = b""
        one.answer += part
        if not part:
            self._end(one, selector)

    def _end(self, one: _Request, selector: selectors.BaseSelector) -> None:
        if one.answer.startswith(b"HTTP/1.1 200 "):
            self.answered += 1
        else:
            self.refused += 1
        if one.socket is not None:
            if one.socket in selector.get_map():
                selector.unregister(one.socket)
            one.socket.close()
        del self._open[one]
        one.socket, one.answer, one.due = None, b"", max(one.due + EVERY_S, time.monotonic())
        self._waiting.append(one)
