"""Waits until a broker or another process has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["PATIENCE_S", "eventually"]

T = TypeVar("T")

PATIENCE_S = 400.0
"""Time limit in seconds for changes that usually take a second. It is long, because a machine that
stalls for minutes is no error of the tested code.
"""

_LEAST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_SHARE_OF_WAIT = 0.1
"""Pause between two attempts, as a share of the time waited so far. Growing pauses save CPU time
for other tests.
"""


def eventually(predicate: Callable[[], T], within: float = PATIENCE_S, what: str = "") -> T:
    """Wait until the predicate returns a true value, and return this value. An AssertionError in
    the predicate counts as "not yet".

    `within` only ends a test that would wait forever. It does not check how fast the change is.
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
        # a predicate that takes long would otherwise use a core all the time
        pause_s = max(_LEAST_PAUSE_S, 2 * (now - began), _SHARE_OF_WAIT * (now - first))
        time.sleep(min(pause_s, _LONGEST_PAUSE_S))
