"""Waits for changes in a broker or another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["PATIENCE_S", "eventually"]

T = TypeVar("T")

PATIENCE_S = 400.0
"""For changes that take a second. A machine that hangs for minutes is no error."""

_LEAST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_SHARE_OF_WAIT = 0.1
"""Pauses grow with the time of the wait, so that waiting tests leave the cores to others."""


def eventually(predicate: Callable[[], T], within: float = PATIENCE_S, what: str = "") -> T:
    """Wait for the predicate's first true value, and return it. An AssertionError inside it means
    "not yet".

    `within` ends a test that waits in vain, and says nothing of how fast a thing must be.
    """
    first = time.monotonic()
    while True:
        last: object
        began = time.monotonic()
        try:
            value = predicate()
        except AssertionError as failure:
            last = failure
        else:
            if value:
                return value
            last = value
        now = time.monotonic()
        if now > first + within:
            raise AssertionError(f"not within {within:g} s: {what or predicate}; last: {last!r}")
        # a predicate that takes long does not use a core while it waits
        pause_s = max(_LEAST_PAUSE_S, 2 * (now - began), _SHARE_OF_WAIT * (now - first))
        time.sleep(min(pause_s, _LONGEST_PAUSE_S))
