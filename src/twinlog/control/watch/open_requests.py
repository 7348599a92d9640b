"""The connections that an HTTP server has open: how many, for how long, and which one has to go.

A client that sends a byte now and then can hold a connection open for as long as it may, so age and
number are bounded here, whatever a connection's own timeout says. When there are too many, a
newcomer is served and the oldest one that has not said its request yet is closed: probes and
scrapes say theirs at once. The bound for each address comes first, so that one client takes places
from itself alone.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

AT_ONCE: Final = 64
OF_AN_ADDRESS: Final = 32
WITHIN_S: Final = 10.0
"""From the connection to the last byte of the answer."""


@dataclass(slots=True, kw_only=True)
class _Open:
    connection: socket.socket
    address: str
    since: float
    is_asked: bool = False
    """Its request was read whole: it is being answered."""


class OpenRequests:
    """All of one server, for its accepting thread and those that answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[socket.socket, _Open] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._open)

    def add(self, connection: socket.socket, address: str) -> None:
        """A newcomer; others may be closed for it."""
        with self._lock:
            of_address = [one for one in self._open.values() if one.address == address]
            if len(of_address) >= OF_AN_ADDRESS:
                self._close(_first_to_go(of_address))
            elif len(self._open) >= AT_ONCE:
                self._close(_first_to_go(self._open.values()))
            self._open[connection] = _Open(
                connection=connection, address=address, since=self._clock()
            )

    def asked(self, connection: socket.socket) -> None:
        """Its request was read."""
        with self._lock:
            if connection in self._open:
                self._open[connection].is_asked = True

    def remove(self, connection: socket.socket) -> None:
        """It is over."""
        with self._lock:
            self._open.pop(connection, None)

    def close_late(self) -> None:
        """Close what has had its time."""
        with self._lock:
            limit = self._clock() - WITHIN_S
            for one in [one for one in self._open.values() if one.since <= limit]:
                self._close(one)

    def _close(self, one: _Open) -> None:
        del self._open[one.connection]
        with suppress(OSError):  # its own thread was faster
            # wakes the thread that waits for it, which then closes it
            one.connection.shutdown(socket.SHUT_RDWR)


def _first_to_go(found: Iterable[_Open]) -> _Open:
    return min(found, key=lambda one: (one.is_asked, one.since))
