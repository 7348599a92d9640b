"""Limits of an HTTP server for open connections (`OpenRequests`) and for slow work
(`RequestWorkers`).

A client that sends a byte now and then could keep a connection open as long as it likes. Each
request therefore has a deadline, from its first byte to the last byte of its response. The pause
until the next request of the same connection also has a deadline. In addition, the number of
connections is limited. If there are too many, the server accepts a new connection and closes the
one that has been idle for longest. If none is idle, it closes the oldest connection with an
incomplete request. Probes and scrapes send their request immediately, so they are not affected. The
limit for each address applies first, so that a client displaces only its own connections.

Slow work runs outside the event loop, a few tasks at a time. Further tasks wait, or are rejected if
too many wait. The threads are daemons, so a mirror that shuts down does not wait for their results.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from twinlog.control.web.problem import RequestRefused

AT_ONCE: Final = 256
MOST_PER_ADDRESS: Final = 128
"""Maximum connections per address. A hundred clients behind one proxy may connect together."""
MOST_IN_USE_PER_ADDRESS: Final = 256
"""Maximum connections per address if none of them can be closed, because all are in use."""
AT_MOST: Final = 512
"""Maximum connections of all addresses together if none of them can be closed."""
WITHIN_S: Final = 10.0
"""Maximum seconds from the first byte of a request, or from accepting the connection, to the last
byte of the response.
"""
IDLE_S: Final = 30
"""Maximum seconds from a response to the next request of the connection."""


class ClosableConnection(Protocol):
    """The part of a socket's interface that is used here."""

    def shutdown(self, how: int, /) -> None: ...


@dataclass(slots=True, kw_only=True)
class _Open:
    connection: ClosableConnection
    address: str
    since: float
    """Monotonic time of the connection's begin, its last request's begin, or its last response."""
    due: float
    is_in_use: bool = False
    """Whether the connection's request was read completely, and is being processed."""
    is_answered: bool = False
    """Whether the response was sent. The connection is then idle, or has just ended."""


class OpenRequests:
    """The connections of one server. Thread-safe, for the accepting and the responding threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[ClosableConnection, _Open] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._open)

    def add(self, connection: ClosableConnection, address: str) -> None:
        """Add a connection. If there are too many, close another one. Ignore a known connection."""
        with self._lock:
            if connection in self._open:
                return
            of_address = [request for request in self._open.values() if request.address == address]
            if len(of_address) >= MOST_PER_ADDRESS:
                self._make_room(of_address)
            elif len(self._open) >= AT_ONCE:
                self._make_room(self._open.values())
            now = self._clock()
            self._open[connection] = _Open(
                connection=connection, address=address, since=now, due=now + WITHIN_S
            )

    def _make_room(self, among: Collection[_Open]) -> None:
        """Close one of these connections. If all of them are in use, close one only at a larger
        limit: the oldest connection of the address with the most connections.
        """
        spare = [request for request in among if request.is_answered or not request.is_in_use]
        if spare:
            self._close(min(spare, key=lambda request: (not request.is_answered, request.since)))
            return
        counts = Counter(request.address for request in among)
        address, count = counts.most_common(1)[0]
        if count >= MOST_IN_USE_PER_ADDRESS or len(self._open) >= AT_MOST:
            asked = (request for request in among if request.address == address)
            self._close(min(asked, key=lambda request: request.since))

    def on_begun(self, connection: ClosableConnection) -> None:
        """Note that the first byte of another request of the connection has arrived."""
        with self._lock:
            if (connection_state := self._open.get(connection)) is not None:
                connection_state.is_in_use = connection_state.is_answered = False
                connection_state.since = self._clock()
                connection_state.due = connection_state.since + WITHIN_S

    def on_request(self, connection: ClosableConnection) -> None:
        """Mark the connection's request as completely read."""
        with self._lock:
            if connection in self._open:
                self._open[connection].is_in_use = True
                self._open[connection].is_answered = False

    def on_answer(self, connection: ClosableConnection) -> None:
        """Mark the response on the connection as sent."""
        with self._lock:
            if (connection_state := self._open.get(connection)) is not None:
                connection_state.is_answered = True
                connection_state.since = self._clock()
                connection_state.due = connection_state.since + IDLE_S

    def allow(self, connection: ClosableConnection, seconds: float) -> None:
        """Extend the deadline to `seconds` from now, for a slow response."""
        with self._lock:
            if connection in self._open:
                self._open[connection].due = self._clock() + seconds

    def remove(self, connection: ClosableConnection) -> None:
        """Remove a connection, which then has no deadline any more. If it stays open, the caller
        must limit the number of such connections.
        """
        with self._lock:
            self._open.pop(connection, None)

    def close_late(self) -> None:
        """Close connections whose deadline has passed."""
        with self._lock:
            now = self._clock()
            for request in [request for request in self._open.values() if request.due <= now]:
                self._close(request)

    def _close(self, request: _Open) -> None:
        del self._open[request.connection]
        with suppress(OSError):  # the connection's thread has closed it already
            # wakes the thread that waits on the socket, which then closes it
            request.connection.shutdown(socket.SHUT_RDWR)


T = TypeVar("T")


class RequestWorkers:
    """Runs slow tasks of one event loop in threads, and limits their number."""

    def __init__(self, at_once: int, at_most: int) -> None:
        """`at_once`: maximum number of running tasks; `at_most`: of running and waiting tasks."""
        self._room = asyncio.Semaphore(at_once)
        self._at_most = at_most
        self._pending = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread. Return its result or raise its error. Raises REST_BUSY if too
        many tasks are waiting. A task keeps its slot until it ends, even if its client disconnects.
        """
        if self._pending >= self._at_most:
            raise RequestRefused(
                "too many requests of this kind are waiting; retry in a few seconds",
                code="REST_BUSY",
            )
        self._pending += 1
        task = asyncio.ensure_future(self._run(work))
        task.add_done_callback(retrieve_error)
        return await asyncio.shield(task)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            async with self._room:
                loop = asyncio.get_running_loop()
                future: asyncio.Future[T] = loop.create_future()

                def finish(done: Callable[[], None]) -> None:
                    if not future.done():
                        done()

                def run() -> None:
                    try:
                        done = partial(future.set_result, work())
                    except BaseException as error:  # noqa: BLE001 (re-raised in the loop)
                        done = partial(future.set_exception, error)
                    with suppress(RuntimeError):  # the loop has ended
                        loop.call_soon_threadsafe(finish, done)

                threading.Thread(target=run, name="twinlog-web-work", daemon=True).start()
                return await future
        finally:
            self._pending -= 1


def retrieve_error(task: asyncio.Future[T]) -> None:
    """Mark a task's error as retrieved, because the client may have disconnected, or the next
    request repeats the task.
    """
    if not task.cancelled():
        task.exception()
