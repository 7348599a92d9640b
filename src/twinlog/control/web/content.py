"""Bodies of responses, with an ETag, and compressed on request.

A client that sends the ETag back (`If-None-Match`) gets 304 without a body while the content is
unchanged. ETags are weak, because the plain and the compressed form have the same ETag (RFC 9110).
"""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

from twinlog.control.watch.monitor import accepts_name

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Headers = list[tuple[bytes, bytes]]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

READS: Final = ("GET", "HEAD")
GZIP_LEVEL: Final = 1
LEAST_ZIPPED: Final = 2048
"""Minimum size in bytes of a compressed body. Smaller bodies fit in two packets anyway."""
NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
NO_STORE: Final = (b"cache-control", b"no-store")
_CHECKED: Final = (b"cache-control", b"private, no-cache")
"""The response is private to the client, which must validate it before each use."""


class Content:
    """One response body, as an ASGI application. Its ETag and compressed form are computed when
    first needed.
    """

    def __init__(self, content_type: str, body: bytes, headers: Headers | None = None) -> None:
        """`headers`: headers in addition to those that every response has."""
        self.body = body
        self._headers = [
            *(headers or ()),
            (b"content-type", content_type.encode()),
            _CHECKED,
            NOSNIFF,
            (b"vary", b"accept-encoding"),
        ]

    @cached_property
    def _hash(self) -> str:
        return f'"{blake2b(self.body, digest_size=12).hexdigest()}"'

    @cached_property
    def _zipped(self) -> bytes:
        return gzip.compress(self.body, GZIP_LEVEL, mtime=0)

    def answer(self, scope: Scope) -> tuple[int, Headers, bytes]:
        """Return status, headers and body of the response to a request."""
        headers = [*self._headers, (b"etag", f"W/{self._hash}".encode())]
        known = header(scope, b"if-none-match") if scope["method"] in READS else ""
        hashes = (tag.strip().removeprefix("W/") for tag in known.split(","))
        if known == "*" or self._hash in hashes:
            return 304, headers, b""
        body = self.body
        is_long = len(body) >= LEAST_ZIPPED
        if is_long and accepts_name(header(scope, b"accept-encoding"), "gzip"):
            body = self._zipped
            headers.append((b"content-encoding", b"gzip"))
        headers.append((b"content-length", b"%d" % len(body)))
        return 200, headers, body

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await send_answer(scope, send, *self.answer(scope))


async def send_answer(scope: Scope, send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a whole response. If the request is HEAD, leave out the body."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def header(scope: Scope, wanted: bytes) -> str:
    """Return a header's value, or an empty text. Several values are joined by commas."""
    values = (value for name, value in scope["headers"] if name == wanted)
    return b",".join(values).decode("latin-1")
