"""Where groups stand on the target, for the day on which the source is gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from twinlog.cli.terminal.tables import row
from twinlog.quantities import count


def group_table(positions: Iterable[Mapping[str, Any]], width: int) -> Table:
    """A row for each group and topic."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in positions:
        groups.setdefault((one["group"], one["topic"]), []).append(one)
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", width=None)
    name = max(12, (width - 40) // 2)
    shown.add_column("  group", no_wrap=True, overflow="ellipsis", max_width=name)
    shown.add_column("topic", no_wrap=True, overflow="ellipsis", max_width=name)
    shown.add_column("parts", justify="right", no_wrap=True)
    shown.add_column("left to read", justify="right", no_wrap=True)
    shown.add_column("offsets", overflow="fold")
    for (group, topic), found in groups.items():
        row(
            shown,
            f"  {group}",
            topic,
            str(len(found)),
            _left(found),
            _offsets(found),
        )
    return shown


def _left(found: Iterable[Mapping[str, Any]]) -> str:
    """Records between where a group stands, or would be set, and the end of the copy."""
    positions = [(max(one["at"], one["resumes_at"]), one["end"]) for one in found]
    known = [max(0, end - at) for at, end in positions if min(at, end) >= 0]
    return count(sum(known)) if len(known) == len(positions) else "?"


def _offsets(found: list[Mapping[str, Any]]) -> str:
    """Whether they are on the target, and whether each is that of the next record."""
    unset = sum(one["at"] < 0 for one in found)
    inexact = next((one["why_not_exact"] for one in found if one["why_not_exact"]), "")
    if unset == len(found):
        line = "not set: `failover` sets them"
    else:
        line = f"set, but of {unset} not" if unset else "set"
    return f"{line}; not exact: {inexact}" if inexact else line
