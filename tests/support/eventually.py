"""Waits for what a broker or another process does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["PATIENCE_S", "eventually"]

T = TypeVar("T")

PATIENCE_S = 400.0
"""For what takes a second here: a machine that stands still for minutes is not in error."""

_POLL_SECONDS = 0.05


def eventually(predicate: Callable[[], T], within: float = PATIENCE_S, what: str = "") -> T:
    """The predicate's first true value; an AssertionError inside it means "not yet".

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
