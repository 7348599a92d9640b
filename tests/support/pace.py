"""Whether the machine kept its pace: what stands still for seconds meets no deadline."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

__all__ = ["Pace"]

_TICK_S: Final = 0.02


class Pace:
    """Measures, inside a `with`, how long the machine kept this process waiting at most."""

    def __init__(self) -> None:
        self.longest_stall_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(_TICK_S):
            now = time.monotonic()
            self.longest_stall_s = max(self.longest_stall_s, now - before - _TICK_S)
            before = now

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
