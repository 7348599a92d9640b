"""Authenticates and authorizes requests. Responds to probes, and passes other requests to the API.

The checks, in this order (files of the page need only the first check):

1. Host. If the server listens on this machine only, a request must name this machine. Otherwise a
   page in a local browser could map its own name to this address (DNS rebinding), and read
   responses. If other machines reach the server, this attack fails anyway: no browser adds a token
   by itself, and with client certificates, the server's does not match the page's name.
2. Origin. Browsers send the origin of the page that makes a request, and requests by pages of other
   sites are rejected. A request that changes something must be JSON or a PUT, which no HTML form of
   another site can send.
3. Body: read completely, limited in size, within the deadline of its connection.
4. Client: a token or a certificate, and its role.

If other machines reach the address and no authentication is set, only metrics and probes are
served, and only if a key allows it. Otherwise nothing is served at all (`server.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from twinlog.addresses import is_loopback
from twinlog.config.rest import RestConfig, RestRole
from twinlog.control.watch.monitor import PATHS, HttpResponse, Monitor
from twinlog.control.web.content import (
    NO_STORE,
    NOSNIFF,
    READS,
    Headers,
    Message,
    Receive,
    Scope,
    Send,
    header,
    send_answer,
)
from twinlog.control.web.open_requests import ClosableConnection, OpenRequests, RequestWorkers
from twinlog.control.web.page import ROOT as PAGE
from twinlog.control.web.page import asset
from twinlog.control.web.problem import (
    PROBLEM,
    MethodRefused,
    RequestRefused,
    as_bytes,
    internal_error,
    problem,
    status_of,
)
from twinlog.control.web.tokens import Client, Tokens
from twinlog.errors import TwinlogError

log = logging.getLogger(__name__)

App = Callable[[Scope, Receive, Send], Awaitable[None]]
LoadApi = Callable[[], App]

LONGEST_BODY: Final = 65_536
READ_AT_MOST: Final = 1 << 20
JSON: Final = "application/json"
LONG_S: Final = 180.0
"""Seconds within which a REST response must be sent. It may need queries of two clusters."""
AT_ONCE: Final = 2
AT_MOST: Final = 64
"""Maximum number of scrapes that run or wait."""
SLOT_KEY: Final = "twinlog.held"
CLIENT: Final = "twinlog.client"
IS_KNOWN: Final = "twinlog.is_known"
"""SLOT_KEY, CLIENT and IS_KNOWN are keys of a request's scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSlot:
    """A connection's entry in `OpenRequests`."""

    socket: ClosableConnection
    requests: OpenRequests
    abort: Callable[[], None]
    """Closes the connection without sending more data."""
    repeat: Callable[[Headers, bytes, Callable[[], bool]], None]
    """Caches a response with status 200. The arguments are its headers, its body, and a function
    that returns True while the response is valid for the same request.
    """


class Front:
    """Checks the requests of one server. All methods run in the thread of its event loop."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        rest_config: RestConfig,
        tokens: Tokens | None,
        own_name: str | None,
        load_api: LoadApi | None,
    ) -> None:
        """`own_name`: the name of a local listener, or None if other machines reach the server."""
        self._monitor = monitor
        self._rest = rest_config
        self._tokens = tokens
        self._own_name = own_name
        self._load_api = load_api
        self._api: App | None = None
        self._workers = RequestWorkers(AT_ONCE, AT_MOST)
        self._loading = asyncio.Lock()
        self.is_stopping = False

    @property
    def has_api(self) -> bool:
        """Return True if REST is served, which needs authentication or a local listener."""
        return self._load_api is not None and self._is_guarded

    @property
    def _is_guarded(self) -> bool:
        return self._own_name is not None or self._rest.is_guarded

    @property
    def served_paths(self) -> tuple[str, ...]:
        return (*PATHS, "/api/v1", PAGE) if self.has_api else PATHS

    def stop(self) -> None:
        """End all streams of events."""
        self.is_stopping = True

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, slot: ConnectionSlot
    ) -> None:
        path = str(scope["path"])
        try:
            path, hosts = self._split(scope)
            self._check_host(hosts)
            if await self._page(scope, path, receive, send):
                return
            _check_origin(scope)
            body = await _body(scope, receive)
            if body is None:
                return  # the client disconnected
            slot.requests.on_request(slot.socket)
            if path in PATHS:
                answer = await self._probe(scope, path)
                await _send(scope, send, answer)
                return
            await self._rest_answer(scope, path, body, receive, send, slot)
        except TwinlogError as error:
            await _refuse(scope, send, error, path)
        except Exception:
            log.exception("a request for %s failed", path)
            await _refuse(scope, send, internal_error(), path)

    async def _page(self, scope: Scope, path: str, receive: Receive, send: Send) -> bool:
        """Send a file of the page and return True if the path is one. The files contain no data of
        a flow, so links from other sites are allowed, and no token is needed to load them.
        """
        if not self.has_api or scope["method"] not in READS:
            return False
        if path in ("/", PAGE.rstrip("/")):
            headers = [NO_STORE, (b"location", PAGE.encode()), (b"content-length", b"0")]
            await send_answer(scope, send, 302, headers, b"")
            return True
        file = asset(path)
        if file is not None:
            await file(scope, receive, send)
        return file is not None

    async def _probe(self, scope: Scope, path: str) -> HttpResponse:
        if not self._rest.monitoring_is_open:
            self._client_of(scope)
        if scope["method"] not in READS:
            raise MethodRefused(path, ", ".join(READS))
        accept, encoding = header(scope, b"accept"), header(scope, b"accept-encoding")
        if path != "/metrics":
            return self._monitor.answer(path)
        # rendering many series takes a while, and a probe must not wait for it
        return await self._workers.run(lambda: self._monitor.answer(path, accept, encoding))

    async def _rest_answer(
        self,
        scope: Scope,
        path: str,
        body: bytes,
        receive: Receive,
        send: Send,
        slot: ConnectionSlot,
    ) -> None:
        if self._load_api is None:
            raise RequestRefused(
                f"no such path: {path}; available paths: {', '.join(PATHS)}", code="NOT_FOUND"
            )
        if not self._is_guarded:
            raise RequestRefused(
                "REST is not served here: other machines reach this address, and no authentication "
                "is set",
                code="REST_UNGUARDED",
            )
        client = self._client_of(scope)
        if scope["method"] not in READS and client.role is not RestRole.OPERATE:
            raise RequestRefused(f"{client.name} may read, but not operate", code="ROLE_TOO_SMALL")
        slot.requests.allow(slot.socket, LONG_S)
        api = await self._loaded_api(self._load_api)
        asked = scope
        scope = {
            **scope,
            "path": path,
            SLOT_KEY: slot,
            CLIENT: client,
            IS_KNOWN: lambda: self._is_known(asked),
        }
        await api(scope, _Replay(body, receive), send)

    async def _loaded_api(self, load: LoadApi) -> App:
        """Load the application in a worker. It takes a second, and probes must not wait for it."""
        async with self._loading:
            if self._api is None:
                self._api = await self._workers.run(load)
            return self._api

    def _is_known(self, scope: Scope) -> bool:
        """Return True if a request's client would still be accepted. Checked during streams."""
        try:
            self._client_of(scope)
        except RequestRefused:
            return False
        return True

    def _client_of(self, scope: Scope) -> Client:
        """Return the client that sent a request. Without authentication, every client is accepted,
        but REST is then served on this machine only.
        """
        authorization = header(scope, b"authorization")
        if authorization and self._tokens is not None:
            kind, _, token = authorization.partition(" ")
            client = self._tokens.client(token.strip()) if kind.lower() == "bearer" else None
            if client is None:
                raise RequestRefused(
                    "the token is not one of twinlog.rest.tokens.file", code="TOKEN_NEEDED"
                )
            return client
        if self._rest.client_ca_file is not None:
            # the TLS handshake has already rejected clients without a certificate
            return Client(name="certificate", role=self._rest.client_role)
        if self._tokens is not None:
            raise RequestRefused(
                "a token is required: Authorization: Bearer TOKEN", code="TOKEN_NEEDED"
            )
        return Client(name="local", role=RestRole.OPERATE)

    def _split(self, scope: Scope) -> tuple[str, list[str]]:
        """Return the path, and every host that the request names."""
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        path = str(scope["path"])
        if path.startswith("/"):
            return path, hosts
        try:
            parts = urlsplit(path)  # `GET http://HOST/PATH`, the form for proxies
        except ValueError as error:
            raise RequestRefused("the request's target is not a valid address") from error
        return parts.path or "/", [*hosts, parts.netloc]

    def _check_host(self, hosts: list[str]) -> None:
        if not all(map(self._is_ours, hosts)):
            raise RequestRefused(
                "only this machine is served, as 127.0.0.1 or localhost; set an address with "
                "--listen to serve others",
                code="FOREIGN_HOST",
            )

    def _is_ours(self, host: str) -> bool:
        if self._own_name is None:
            return True
        try:
            name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        except ValueError:
            return False
        return name == self._own_name or is_loopback(name)


def _check_origin(scope: Scope) -> None:
    origin, host = header(scope, b"origin"), header(scope, b"host")
    site = header(scope, b"sec-fetch-site")
    if origin and _host_of(origin) != host.lower():
        raise RequestRefused(
            f"a page of {origin[:100]} sent this request; only this server's pages may",
            code="FOREIGN_ORIGIN",
        )
    if site in ("cross-site", "same-site"):
        raise RequestRefused(
            "a page of another site sent this request; only this server's pages may",
            code="FOREIGN_ORIGIN",
        )


def _host_of(origin: str) -> str:
    """Return HOST:PORT of an Origin header, or an empty string for `null` or an invalid one."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


async def _body(scope: Scope, receive: Receive) -> bytes | None:
    """Read the whole body. Return None if the client disconnects."""
    length = header(scope, b"content-length")
    if not length and not header(scope, b"transfer-encoding"):
        return b""
    body, size = b"", 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = bytes(message.get("body", b""))
        size += len(part)
        # an oversized body is read to its end, but not stored. A client that is cut off while it
        # writes does not see the response
        body = body + part if size <= LONGEST_BODY else b""
        if size > READ_AT_MOST or (size > LONGEST_BODY and not message.get("more_body", False)):
            raise RequestRefused(
                f"the body has more than {LONGEST_BODY} bytes", code="REQUEST_TOO_LARGE"
            )
        if not message.get("more_body", False):
            return body


class _Replay:
    """ASGI's `receive` for a request whose body was already read."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _refuse(scope: Scope, send: Send, error: TwinlogError, path: str) -> None:
    status = status_of(error)
    more: Headers = []
    if isinstance(error, MethodRefused):
        more.append((b"allow", error.allowed.encode()))
    elif status == 401:
        more.append((b"www-authenticate", b"Bearer"))
    elif status == 413:
        more.append((b"connection", b"close"))  # closed, because the rest of the body is not read
    answer = HttpResponse(status=status, content_type=PROBLEM, body=as_bytes(problem(error, path)))
    await _send(scope, send, answer, more)


async def _send(
    scope: Scope, send: Send, answer: HttpResponse, more: Headers | None = None
) -> None:
    headers = [
        *(more or ()),
        (b"content-type", answer.content_type.encode()),
        (b"content-length", b"%d" % len(answer.body)),
        NO_STORE,
        NOSNIFF,
    ]
    if answer.encoding:
        headers.append((b"content-encoding", answer.encoding.encode()))
    if answer.status == 503:
        headers.append((b"retry-after", b"5"))
    await send_answer(scope, send, answer.status, headers, answer.body)
