"""Whether the machine kept its pace: what stands still for seconds meets no deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

__all__ = ["Pace", "paced"]

_TICK_S: Final = 0.02


@dataclass(slots=True)
class Pace:
    """What was measured."""

    longest_stall_s: float = 0.0
    """How long the machine kept this process waiting at most."""


@contextmanager
def paced(ask: Callable[[], object] = lambda: None) -> Iterator[Pace]:
    """Measures until the end of the `with`; how long `ask` takes, of a broker, counts as well."""
    pace, ended = Pace(), threading.Event()

    def run() -> None:
        before = time.monotonic()
        while not ended.wait(_TICK_S):
            now = time.monotonic()
            pace.longest_stall_s = max(pace.longest_stall_s, now - before - _TICK_S)
            before = now
            ask()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield pace
    finally:
        ended.set()
        thread.join()
