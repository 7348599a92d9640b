"""Server-sent events: all flows whenever one has changed, and each new event of this process and of
processes that lead other flows.

    event: flows     data: as in the answer to GET /api/v1/flows
    event: event     data: as one item of GET /api/v1/events; its number is the id

A client that reconnects with `Last-Event-ID` gets the events since then that are still stored.
Flows are read once a second for all streams together. A stream is closed if its reader accepts no
data or if its token is removed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.types import Send

from twinlog.control.web.api import shown
from twinlog.control.web.api.site import Site
from twinlog.control.web.front import HELD, IS_KNOWN, ConnectionSlot
from twinlog.control.web.problem import RequestRefused

AT_MOST: Final = 32
READ_EVERY_S: Final = 1.0
STEP_S: Final = 0.25
"""How soon a stream notices that the process ends."""
SPEAKS_S: Final = 15.0
"""Maximum time between messages, so that a disconnected client is noticed."""
TAKES_S: Final = 10.0
"""Maximum time for sending one message."""


class Streams:
    """All streams of one server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open = 0
        self._read_at = float("-inf")
        self._flows = b""
        self._lock = asyncio.Lock()

    async def run(self, request: Request, send: Send) -> None:
        """Serve a stream until the client or this process ends. Raises REST_BUSY."""
        if self._open >= AT_MOST:
            raise RequestRefused(
                f"{AT_MOST} streams are already open; close one or retry later", code="REST_BUSY"
            )
        held: ConnectionSlot = request.scope[HELD]
        held.release()
        self._open += 1
        gone = asyncio.ensure_future(_until_gone(request))
        try:
            number = _number(request.headers.get("last-event-id", ""))
            await self._send_all(number, send, gone, request.scope[IS_KNOWN])
        except TimeoutError:
            held.abort()
        finally:
            gone.cancel()
            self._open -= 1

    async def _send_all(
        self,
        number: int | None,
        send: Send,
        gone: asyncio.Future[None],
        is_known: Callable[[], bool],
    ) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if number is None:
            known = self._site.events.since(0)
            number = known[-1].number if known else 0
        sent, spoke = b"", time.monotonic()
        while not gone.done() and not self._site.is_stopping() and is_known():
            text = b""
            flows = await self._read()
            if flows != sent:
                text, sent = b"event: flows\ndata: " + flows + b"\n\n", flows
            for one in self._site.events.since(number):
                number = one.number
                body = shown.event(one).model_dump_json(by_alias=True)
                text += f"id: {number}\nevent: event\ndata: {body}\n\n".encode()
            if not text and time.monotonic() - spoke >= SPEAKS_S:
                text = b": still here\n\n"
            if text:
                spoke = time.monotonic()
                await asyncio.wait_for(_body(send, text), TAKES_S)
            await asyncio.wait({gone}, timeout=STEP_S)
        await asyncio.wait_for(_body(send, b"", is_last=True), TAKES_S)

    async def _read(self) -> bytes:
        """Return all flows as JSON; read once a second for all streams."""
        async with self._lock:
            if time.monotonic() - self._read_at >= READ_EVERY_S:
                found = await self._site.flows()
                self._flows = found.model_dump_json(by_alias=True).encode()
                self._read_at = time.monotonic()
            return self._flows


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(send: Send, text: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": text, "more_body": not is_last})


def _number(given: str) -> int | None:
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None
