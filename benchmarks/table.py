"""Turns rows into the text that a terminal shows; numbers stand right, words left."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results import MIRROR_MAKER, TWINLOG
from benchmarks.rows import Row

__all__ = ["render_rows", "render_table"]

_RIGHT = frozenset((2, 3, 4))


def render_rows(rows: Sequence[Row], reference: str = MIRROR_MAKER) -> str:
    """The table of the report."""
    cells = [
        (
            row.case,
            f"{row.name} ({row.unit})",
            _number(row.theirs, row.digits),
            _number(row.ours, row.digits),
            _ratio(row.ratio),
            row.goal,
            row.verdict,
        )
        for row in rows
    ]
    head = ("case", "measure", reference, TWINLOG, "ratio", "goal", "")
    return render_table(head, cells, _RIGHT)


def render_table(
    head: Sequence[str], body: Sequence[Sequence[str]], right: frozenset[int] = frozenset()
) -> str:
    """Columns as wide as their widest cell; those in `right` are aligned to the right."""
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    lines = [_line(head, widths, right), "  ".join("-" * width for width in widths)]
    lines += [_line(cells, widths, right) for cells in body]
    return "\n".join(line.rstrip() for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> str:
    return "  ".join(
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _ratio(value: float | None) -> str:
    if value is None:
        return "-"
    # three figures: 1/10 must not look like 0.1 when it is 0.14
    return f"{value:.2f}x" if value >= 1 else f"{value:.3f}x"
