"""`twinlog offsets`: translate offsets to the other cluster, reset them, and rebuild the map."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType

from twinlog.cli.commands.groups.reset import reset
from twinlog.cli.commands.groups.rewrite_checkpoint import rewrite_checkpoint
from twinlog.cli.commands.offsets_rebuild import rebuild
from twinlog.cli.options.candidates import names_of_topics
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.flow_option import ChosenFlow, on_flow
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer
from twinlog.cli.terminal.tables import offsets_table, row, text
from twinlog.errors import UsageError
from twinlog.model import Flow

if TYPE_CHECKING:
    from twinlog.client.group_translation import TranslatedGroup


@click.group("offsets", cls=CommandGroup)
def offsets() -> None:
    """Translate offsets between the clusters of a flow, set groups' offsets, rebuild the map.

    Also rewrites checkpoints of Spark streams.

    \b
    twinlog offsets translate mm2.properties --group shop
    twinlog offsets reset mm2.properties --group shop --by-duration PT30M --dry-run
    twinlog offsets rebuild mm2.properties --dry-run
    twinlog offsets rewrite-checkpoint mm2.properties old-checkpoint new-checkpoint
    """


offsets.add_command(reset)
offsets.add_command(rebuild)
offsets.add_command(rewrite_checkpoint)


@offsets.command("translate")
@on_flow
@option("--group", help="Translate all offsets that this group has committed.")
@option(
    "--topic",
    shell_complete=names_of_topics,
    help="Translate one offset of this topic, by its name on the cluster of the offset.",
)
@option(
    "--partition",
    type=click.IntRange(min=0),
    help="The partition of --topic; default: 0.",
)
@option("--offset", type=click.IntRange(min=0), help="The offset of --topic to translate.")
@option("--reverse", is_flag=True, help="Translate from the target to the source.")
def translate(
    chosen: ChosenFlow,
    group: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    reverse: bool,
) -> Answer:
    """Print the exact offsets to resume at on the other cluster, from the offset map.

    No mirror needs to run. With --group, the group's offsets are read from the source. If the
    source is lost, the group's newest checkpoints on the target are used.

    \b
    twinlog offsets translate mm2.properties --group shop
    twinlog offsets translate mm2.properties --flow 'A->B' --topic orders --partition 3 --offset 42
    twinlog offsets translate mm2.properties --topic A.orders --offset 40 --reverse
    twinlog offsets translate mm2.properties --group shop --reverse --format json
    """
    from twinlog.client.group_translation import FlowTranslation, TranslatedGroup
    from twinlog.model import TopicPartition

    if (group is None) == (topic is None) or (topic is not None and offset is None):
        raise UsageError("give --group, or --topic with --offset (and --partition)")
    if group is not None and not (offset is None and partition is None):
        raise UsageError(
            "--group translates all offsets of the group: leave --offset and --partition out, or "
            "give --topic instead"
        )
    with chosen.open(FlowTranslation) as translation:
        if group is not None:
            found = translation.group(group, reverse=reverse)
        else:
            assert topic is not None and offset is not None  # noqa: S101 (checked above)
            tp = TopicPartition(topic, partition or 0)
            found = TranslatedGroup(offsets=(translation.one(tp, offset, reverse=reverse),))
    fields = {
        "flow": chosen.name,
        "reverse": reverse,
        "from_checkpoints": found.from_checkpoints,
        "offsets": found.offsets,
    }
    return Answer(fields, _translated(found, chosen.config.flow, reverse=reverse))


def _translated(found: TranslatedGroup, flow: Flow, *, reverse: bool) -> Iterator[RenderableType]:
    here, there = (flow.target, flow.source) if reverse else (flow.source, flow.target)
    table = offsets_table(here, there)
    for one in found.offsets:
        to_offset = "" if one.to_offset is None else str(one.to_offset)
        note = "" if one.is_exact else "not exact: not copied yet, or by MirrorMaker 2"
        if one.to_offset is None:
            note = "not copied by Twinlog"
        row(table, one.topic, str(one.partition), str(one.offset), one.to_topic, to_offset, note)
    yield table
    if found.from_checkpoints:
        yield text(
            f"{flow.source} does not respond: these are the offsets of the group's newest "
            "checkpoints",
            style="yellow",
        )
