"""`twinlog offsets`: where offsets lie on the other cluster, and setting those of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import RenderableType
from rich.table import Table

from twinlog.cli.commands.offsets_rebuild import rebuild
from twinlog.cli.options.flow_option import flow_option, one_flow
from twinlog.cli.options.run_options import secrets_option
from twinlog.cli.terminal.output import Format, format_option, write_json
from twinlog.cli.terminal.tables import row, text, write_all
from twinlog.config.values.times import NoTime, in_iso, to_milliseconds
from twinlog.errors import UsageError

if TYPE_CHECKING:
    from twinlog.client.group_translation import Translated
    from twinlog.client.offset_reset import ResetOffset

JSON_VERSION: Final = 1


@click.group("offsets")
def offsets() -> None:
    """Translate offsets between the clusters of a flow, set those of a group, rebuild the map."""


offsets.add_command(rebuild)


@offsets.command("translate")
@click.argument("file", type=click.Path(path_type=Path))
@flow_option
@click.option("--group", help="Translate all offsets that this group has committed.")
@click.option("--topic", help="Translate one offset: of this topic, by its name where it lies.")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--offset", type=click.IntRange(min=0))
@click.option("--reverse", is_flag=True, help="From the target back to the source.")
@secrets_option
@format_option
def translate(  # noqa: PLR0913, PLR0917 (options of a command)
    file: Path,
    flow: str | None,
    group: str | None,
    topic: str | None,
    partition: int,
    offset: int | None,
    reverse: bool,
    output: Format,
) -> int:
    """Show where to go on on the other cluster, exactly, by the offset map alone.

    No mirror needs to run. With --group the source is asked for the group's offsets; where it is
    lost, the group's newest checkpoints on the target are taken.

    \b
    twinlog offsets translate mm2.properties --group shop
    twinlog offsets translate mm2.properties --flow 'A->B' --topic orders --partition 3 --offset 42
    twinlog offsets translate mm2.properties --topic A.orders --offset 40 --reverse
    twinlog offsets translate mm2.properties --group shop --reverse --format json
    """
    from twinlog.cli.options.configuration import load_file
    from twinlog.client.group_translation import FlowTranslation, Translated
    from twinlog.control.flow.setups import flow_setup
    from twinlog.model import TopicPartition

    if (group is None) == (topic is None) or (topic is not None and offset is None):
        raise UsageError("give --group, or --topic with --offset (and --partition)")
    config = one_flow(load_file(file).flows, flow)
    setup = flow_setup(config)
    with closing(FlowTranslation(config, setup.source, setup.target)) as translation:
        if group is not None:
            found = translation.group(group, reverse=reverse)
        else:
            assert topic is not None and offset is not None  # noqa: S101 (checked above)
            tp = TopicPartition(topic, partition)
            found = Translated(offsets=(translation.one(tp, offset, reverse=reverse),))
    if output is Format.JSON:
        body = {
            "flow": str(config.flow),
            "reverse": reverse,
            "from_checkpoints": found.from_checkpoints,
            "offsets": [one.as_json() for one in found.offsets],
        }
        write_json("offsets translate", JSON_VERSION, body)
    else:
        write_all(_translated(found, config.flow.source))
    return 0


@offsets.command("reset")
@click.argument("file", type=click.Path(path_type=Path))
@flow_option
@click.option("--group", required=True, help="The group, on the target of the flow.")
@click.option(
    "--to-timestamp",
    "at",
    required=True,
    metavar="TIME",
    help="2026-01-31T12:00:00Z, with a zone or Z; or milliseconds since 1970.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Only these topics of the target; default: those that the group has offsets of.",
)
@click.option(
    "--dry-run/--execute",
    default=True,
    show_default=True,
    help="Show what would be set, or set it.",
)
@secrets_option
@format_option
def reset(
    file: Path,
    flow: str | None,
    group: str,
    at: str,
    topics: tuple[str, ...],
    dry_run: bool,
    output: Format,
) -> int:
    """Go back in time: set a group's offsets on the target.

    Each goes to the first record that is not older than a time.

    Without --execute it only shows what it would do. A time after the newest record is the end. An
    active group is refused: stop its consumers first. Where timestamps are out of order, older
    records may follow.

    \b
    twinlog offsets reset mm2.properties --group shop --to-timestamp 2026-01-31T12:00:00Z
    twinlog offsets reset mm2.properties --group shop --to-timestamp 2026-01-31T12:00:00Z --execute
    """
    from twinlog.cli.options.configuration import load_file
    from twinlog.client.offset_reset import OffsetReset
    from twinlog.cluster.client import ClusterClient
    from twinlog.control.flow.setups import flow_setup

    try:
        at_ms = to_milliseconds(at)
    except NoTime as problem:
        raise UsageError(f"--to-timestamp: {problem}") from None
    config = one_flow(load_file(file).flows, flow)
    with ClusterClient(flow_setup(config).target) as client:
        work = OffsetReset(client, group)
        plan = work.plan(at_ms, topics)
        if not dry_run:
            work.execute(plan)
    if output is Format.JSON:
        body = {
            "cluster": config.flow.target,
            "group": group,
            "timestamp_ms": at_ms,
            "executed": not dry_run,
            "offsets": [one.as_json() for one in plan],
        }
        write_json("offsets reset", JSON_VERSION, body)
    else:
        where = f"group {group} on {config.flow.target}, first records since {in_iso(at_ms)}"
        write_all(_reset(plan, where, dry_run=dry_run))
    return 0


def _translated(found: Translated, source: str) -> Iterator[RenderableType]:
    table = _table("topic", "partition", "offset", "there", "offset there", "")
    for one in found.offsets:
        place = "" if one.to_offset is None else str(one.to_offset)
        note = "" if one.is_exact else "not exact: not copied yet, or by MirrorMaker 2"
        if one.to_offset is None:
            note = "not copied by Twinlog"
        row(table, one.topic, str(one.partition), str(one.offset), one.to_topic, place, note)
    yield table
    if found.from_checkpoints:
        yield text(
            f"{source} does not answer: these are the offsets of the group's newest checkpoints",
            style="yellow",
        )


def _reset(plan: Sequence[ResetOffset], where: str, *, dry_run: bool) -> Iterator[RenderableType]:
    table = _table("topic", "partition", "now" if dry_run else "was", "then", "")
    for one in plan:
        before = "none" if one.before is None else str(one.before)
        note = "the end: no record is so new" if one.is_end else ""
        row(table, one.topic, str(one.partition), before, str(one.after), note)
    yield text(where)
    yield table
    if dry_run:
        yield text("nothing was changed; --execute sets these offsets")


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        is_number = name in ("partition", "offset", "offset there", "now", "was", "then")
        table.add_column(name, no_wrap=True, justify="right" if is_number else "left")
    return table
