"""`twinlog diff FILE`: print differences between the two clusters of each flow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click
from rich.console import RenderableType
from rich.table import Table

from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import ChosenFlow, on_flows, topics_option
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer, write_step
from twinlog.cli.terminal.tables import plain_table, row, text, write_parts
from twinlog.quantities import count, plural

if TYPE_CHECKING:
    from twinlog.control.compare import Aspect, Deviation, FlowComparison

SHOWN_EACH: Final = 50
"""Maximum number of rows per aspect in the output for people. --format json has all."""

NAME_WIDTH: Final = 80
"""Maximum width of a name, because one name of 249 characters would widen all rows."""


@click.command("diff", cls=Command)
@on_flows
@topics_option
@option("--all", "every", is_flag=True, help="Also print what the flow does not sync, and why.")
def diff(chosen: ChosenFlow, topics: str | None, every: bool) -> Answer:
    """Print differences between the clusters of each flow in everything that its mirror syncs.

    The command compares topics, partitions, replication factors, configs, ACLs and offsets of
    groups, according to the flow's replication policy and filters. Objects and settings that the
    configuration excludes from the sync are not differences; --all prints them as well, and also
    quotas, which no mirror copies. Records are not compared. The command only reads. The exit code
    is 1 if there are differences, else 0.

    \b
    twinlog diff mm2.properties
    twinlog diff mm2.properties --flow A:B --topics 'orders.*' --all
    twinlog diff mm2.properties --format json
    """
    from twinlog.control.compare import compare_flows, matching

    matches = matching(topics, "--topics")
    compared = []
    for comparison in compare_flows(chosen.all(), matches, with_left_alone=every, say=write_step):
        compared.append(comparison)
        different = (text(f"{comparison.flow}: {line(each)}") for each in comparison.differences)
        write_parts(parts(comparison, with_left_alone=every), different)
    flows = (comparison.as_json(with_left_alone=every) for comparison in compared)
    return Answer(
        {"flows": flows},
        exit_code=1 if any(comparison.differences for comparison in compared) else 0,
    )


def line(deviation: Deviation) -> str:
    """Return a deviation as one line, for the output with -q."""
    what = f"{deviation.name} {deviation.detail}" if deviation.detail else deviation.name
    return f"{deviation.aspect}: {what}: {deviation.source} / {deviation.target}"


def parts(comparison: FlowComparison, *, with_left_alone: bool) -> Iterator[RenderableType]:
    """Yield the number of differences, the totals, the notes, and a table for each aspect."""
    number = len(comparison.differences)
    summary = plural(number, "difference") if number else "no difference"
    yield text((comparison.flow, "bold"), ": ", (summary, "yellow" if number else "green"))
    yield _totals(comparison)
    for note in comparison.notes:
        yield text("  ", ("note: ", "cyan"), note)
    shown = comparison.deviations if with_left_alone else comparison.differences
    by_aspect: dict[Aspect, list[Deviation]] = {}
    for each in shown:
        by_aspect.setdefault(each.aspect, []).append(each)
    for aspect, rows in by_aspect.items():
        yield text()
        yield _table(comparison.flow, aspect, rows[:SHOWN_EACH], with_left_alone=with_left_alone)
        if len(rows) > SHOWN_EACH:
            yield text(f"  and {count(len(rows) - SHOWN_EACH)} more (--format json has all)")


def _totals(comparison: FlowComparison) -> Table:
    numbers = ("compared", "different", "not synced")
    table = plain_table("  ", *numbers, numbers=numbers)
    for aspect, total in comparison.totals().items():
        counts = (total.compared, total.different, total.left_alone)
        row(table, f"  {aspect}", *map(count, counts))
    return table


def _table(flow: str, aspect: Aspect, rows: list[Deviation], *, with_left_alone: bool) -> Table:
    source, _, target = flow.partition("->")
    table = plain_table(numbers=())
    table.add_column(f"  {aspect}", no_wrap=True, overflow="ellipsis", max_width=NAME_WIDTH)
    for name in ("", source, target):
        table.add_column(text(name), overflow="fold")
    if with_left_alone:
        table.add_column("not synced, because", overflow="fold")
    for deviation in rows:
        style = "dim" if deviation.left_alone else ""
        cells = [f"  {deviation.name}", deviation.detail, deviation.source, deviation.target]
        if with_left_alone:
            cells.append(deviation.left_alone)
        row(table, *(text(cell, style=style) for cell in cells))
    return table
