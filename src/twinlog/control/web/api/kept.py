"""What many clients ask for every second is encoded once: the flows, and each of them.

An answer is given again while nothing that it was made of has changed, and for a second at most: by
so much its ages may be too low. Its times of day are true.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from twinlog.control.web.api.site import Site
from twinlog.control.web.front import HELD, IS_KNOWN, JSON, Headers, answer_headers

KEPT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    headers: Headers
    body: bytes
    basis: object
    until: float


class KeptAnswers:
    """Of one server, by path; in the thread of its event loop."""

    def __init__(self, site: Site, clock: Callable[[], float] = time.monotonic) -> None:
        self._site = site
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def keep(self, path: str, basis: object, body: bytes) -> None:
        """`basis`: of before it was made."""
        now = self._clock()
        self._kept[path] = _Kept(
            headers=answer_headers(JSON, len(body)),
            body=body,
            basis=basis,
            until=min(now + KEPT_S, self._site.leaders.begins_again),
        )

    def before(self, app: ASGIApp) -> ASGIApp:
        """The application, asked only for what is not kept."""

        async def run(scope: Scope, receive: Receive, send: Send) -> None:
            kept = self._kept.get(scope["path"])
            if (
                kept is None
                or scope["method"] != "GET"
                or scope["query_string"]
                or not self._is_current(kept)
            ):
                await app(scope, receive, send)
                return
            known = scope[IS_KNOWN]  # a token that was removed ends it at once
            scope[HELD].repeat(kept.headers, kept.body, lambda: self._is_current(kept) and known())
            await send({"type": "http.response.start", "status": 200, "headers": kept.headers})
            await send({"type": "http.response.body", "body": kept.body})

        return run

    def _is_current(self, kept: _Kept) -> bool:
        return self._clock() < kept.until and kept.basis == self._site.basis
