"""Shows the progress of a long read on one line of a terminal."""

from __future__ import annotations

import os
import sys
import time
from typing import Final, Self

import click
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from twinlog.cli.terminal.output import write_line
from twinlog.cli.terminal.tables import row, text
from twinlog.quantities import count

SHOWN_EVERY_S: Final = 0.2
BAR: Final = 20
LEAST_NAME: Final = 16
ECHO: Final = len("^C")
"""Columns that are left free for the terminal's echo of Ctrl-C. If the echo wrapped into another
line, that line would never be erased, and the next screen would not overwrite it.
"""


class ReadingLine:
    """A progress line on stderr, if that is a terminal. It is erased at the end of the `with`
    block.
    """

    def __init__(self) -> None:
        self._name = ""
        self._began = self._last = 0.0

    def step(self, name: str, done: int, total: int) -> None:
        """Show that `done` of `total` offsets of `name`, such as a flow or log, have been read."""
        if not sys.stderr.isatty():
            return
        now = time.monotonic()
        if name != self._name or not done:
            self._name, self._began = name, now
        if now - self._last < SHOWN_EVERY_S and done < total:
            return
        self._last = now
        rate = done / max(now - self._began, SHOWN_EVERY_S)
        share = 100 * done // total if total else 100
        numbers = (
            f"{share} %",
            f"{count(done)} of {count(total)} offsets",
            f"{count(int(rate))}/s",
        )
        # use the width of stderr's terminal, because stdout may be a file or another terminal
        width = max(1, (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - ECHO)
        console = Console(file=sys.stderr, width=width)
        with console.capture() as drawn:
            console.print(self._draw(numbers, share, width), end="")
        click.echo(f"\r\x1b[K{drawn.get().rstrip()}", file=sys.stderr, nl=False)

    def _draw(self, numbers: tuple[str, ...], share: int, width: int) -> Table:
        """Return the line. If it is too long, numbers are left out from the right, then the name is
        cut.
        """
        name = text((self._name, "bold"))
        room = width - min(name.cell_len, LEAST_NAME)
        shown, is_barred = numbers[0], room > BAR + len(numbers[0]) + 2
        room -= (BAR + 1) * is_barred
        for number in numbers[1:]:
            if len(shown) + len(number) + 3 > room:
                break
            shown += f", {number}"
        room = width - len(shown) - 1 - (BAR + 1) * is_barred
        name.truncate(max(1, room), overflow="ellipsis")
        line = Table.grid(padding=(0, 1, 0, 0))
        bars = [ProgressBar(completed=share, width=BAR, finished_style="green")] * is_barred
        row(line, name, *bars, shown)
        return line

    def write_line(self, line: str) -> None:
        """Write a line of its own, after erasing the progress line."""
        self.clear()
        write_line(line, sys.stderr)

    def clear(self) -> None:
        """Erase the progress line."""
        if self._last and sys.stderr.isatty():
            click.echo("\r\x1b[K", file=sys.stderr, nl=False)
            self._last = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
