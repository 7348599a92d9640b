"""Prints tables that are as wide as the terminal, or as wide as needed if stdout is no terminal.

Cells contain names and messages of other systems. So all texts and rows are created here, where
nothing is interpreted as markup or as terminal control codes.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from twinlog.cli.terminal.output import ANSWER, Answer, Part, is_for_programs, is_quiet, write_line
from twinlog.codes import Severity, severity_of
from twinlog.config.values.times import in_iso
from twinlog.quantities import duration
from twinlog.shown import shown

PIPED_WIDTH = 400
"""Width of output to a file or pipe, so large that no cell is cut. Trailing blanks are removed."""

Piece = str | tuple[str, str]
"""A part of a line: a text, or a text and its style."""


def shown_width() -> int:
    """Return the width of stdout's terminal, or PIPED_WIDTH if stdout is not a terminal."""
    return Console(file=sys.stdout).width if sys.stdout.isatty() else PIPED_WIDTH


def text(*pieces: Piece, style: str = "") -> Text:
    """Return the pieces as one line, with control characters made visible."""
    safe = [
        shown(piece) if isinstance(piece, str) else (shown(piece[0]), piece[1]) for piece in pieces
    ]
    return Text.assemble(*safe, style=style)


def multiline_text(value: str, style: str = "") -> Text:
    """Return a text with its line breaks, for texts of the user."""
    return Text("\n".join(map(shown, value.split("\n"))), style=style)


def indented(line: Piece, style: str = "", blanks: int = 2) -> Padding:
    """Return a line whose continuation is indented, too, if it is wrapped."""
    return Padding(text(line, style=style), (0, 0, 0, blanks), expand=False)


def row(table: Table, *cells: RenderableType | int | None) -> None:
    """Add a row to a table. Strings are made safe by `text`. None is an empty cell."""
    table.add_row(*(text(str(cell)) if isinstance(cell, str | int) else cell for cell in cells))


def plain_table(*columns: str, numbers: Container[str]) -> Table:
    """Return an empty table without lines. `numbers`: names of the columns to align right."""
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(shown(name), no_wrap=True, justify="right" if name in numbers else "left")
    return table


def write_answer(answer: Answer) -> int:
    """Write a command's result for people, and return its exit code. The object for programs is
    stored, and written when the command has ended.
    """
    ANSWER.get().answer = answer
    write_parts(answer.text, answer.problems)
    return answer.exit_code


def write_parts(parts: Iterable[Part], problems: Iterable[Part]) -> None:
    """Write `parts`, or `problems` if -q is given, to stdout unless it is for programs."""
    if not is_for_programs():
        write_always(problems if is_quiet() else parts)


def write_all(parts: Iterable[Part]) -> None:
    """Write lines and tables to stdout, unless -q is given."""
    if not is_quiet():
        write_always(parts)


def write_always(parts: Iterable[Part]) -> None:
    """Write lines and tables to stdout, even if -q is given. A terminal gets colours."""
    out = None if sys.stdout.isatty() else io.StringIO()
    width = None if out is None else PIPED_WIDTH
    console = Console(file=out, width=width, highlight=False, soft_wrap=out is not None)
    for part in parts:
        if isinstance(part, str):
            write_line(part, sys.stdout)
            continue
        console.print(part)
        if out is not None:
            printed = out.getvalue().splitlines()
            sys.stdout.writelines(f"{line.rstrip()}\n" for line in printed)
            out.seek(0)
            out.truncate()
    sys.stdout.flush()


GAP: Final = 2
"""Number of blanks between two columns."""
USUAL_NAME: Final = 40
"""Topic names are cut to less than this width only after optional columns were left out."""
NARROWEST_NAME: Final = 12
"""Minimum width of topic names in a table."""


Cell = str | Text | ProgressBar
NAMES: Final = ("topic", "remote topic")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    justify: Literal["left", "right"]
    rank: int
    """Columns with the highest rank are left out first. Columns with rank 0 are never left out."""


def fitted_table(
    columns: Sequence[Column],
    cells: Sequence[Sequence[Cell]],
    width: int,
    limit: int = PIPED_WIDTH,
) -> Table:
    """Return a table of at most `width` columns of text. If it is too wide, table columns are left
    out by rank, then topic names are cut. `limit`: maximum width of a topic name.
    """
    widths = [
        max(cell_len(column.name) + (0 if number else GAP), *(_len(row[number]) for row in cells))
        for number, column in enumerate(columns)
    ]
    widths = [
        min(each, limit) if column.name in NAMES else each
        for each, column in zip(widths, columns, strict=True)
    ]
    kept = [*range(len(columns))]

    def needed() -> int:
        total: int = sum(widths[number] for number in kept) + GAP * (len(kept) - 1)
        return total

    for rank in sorted({column.rank for column in columns} - {0}, reverse=True):
        if needed() - max(0, widths[0] - USUAL_NAME) > width:
            kept = [number for number in kept if columns[number].rank != rank]
    for number in kept:  # two long names share the remaining width
        if columns[number].name in NAMES:
            others = needed() - widths[number]
            widths[number] = min(widths[number], max(width - others, NARROWEST_NAME))
    shown = plain_table(numbers=())
    for number in kept:
        column = columns[number]
        shown.add_column(
            column.name if number else f"  {column.name}",
            justify=column.justify,
            no_wrap=True,
            overflow="ellipsis",
            max_width=widths[number],
        )
    for each in cells:
        row(shown, *(each[number] for number in kept))
    return shown


def _len(cell: Cell) -> int:
    return cell.width or 0 if isinstance(cell, ProgressBar) else int(cell_len(str(cell)))


def since(at_ms: int, now_ms: int) -> str:
    """Return a local time and its age, such as `14:03:11 (5 min)`, with the date if not today. For
    a time that is no date, return what `in_iso` returns.
    """
    try:
        at, now = (datetime.fromtimestamp(ms / 1000).astimezone() for ms in (at_ms, now_ms))
    except (ValueError, OverflowError, OSError):  # producers can set any timestamp
        return in_iso(at_ms)
    clock = f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"
    return f"{clock} ({duration(max(0, now_ms - at_ms) / 1000)})"


COLOURS: Final = {Severity.GOOD: "green", Severity.WARN: "yellow", Severity.BAD: "red"}


def state_style(state: str) -> str:
    """Return the color in which a state of a flow or partition is printed."""
    return COLOURS[severity_of(state)]
