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
from twinlog.control.web.front import JSON, answer_headers

KEPT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    messages: tuple[dict[str, object], dict[str, object]]
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
        headers = answer_headers(JSON, len(body))
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        self._kept[path] = _Kept(
            messages=(start, {"type": "http.response.body", "body": body}),
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
                or self._clock() >= kept.until
                or kept.basis != self._site.basis
            ):
                await app(scope, receive, send)
                return
            for message in kept.messages:
                await send(message)

        return run
