"""Prints tables as wide as the terminal, or as wide as needed where a program reads."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable

from rich.console import Console, RenderableType

PIPED_WIDTH = 400
"""Wide enough that no cell is cut; lines end where their text does."""


def write_all(parts: Iterable[RenderableType]) -> None:
    """Write to stdout, with colours where it is a terminal."""
    if sys.stdout.isatty():
        console = Console(file=sys.stdout, highlight=False)
        for part in parts:
            console.print(part)
        return
    out = io.StringIO()
    console = Console(file=out, width=PIPED_WIDTH, highlight=False, soft_wrap=True)
    for part in parts:
        console.print(part)
    for line in out.getvalue().splitlines():
        sys.stdout.write(f"{line.rstrip()}\n")
    sys.stdout.flush()
