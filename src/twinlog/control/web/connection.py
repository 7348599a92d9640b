"""One connection of a client: h11 reads the request, one deadline bounds it whole.

uvicorn has no deadline for a request that comes byte by byte, so each connection is entered in
`OpenRequests` when it is made, and closed when its time is over, whatever it does. With TLS it is
entered before the handshake: asyncio's own server reports a connection only behind it, and any
number could wait there.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from twinlog.control.web.front import ConnectionSlot, Front
from twinlog.control.web.open_requests import WITHIN_S, OpenRequests


class CountedConnection(H11Protocol):
    """uvicorn's, with a place among those that are open."""

    def __init__(
        self, config: Config, server_state: ServerState, front: Front, requests: OpenRequests
    ) -> None:
        super().__init__(config=config, server_state=server_state, app_state={})
        self._front = front
        self._requests = requests
        self._held: ConnectionSlot | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        socket = transport.get_extra_info("socket")
        self._requests.add(socket, str(peer[0]) if peer else "")
        held = self._held = ConnectionSlot(
            socket=socket, requests=self._requests, abort=transport.abort
        )

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await self._front(scope, receive, send, held)
            if not transport.get_write_buffer_size():
                held.answered()

        self.app = app
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self._held is None:
            self._early += data  # came with the end of the handshake
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._held is not None:
            self._requests.remove(self._held.socket)
            super().connection_lost(exc)


class Handshake(asyncio.Protocol):
    """A connection until its TLS handshake is over; then `make` has it."""

    def __init__(
        self, make: Callable[[], CountedConnection], tls: ssl.SSLContext, requests: OpenRequests
    ) -> None:
        self._make, self._tls, self._requests = make, tls, requests
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.pause_reading()  # its first bytes are TLS's
        peer = transport.get_extra_info("peername")
        self._requests.add(transport.get_extra_info("socket"), str(peer[0]) if peer else "")
        self._task = asyncio.ensure_future(self._run(transport))  # kept, or it may be collected

    async def _run(self, transport: asyncio.Transport) -> None:
        socket, made = transport.get_extra_info("socket"), self._make()
        try:
            safe = await asyncio.get_running_loop().start_tls(
                transport, made, self._tls, server_side=True, ssl_handshake_timeout=WITHIN_S
            )
        except OSError:  # ssl.SSLError and TimeoutError are some
            safe = None
        if safe is None:
            self._requests.remove(socket)
            transport.abort()
        else:
            made.connection_made(safe)
