"""The connections that an HTTP server has open: how many, for how long, and which one has to go.

A client that sends a byte now and then can hold a connection open for as long as it may, so age and
number are bounded here, whatever a connection's own timeout says. When there are too many, a
newcomer is served and one that has its answer is closed, or else the oldest one that has not said
its request yet: probes and scrapes say theirs at once. The bound for each address comes first, so
that one client takes places from itself alone.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

AT_ONCE: Final = 256
OF_AN_ADDRESS: Final = 128
"""A hundred clients behind one proxy may come in one moment."""
ASKED_OF_AN_ADDRESS: Final = 256
"""Those that are being answered included."""
AT_MOST: Final = 512
"""The same of all."""
WITHIN_S: Final = 10.0
"""From the connection to the last byte of the answer."""


class ClosableConnection(Protocol):
    """What is needed of a socket; that of an event loop's transport will do."""

    def shutdown(self, how: int, /) -> None: ...


@dataclass(slots=True, kw_only=True)
class _Open:
    connection: ClosableConnection
    address: str
    since: float
    due: float
    is_asked: bool = False
    """Its request was read whole: it is being answered."""
    is_answered: bool = False
    """It has its answer, and says nothing new yet, or its end was not noticed yet."""


class OpenRequests:
    """All of one server, for its accepting thread and those that answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[ClosableConnection, _Open] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._open)

    def add(self, connection: ClosableConnection, address: str) -> None:
        """A newcomer; others may be closed for it. Whoever is here already keeps its time."""
        with self._lock:
            if connection in self._open:
                return
            of_address = [one for one in self._open.values() if one.address == address]
            if len(of_address) >= OF_AN_ADDRESS:
                self._make_room(of_address)
            elif len(self._open) >= AT_ONCE:
                self._make_room(self._open.values())
            now = self._clock()
            self._open[connection] = _Open(
                connection=connection, address=address, since=now, due=now + WITHIN_S
            )

    def _make_room(self, among: Collection[_Open]) -> None:
        """Who has said its request is closed only where there are far too many, and then one of the
        address that has most.
        """
        spare = [one for one in among if one.is_answered or not one.is_asked]
        if spare:
            self._close(min(spare, key=lambda one: (not one.is_answered, one.since)))
            return
        counts = Counter(one.address for one in among)
        address, count = counts.most_common(1)[0]
        if count >= ASKED_OF_AN_ADDRESS or len(self._open) >= AT_MOST:
            asked = (one for one in among if one.address == address)
            self._close(min(asked, key=lambda one: one.since))

    def asked(self, connection: ClosableConnection) -> None:
        """Its request was read, body and all."""
        with self._lock:
            if connection in self._open:
                self._open[connection].is_asked = True
                self._open[connection].is_answered = False

    def answered(self, connection: ClosableConnection) -> None:
        """All of the answer was sent."""
        with self._lock:
            if connection in self._open:
                self._open[connection].is_answered = True

    def allow(self, connection: ClosableConnection, seconds: float) -> None:
        """Its answer takes long, and may: so many seconds from now."""
        with self._lock:
            if connection in self._open:
                self._open[connection].due = self._clock() + seconds

    def remove(self, connection: ClosableConnection) -> None:
        """It is over."""
        with self._lock:
            self._open.pop(connection, None)

    def close_late(self) -> None:
        """Close what has had its time."""
        with self._lock:
            now = self._clock()
            for one in [one for one in self._open.values() if one.due <= now]:
                self._close(one)

    def _close(self, one: _Open) -> None:
        del self._open[one.connection]
        with suppress(OSError):  # its own thread was faster
            # wakes the thread that waits for it, which then closes it
            one.connection.shutdown(socket.SHUT_RDWR)
