"""Caches the encoded answers that many clients poll every second: all flows, and each flow.

A cached answer is used while its inputs are unchanged, and for one second at most. Its ages may
therefore be up to a second too low; its timestamps are correct.
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
    """The cache of one server, by path; used only in the thread of its event loop."""

    def __init__(self, site: Site, clock: Callable[[], float] = time.monotonic) -> None:
        self._site = site
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def keep(self, path: str, basis: object, body: bytes) -> None:
        """Store an answer. `basis` is the site's basis from before the answer was made."""
        now = self._clock()
        self._kept[path] = _Kept(
            headers=answer_headers(JSON, len(body)),
            body=body,
            basis=basis,
            until=min(now + KEPT_S, self._site.leaders.begins_again),
        )

    def before(self, app: ASGIApp) -> ASGIApp:
        """Wrap the application so that it is called only if no cached answer is current."""

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
            known = scope[IS_KNOWN]  # removing the token ends the repetition immediately
            scope[HELD].repeat(kept.headers, kept.body, lambda: self._is_current(kept) and known())
            await send({"type": "http.response.start", "status": 200, "headers": kept.headers})
            await send({"type": "http.response.body", "body": kept.body})

        return run

    def _is_current(self, kept: _Kept) -> bool:
        return self._clock() < kept.until and kept.basis == self._site.basis
