"""Answers requests that are repeated byte for byte while their answer is still cached.

A client that polls sends the same bytes each time. They include host, origin and method, which were
checked the first time; only the token is checked again. Parsing and processing a request is half of
the cost of an answer (ADR 26); here it is one dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

AT_MOST: Final = 256
LONGEST: Final = 4096
"""Maximum size of a request in bytes."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """The answer to a request, for the same request."""

    answer: bytes
    """The whole answer with its head."""
    is_current: Callable[[], bool]
    closes: bool
    """The connection is closed after it, because the request says so."""


class Repeats:
    """The repeated requests of one server; used only in the thread of its event loop."""

    def __init__(self) -> None:
        self._by_request: dict[bytes, Repeat] = {}

    def find(self, request: bytes) -> Repeat | None:
        """Return the cached answer, or None if there is none."""
        found = self._by_request.get(request)
        if found is None or found.is_current():
            return found
        del self._by_request[request]
        return None

    def keep(self, request: bytes, repeat: Repeat) -> None:
        if len(request) > LONGEST:
            return
        if len(self._by_request) >= AT_MOST:
            self._by_request.clear()  # all expire within a second anyway
        self._by_request[request] = repeat
