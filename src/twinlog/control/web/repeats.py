"""Requests that come again, byte for byte, while their answer is still kept.

A client that polls sends the same bytes each time. Its host, its origin and its method are among
them, and were checked when they came before; whether its token is still good is checked again.
Parsing them and all that follows is half of what an answer costs (ADR 26); here it is one look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

AT_MOST: Final = 256
LONGEST: Final = 4096
"""Bytes of a request."""


@dataclass(frozen=True, slots=True)
class _Repeat:
    answer: bytes
    is_current: Callable[[], bool]


class Repeats:
    """Of one server; in the thread of its event loop."""

    def __init__(self) -> None:
        self._by_request: dict[bytes, _Repeat] = {}

    def answer(self, request: bytes) -> bytes | None:
        """The whole answer, with its head; None: it has to be made."""
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
            self._by_request.clear()  # a second later all are old
        self._by_request[request] = _Repeat(answer, is_current)
