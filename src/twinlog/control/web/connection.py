"""One client connection: h11 parses the requests, and each has one deadline.

uvicorn has no deadline for a request that arrives byte by byte. Each connection is therefore
registered in `OpenRequests` when it is opened, and closed when a deadline passes, whatever its
state. With TLS, it is registered before the handshake. asyncio's server reports a connection only
after the handshake, so any number of connections could wait in a handshake. A request whose
response is cached (`Repeats`) is not parsed by h11, so h11's state does not include that request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import h11  # the parser of H11Protocol
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from twinlog.control.web.content import Headers
from twinlog.control.web.front import LONG_S, ConnectionSlot, Front
from twinlog.control.web.open_requests import WITHIN_S, ClosableConnection, OpenRequests

# Responds to requests that are repeated byte for byte while their response is still cached.
#
# A client that polls sends the same bytes each time. They include host, origin and method, which
# were checked the first time; only the token is checked again. Parsing and processing a request is
# half of the cost of a response (ADR 26). For a repeated request, one dictionary look-up is enough.

REPEATS_AT_MOST: Final = 256
LONGEST_REPEAT: Final = 4096
"""Maximum size in bytes of a request whose response is cached."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """The cached response to a request, for repeats of the request."""

    answer: bytes
    """The whole response with its head."""
    is_current: Callable[[], bool]
    closes: bool
    """Whether the connection is closed after the response, because the request demands it."""


class Repeats:
    """The cached responses of one server, by request. Used only in the thread of its event loop."""

    def __init__(self) -> None:
        self._by_request: dict[bytes, Repeat] = {}

    def find(self, request: bytes) -> Repeat | None:
        """Return the cached response, or None if there is no current one."""
        repeat = self._by_request.get(request)
        if repeat is None or repeat.is_current():
            return repeat
        del self._by_request[request]
        return None

    def keep(self, request: bytes, repeat: Repeat) -> None:
        if len(request) > LONGEST_REPEAT:
            return
        if len(self._by_request) >= REPEATS_AT_MOST:
            self._by_request.clear()  # drop all, because each expires within a second
        self._by_request[request] = repeat


_OK = b"HTTP/1.1 200 OK\r\n"


class RegisteredConnection(H11Protocol):
    """uvicorn's connection, registered in `OpenRequests`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        front: Front,
        requests: OpenRequests,
        repeats: Repeats,
    ) -> None:
        super().__init__(config=config, server_state=server_state, app_state={})
        self._front = front
        self._requests = requests
        self._repeats = repeats
        self._held: ConnectionSlot | None = None
        self._early = b""
        self._whole: bytes | None = b""
        """The current request. Empty between requests, None if it arrives in several pieces."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        socket = transport.get_extra_info("socket")
        self._requests.add(socket, str(peer[0]) if peer else "")
        self._held = ConnectionSlot(
            socket=socket,
            requests=self._requests,
            abort=transport.abort,
            repeat=self._repeat,
        )
        self.app = partial(self._front, slot=self._held)
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self._held is None:
            self._early += data  # these bytes arrived with the end of the handshake
            return
        if self._whole != b"":
            self._whole = None
        elif not self.transport.get_write_buffer_size() and (again := self._repeats.find(data)):
            self._answer_again(self._held.socket, again)
            return
        else:
            # also reached if a client does not read its responses: uvicorn then reads no more of
            # its requests
            self._whole = data
            self._requests.on_begun(self._held.socket)
        if not self.transport.is_closing():
            super().data_received(data)

    def on_response_complete(self) -> None:
        assert self._held is not None  # noqa: S101 (no request comes before)
        if not self.transport.get_write_buffer_size():
            self._requests.on_answer(self._held.socket)
        super().on_response_complete()
        is_between = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        self._whole = b"" if is_between else None
        if not is_between and not self.transport.is_closing():
            # a part of the next request has arrived
            self._requests.on_begun(self._held.socket)

    def _answer_again(self, socket: ClosableConnection, repeat: Repeat) -> None:
        self._unset_keepalive_if_required()  # instead, `OpenRequests` closes idle connections
        self.transport.write(repeat.answer)
        if self.transport.get_write_buffer_size():
            self._requests.on_request(socket)
            self._requests.allow(socket, LONG_S)
        else:
            self._requests.on_answer(socket)
        if repeat.closes:
            self._whole = None
            self.transport.close()

    def _repeat(self, headers: Headers, body: bytes, is_current: Callable[[], bool]) -> None:
        """Cache the response for repeats of this request, while `is_current` returns True."""
        if not self._whole or self.conn.trailing_data[0]:
            return  # the request arrived in several pieces, or with the next one
        closes = self.conn.their_state is h11.MUST_CLOSE
        headers = [*self.server_state.default_headers, *headers]
        if closes:
            headers.append((b"Connection", b"close"))
        head = b"".join(b"%b: %b\r\n" % header for header in headers)
        answer = b"%b%b\r\n%b" % (_OK, head, body)
        self._repeats.keep(self._whole, Repeat(answer, is_current, closes))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._held is not None:
            self._requests.remove(self._held.socket)
            super().connection_lost(exc)


class Handshake(asyncio.Protocol):
    """A connection during its TLS handshake; afterwards the connection from `make` takes over."""

    def __init__(
        self, make: Callable[[], RegisteredConnection], tls: ssl.SSLContext, requests: OpenRequests
    ) -> None:
        self._make, self._tls, self._requests = make, tls, requests
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.pause_reading()  # the first bytes are part of the handshake
        peer = transport.get_extra_info("peername")
        self._requests.add(transport.get_extra_info("socket"), str(peer[0]) if peer else "")
        # the reference keeps the task from being garbage-collected
        self._task = asyncio.ensure_future(self._run(transport))

    async def _run(self, transport: asyncio.Transport) -> None:
        socket, protocol = transport.get_extra_info("socket"), self._make()
        try:
            safe = await asyncio.get_running_loop().start_tls(
                transport, protocol, self._tls, server_side=True, ssl_handshake_timeout=WITHIN_S
            )
        except OSError:  # including ssl.SSLError and TimeoutError
            safe = None
        if safe is None:
            self._requests.remove(socket)
            transport.abort()
        else:
            protocol.connection_made(safe)
