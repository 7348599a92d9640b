"""Formats rows as text for a terminal, with numbers aligned to the right and words to the left."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results import MIRROR_MAKER, TWINLOG
from benchmarks.rows import Row

__all__ = ["render_rows", "render_table"]

_RIGHT = frozenset((2, 3, 4))


def render_rows(rows: Sequence[Row], reference: str = MIRROR_MAKER) -> str:
    """Return the table of the report."""
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
    """Return a table whose columns are as wide as their widest cell. Columns in `right` are aligned
    to the right.
    """
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
    # three digits for ratios below 1, so that 1/20 and 1/21 differ
    return f"{value:.2f}x" if value >= 1 else f"{value:.3f}x"
