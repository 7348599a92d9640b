"""`twinlog groups`: print which groups may move to the other cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import click
from rich.console import RenderableType
from rich.table import Table

from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.flow_option import ChosenFlow, on_flows
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer
from twinlog.cli.terminal.tables import plain_table, row, text
from twinlog.errors import UsageError
from twinlog.quantities import count, plural

if TYPE_CHECKING:
    from twinlog.control.check.group_readiness import FlowGroups, GroupReadiness

GROUPS_SHOWN: Final = 100
NUMBERS: Final = ("partitions", "partition", "offset", "lag", "at", "exact")
OFFSETS_SHOWN: Final = 50
"""Maximum number of offsets for which each is shown. If there are more, only --format json has
them.
"""


@click.group("groups", cls=CommandGroup)
def groups() -> None:
    """Print the state of consumer groups on a flow's source and target.

    \b
    twinlog groups ready mm2.properties
    twinlog groups ready mm2.properties --group shop
    """


@groups.command("ready")
@on_flows
@option("--group", "names", multiple=True, help="Only this group; may be given several times.")
def ready(chosen: ChosenFlow, names: tuple[str, ...]) -> Answer:
    """Print which groups may move to the other cluster now, and what prevents the others.

    A group may move if it has no members on either cluster and each of its offsets translates
    exactly to the target. Lag does not matter, because the group reads the remaining records on the
    target. Members are printed with client ID and host. Exit code 1 if a group may not move.

    \b
    twinlog groups ready mm2.properties
    twinlog groups ready mm2.properties --flow A:B --group shop
    twinlog groups ready mm2.properties --format json
    """
    from twinlog.control.check.group_readiness import ready_groups

    readiness = list(ready_groups(chosen.all(), names))
    seen = {group.group for each in readiness for group in each.groups}
    if missing := [name for name in names if name not in seen]:
        raise UsageError(f"--group: no flow selects a group {missing[0]} of its source")
    is_ready = all(group.is_ready for flow in readiness for group in flow.groups)
    text = (part for flow in readiness for part in parts(flow))
    return Answer({"flows": readiness}, text, 0 if is_ready else 1, version=2)


def parts(flow: FlowGroups) -> Iterator[RenderableType]:
    """Yield the number of groups that may move, the notes, the groups, and their offsets."""
    may = sum(group.is_ready for group in flow.groups)
    total = plural(len(flow.groups), "group")
    yield text((flow.flow, "bold"), f": {total}, {may} may move, {len(flow.groups) - may} may not")
    for note in flow.notes:
        yield text("  ", ("note: ", "cyan"), note)
    if flow.left_out:
        yield text(
            f"  {plural(flow.left_out, 'group')} of the source left out by groups and "
            "groups.exclude",
            style="dim",
        )
    if flow.groups:
        # show groups that are not ready first
        ordered = sorted(flow.groups, key=lambda group: group.is_ready)
        yield _groups(ordered[:GROUPS_SHOWN])
        if len(ordered) > GROUPS_SHOWN:
            yield text(f"  and {len(ordered) - GROUPS_SHOWN} more (--format json has all)")
        yield from _offset_rows(ordered)


def _groups(groups: Iterable[GroupReadiness]) -> Table:
    names = ("  group", "may move", "state", "partitions", "lag", "exact", "")
    table = plain_table(*names, numbers=NUMBERS)
    for group in groups:
        exact = sum(not offset.why_not for offset in group.committed)
        row(
            table,
            f"  {group.group}",
            text("yes", style="green") if group.is_ready else text("no", style="yellow"),
            group.source_side.state or "?",
            len(group.committed),
            count(group.lag),
            f"{exact} of {len(group.committed)}",
            "; ".join(group.why_not),
        )
    return table


def _offset_rows(groups: Iterable[GroupReadiness]) -> Iterator[RenderableType]:
    rows = [(group.group, offset) for group in groups for offset in group.committed]
    if not rows:
        return
    if len(rows) > OFFSETS_SHOWN:
        yield text(f"  {plural(len(rows), 'offset')}: --group NAME, or --format json, shows them")
        return
    names = ("  group", "topic", "partition", "offset", "lag", "resumes in", "at", "")
    table = plain_table(*names, numbers=NUMBERS)
    for group, at in rows:
        where = at.partition, at.offset, count(at.lag)
        row(table, f"  {group}", at.topic, *where, at.to_topic, at.to_offset, at.why_not)
    yield text()
    yield table
