"""The table of `status`: a row for each topic, with the columns that fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from rich.cells import cell_len
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from twinlog.cli.terminal.status.rows import Row
from twinlog.cli.terminal.tables import PIPED_WIDTH, row, text
from twinlog.codes.states import Severity, severity_of
from twinlog.quantities import count, duration

GAP: Final = 2
"""Blanks between two columns."""
USUAL_NAME: Final = 40
"""Optional columns are left out before a topic's name gets narrower than this."""
NARROWEST_NAME: Final = 12
"""Minimum width of a topic's name."""


Cell = str | Text | ProgressBar
NAMES: Final = ("topic", "remote topic")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    justify: Literal["left", "right"]
    rank: int
    """The highest rank is left out first; 0 is never left out."""


COLUMNS: Final = (
    Column("topic", "left", 0),
    Column("remote topic", "left", 2),
    Column("parts", "left", 0),
    Column("state", "left", 0),
    Column("lag", "right", 0),
    Column("age", "right", 0),
    Column("loss", "right", 3),
    Column("copied", "right", 1),
    Column("records/s", "right", 0),
    Column("newest record", "left", 0),
    Column("since", "left", 4),
)
ALWAYS: Final = 5
"""Number of columns that are shown even if all their values are unknown."""
NOT_KNOWN: Final = ("", "?")


def table(found: Iterable[Row], width: int, now_ms: int) -> Table:
    """Return a row for each topic, with the columns that fit and have at least one known value."""
    cells = [_cells(one, now_ms) for one in found]
    # some values are unknown if the source is unavailable or the clusters are queried only once
    kept = [
        number
        for number in range(len(COLUMNS))
        if number < ALWAYS or any(str(row[number]) not in NOT_KNOWN for row in cells)
    ]
    columns = [COLUMNS[number] for number in kept]
    return fitted_table(columns, [[row[number] for number in kept] for row in cells], width)


def fitted_table(
    columns: Sequence[Column],
    cells: Sequence[Sequence[Cell]],
    width: int,
    most: int = PIPED_WIDTH,
) -> Table:
    """Return a table that fits the terminal: columns of the highest rank are left out first, then
    names are cut. `most` is the maximum width of a name.
    """
    widths = [
        max(cell_len(column.name) + (0 if number else GAP), *(_len(row[number]) for row in cells))
        for number, column in enumerate(columns)
    ]
    widths = [
        min(each, most) if column.name in NAMES else each
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
    shown = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
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


def _cells(one: Row, now_ms: int) -> list[Cell]:
    return [
        f"  {one.topic}",
        one.target_topic,
        one.partitions,
        text(one.state, style=state_style(one.state)),
        "?" if one.lag < 0 else count(one.lag),
        *("?" if ms < 0 else duration(ms / 1000) for ms in (one.lag_ms, one.loss_ms)),
        "?" if one.copied < 0 else count(one.copied),
        "" if one.records_per_s < 0 else count(one.records_per_s),
        since(one.newest_ms, now_ms) if one.newest_ms > 0 else "",
        since(one.since_ms, now_ms) if one.since_ms else "",
    ]


def _len(cell: Cell) -> int:
    return cell.width or 0 if isinstance(cell, ProgressBar) else int(cell_len(str(cell)))


def since(at_ms: int, now_ms: int) -> str:
    """`14:03:11 (5 min)`, with the date when it was another day; local time."""
    at, now = (datetime.fromtimestamp(ms / 1000).astimezone() for ms in (at_ms, now_ms))
    clock = f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"
    return f"{clock} ({duration(max(0, now_ms - at_ms) / 1000)})"


COLOURS: Final = {Severity.GOOD: "green", Severity.WARN: "yellow", Severity.BAD: "red"}


def state_style(state: str) -> str:
    """Return the colour of a flow's or partition's state."""
    return COLOURS[severity_of(state)]
