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
class _Repeat:
    answer: bytes
    is_current: Callable[[], bool]


class Repeats:
    """The repeated requests of one server; used only in the thread of its event loop."""

    def __init__(self) -> None:
        self._by_request: dict[bytes, _Repeat] = {}

    def answer(self, request: bytes) -> bytes | None:
        """Return the whole cached answer with its head, or None if there is none."""
        found = self._by_request.get(request)
        if found is None:
            return None
        if not found.is_current():
            del self._by_request[request]
            return None
        return found.answer

    def keep(self, request: bytes, answer: bytes, is_current: Callable[[], bool]) -> None:
        if len(request) > LONGEST:
            return
        if len(self._by_request) >= AT_MOST:
            self._by_request.clear()  # all expire within a second anyway
        self._by_request[request] = _Repeat(answer, is_current)
