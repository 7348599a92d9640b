"""How far a long reading is, on one line of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

import click

from twinlog.cli.terminal.output import write_line
from twinlog.shown import shown

SHOWN_EVERY_S: Final = 0.2


class ReadingLine:
    """The line; nothing where stderr is no terminal."""

    def __init__(self, unit: str, said: Callable[[int], str]) -> None:
        """`said` words a number of units."""
        self._unit, self._said = unit, said
        self._name = ""
        self._began = self._last = 0.0

    def step(self, name: str, done: int, total: int) -> None:
        """So many units of this log are read."""
        if not sys.stderr.isatty():
            return
        now = time.monotonic()
        if name != self._name or not done:
            self._name, self._began = name, now
        if now - self._last < SHOWN_EVERY_S:
            return
        self._last = now
        rate = done / max(now - self._began, SHOWN_EVERY_S)
        share = 100 * done // max(1, total)
        line = (
            f"{name}: {self._said(done)} of {self._said(total)} {self._unit} ({share} %), "
            f"{self._said(int(rate))}/s"
        )
        click.echo(f"\r\x1b[K{shown(line)}", file=sys.stderr, nl=False)

    def say(self, line: str) -> None:
        """A line of its own."""
        self.clear()
        write_line(line, sys.stderr)

    def clear(self) -> None:
        """Take the line away."""
        if self._last and sys.stderr.isatty():
            click.echo("\r\x1b[K", file=sys.stderr, nl=False)
