"""Waits for changes in a broker or another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["PATIENCE_S", "eventually"]

T = TypeVar("T")

PATIENCE_S = 400.0
"""For changes that take a second. A machine that hangs for minutes is no error."""

_POLL_SECONDS = 0.05


def eventually(predicate: Callable[[], T], within: float = PATIENCE_S, what: str = "") -> T:
    """Wait for the predicate's first true value, and return it. An AssertionError inside it means
    "not yet".

    `within` ends a test that waits in vain, and says nothing of how fast a thing must be.
    """
    deadline = time.monotonic() + within
    while True:
        last: object
        try:
            value = predicate()
        except AssertionError as failure:
            last = failure
        else:
            if value:
                return value
            last = value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what or predicate}; last: {last!r}")
        time.sleep(_POLL_SECONDS)
