"""Prints the current step to standard error, with the time since the start."""

from __future__ import annotations

import sys
import time

__all__ = ["Progress"]


class Progress:
    """Prints one line for each step."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start of the benchmark."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """Print one line, with the time since the start."""
        minutes, seconds = divmod(int(self.seconds), 60)
        print(f"{minutes:2}:{seconds:02}  {text}", file=sys.stderr, flush=True)
