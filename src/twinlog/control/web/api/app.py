"""Runs the endpoints: Starlette routes the path, and pydantic validates the request. `front.py`
converts errors to responses.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from twinlog.config.values.nearest import suggestion
from twinlog.control.web import connect
from twinlog.control.web.api import shown
from twinlog.control.web.api.endpoints import DOCUMENT, ENDPOINTS, STREAM, CheckedRequest, Endpoint
from twinlog.control.web.api.site import Site
from twinlog.control.web.content import NO_STORE, READS, Content, send_answer
from twinlog.control.web.front import CLIENT, IS_KNOWN, JSON, SLOT_KEY, ConnectionSlot
from twinlog.control.web.problem import MethodRefused, RequestRefused, as_bytes
from twinlog.encoded import encoded_fields


def app(site: Site) -> ASGIApp:
    """Return the ASGI application for `/api/v1` and the paths of Kafka Connect's API. If a request
    fails, the application raises the error instead of responding.
    """
    kept = KeptAnswers(site)
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes: list[BaseRoute] = [
        Route(path, _Answering(site, by_method, kept), methods=[*by_method])
        for path, by_method in by_path.items()
    ]
    document = files("twinlog.control.web.api").joinpath("openapi.json").read_bytes()
    routes.append(Route(DOCUMENT, Content(JSON, document), methods=["GET"]))
    routes.append(Route(STREAM, _Streams(site), methods=["GET"]))
    router = Router([*routes, *connect.routes(site)], default=_no_path)

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if await kept.send(scope, send):
            return
        try:
            # with `app` in the scope, Starlette raises an error for a wrong method; otherwise
            # Starlette would send a response of its own
            await router({**scope, "app": router}, receive, send)
        except HTTPException as error:
            allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
            raise MethodRefused(scope["path"], ", ".join(allowed)) from error

    return run


async def _no_path(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise RequestRefused(f"no such path: {scope['path'][:200]}", code="NOT_FOUND")


class _Answering:
    """The endpoints of one path, by method, as an ASGI application."""

    def __init__(self, site: Site, endpoints: Mapping[str, Endpoint], kept: KeptAnswers) -> None:
        self._site = site
        self._endpoints = endpoints
        self._kept = kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        endpoint = self._endpoints["GET" if request.method in READS else request.method]
        query = _validated(endpoint.query or _Nothing, _query(request), "query")
        body = None
        if endpoint.body is not None:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != JSON:  # an HTML form of another site could send other types
                raise RequestRefused(f"the body must be JSON: Content-Type: {JSON}")
            body = _validated(endpoint.body, _parsed(await request.body()), "body")
        asked = CheckedRequest(
            site=self._site,
            client=scope[CLIENT],
            path=request.path_params,
            query=query,
            body=body,
        )
        basis = self._site.basis
        answer = await endpoint.run(asked)
        content = Content(JSON, answer + b"\n" if isinstance(answer, bytes) else as_bytes(answer))
        if endpoint.is_kept:
            self._kept.keep(scope["path"], basis, content)
        await content(scope, receive, send)


class _Nothing(BaseModel):
    """Query of a path that takes no parameters."""

    model_config = {"extra": "forbid"}


def _query(request: Request) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in parameters:
            raise RequestRefused(f"query: {name[:100]} is given twice")
        parameters[name] = value
    return parameters


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RequestRefused(f"body: invalid JSON: {error.msg} at {where}") from error
    except (ValueError, RecursionError) as error:
        raise RequestRefused("body: invalid JSON") from error


def _validated(model: type[BaseModel], value: Any, where: str) -> BaseModel:
    try:
        return model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        # a misspelt name explains a missing one, so it is reported first
        first = min(problems, key=lambda error: error["type"] != "extra_forbidden")
        name = ".".join(str(part) for part in first["loc"])[:100]
        what = f"{where}: {name}: {_explain_error(model, name, first['type'], first['msg'])}"
        raise RequestRefused(what.replace(": : ", ": ")) from error


def _explain_error(model: type[BaseModel], name: str, kind: str, message: str) -> str:
    """Explain what is wrong with a value, in terms of JSON instead of pydantic's Python terms."""
    match kind:
        case "extra_forbidden":
            known = [field.alias or key for key, field in model.model_fields.items()]
            known_parameters = (
                f"there are {', '.join(known)}" if known else "this path takes no parameters"
            )
            return f"unknown name; {suggestion(name, known) or known_parameters}"
        case "missing":
            return "is missing"
        case "model_type":
            return "must be a JSON object"
        case _:
            return message.replace("Input should be ", "must be ", 1)


# Caches the encoded responses that many clients poll every second: the response for all flows, and
# one for each flow. A cached response is used while its inputs are unchanged, and for one second at
# most. Its ages may therefore be up to a second too low; its timestamps are correct.

KEPT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptAnswer:
    content: Content
    basis: object
    until: float


class KeptAnswers:
    """The cached responses of one server, by path. Used only in the thread of its event loop."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._kept: dict[str, _KeptAnswer] = {}

    def keep(self, path: str, basis: object, content: Content) -> None:
        """Store a response. `basis`: the value of `Site.basis` before the response was made."""
        until = min(time.monotonic() + KEPT_S, self._site.leaders.next_read_at)
        self._kept[path] = _KeptAnswer(content=content, basis=basis, until=until)

    async def send(self, scope: Scope, send: Send) -> bool:
        """Send the cached response and return True, or return False if no current one is cached."""
        kept = self._kept.get(scope["path"])
        is_asked = scope["method"] == "GET" and not scope["query_string"]
        if kept is None or not is_asked or not self._is_current(kept):
            return False
        status, headers, body = kept.content.answer(scope)
        if status == 200:
            # checked for each repeat, so that removing the token has an immediate effect
            known = scope[IS_KNOWN]
            scope[SLOT_KEY].repeat(headers, body, lambda: self._is_current(kept) and known())
        await send_answer(scope, send, status, headers, body)
        return True

    def _is_current(self, kept: _KeptAnswer) -> bool:
        return time.monotonic() < kept.until and kept.basis == self._site.basis


# Server-sent events: all flows whenever one has changed, and each new event of this process and of
# processes that lead other flows.
#     event: flows     data: as in the answer to GET /api/v1/flows
#     event: event     data: as one item of GET /api/v1/events; its number is the id
# A client that reconnects with `Last-Event-ID` gets the events since then that are still stored.
# Flows are read once a second for all streams together. A stream is closed if its reader accepts no
# data or if its token is removed.

MOST_STREAMS: Final = 32
READ_EVERY_S: Final = 1.0
STEP_S: Final = 0.25
"""Seconds within which a stream detects that the process ends."""
KEEP_ALIVE_S: Final = 15.0
"""Maximum seconds between two messages of a stream, so that a disconnected client is detected."""
SEND_WITHIN_S: Final = 10.0
"""Maximum seconds for sending one message. After that, the connection is closed."""
_STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    NO_STORE,
    # closed after the stream, because the connection has no deadline any more
    (b"connection", b"close"),
]


class _Streams:
    """All streams of one server, as an ASGI application."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open = 0
        self._read_at = float("-inf")
        self._flows = b""
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a stream until its client or this process ends. Raises REST_BUSY at the limit."""
        if scope["method"] == "HEAD":
            await send_answer(scope, send, 200, _STREAM_HEADERS, b"")
            return
        request = Request(scope, receive)
        if self._open >= MOST_STREAMS:
            raise RequestRefused(
                f"{MOST_STREAMS} streams are already open; close one or retry later",
                code="REST_BUSY",
            )
        held: ConnectionSlot = request.scope[SLOT_KEY]
        held.requests.remove(held.socket)  # no deadline, so the number of streams is limited
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
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        if number is None:
            known = self._site.events.since(0)
            number = known[-1].number if known else 0
        sent, spoke = b"", time.monotonic()
        while not gone.done() and not self._site.is_stopping() and is_known():
            text = b""
            flows = await self._read()
            if flows != sent:
                text, sent = b"event: flows\ndata: " + flows + b"\n\n", flows
            for event in self._site.events.since(number):
                number = event.number
                body = shown.compact(encoded_fields(event, shown.EVENT))
                text += b"id: %d\nevent: event\ndata: %b\n\n" % (number, body)
            if not text and time.monotonic() - spoke >= KEEP_ALIVE_S:
                text = b": still here\n\n"
            if text:
                spoke = time.monotonic()
                await asyncio.wait_for(_body(send, text), SEND_WITHIN_S)
            await asyncio.wait({gone}, timeout=STEP_S)
        await asyncio.wait_for(_body(send, b"", is_last=True), SEND_WITHIN_S)

    async def _read(self) -> bytes:
        """Return all flows as JSON. They are read once a second for all streams together."""
        async with self._lock:
            if time.monotonic() - self._read_at >= READ_EVERY_S:
                self._flows = shown.compact(await self._site.flows())
                self._read_at = time.monotonic()
            return self._flows


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(send: Send, text: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": text, "more_body": not is_last})


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
