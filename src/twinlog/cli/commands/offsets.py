"""`twinlog offsets`: translate offsets to the other cluster, reset them, and rebuild the map."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import RenderableType

from twinlog.cli.commands.reset import reset
from twinlog.cli.options.candidates import names_of_topics
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.flow_option import ChosenFlow, on_flow, topics_option
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer, write_line
from twinlog.cli.terminal.reading import ReadingLine
from twinlog.cli.terminal.tables import offsets_table, plain_table, row, text
from twinlog.errors import UsageError
from twinlog.model import Flow
from twinlog.quantities import count, plural

if TYPE_CHECKING:
    from twinlog.client.group_translation import TranslatedGroup
    from twinlog.client.spark_checkpoint import MovedMarks, Rewritten
    from twinlog.control.rebuild.map_rebuild import RebuiltLine
    from twinlog.mirror.plan import PartitionPlan

NUMBERS: Final = ("partition", "from", "to", "runs", "source resumes at")


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


@offsets.command("rebuild")
@on_flow
@topics_option
@option("--dry-run", is_flag=True, help="Compare, and print what would be written.")
@option("--yes", is_flag=True, help="Write without asking for confirmation.")
def rebuild(chosen: ChosenFlow, topics: str | None, dry_run: bool, yes: bool) -> Answer:
    """Rebuild a deleted offset map, if the remote topics still exist.

    For each partition that is missing in the map, both logs are read and compared record by record.
    If the target is a copy of the source, in order and without gaps, the partition's rows are
    written. Otherwise nothing is written, and the first offset that differs is printed. Stop the
    mirror first.

    \b
    twinlog offsets rebuild mm2.properties --dry-run
    twinlog offsets rebuild mm2.properties --flow A:B --topics 'orders.*' --yes
    twinlog offsets rebuild mm2.properties --yes --format json
    """
    from twinlog.control.rebuild.map_rebuild import LineOutcome, MapRebuild

    pattern = _pattern(topics)
    name = chosen.name
    if not (dry_run or yes or sys.stdin.isatty()):
        raise UsageError("give --yes, or --dry-run to see what would be written")
    with (
        ReadingLine("offsets", count) as shown,
        closing(MapRebuild(chosen.setup, on_step=shown.step, say=shown.say)) as work,
    ):
        plans = work.plan(pattern)
        if not dry_run:
            if not (yes or _is_wanted(name, plans)):
                write_line("nothing was changed")
                return Answer({}, exit_code=1, version=2)
            work.lead()
        lines = list(work.run(plans))
    fields = {"flow": name, "dry_run": dry_run, "partitions": lines}
    is_refused = any(line.outcome is LineOutcome.REFUSED for line in lines)
    report = _report(lines, dry_run=dry_run)
    return Answer(fields, report, int(is_refused), problems=_refusals(lines), version=2)


def _pattern(topics: str | None) -> re.Pattern[str] | None:
    try:
        return None if topics is None else re.compile(topics)
    except re.error as problem:
        raise UsageError(f"--topics: {topics} is no regular expression: {problem}") from None


def _is_wanted(flow: str, plans: Sequence[PartitionPlan]) -> bool:
    topics = len({plan.source.topic for plan in plans})
    return click.confirm(
        f"{flow}: compare {plural(len(plans), 'partition')} of {plural(topics, 'topic')}, and "
        "write rows for those that the offset map lacks?",
        err=True,
    )


def _refusals(lines: Sequence[RebuiltLine]) -> Iterator[RenderableType]:
    for line in lines:
        if line.problem is not None:
            yield text(str(line.problem), style="red")


def _report(lines: Sequence[RebuiltLine], *, dry_run: bool) -> Iterator[RenderableType]:
    names = ("topic", "partition", "", "from", "to", "runs", "source resumes at")
    table = plain_table(*names, numbers=NUMBERS)
    for line in lines:
        known = [line.first, line.end, line.runs, line.next_upstream]
        cells = [str(each) if line.runs else "" for each in known]
        row(table, line.target.topic, str(line.target.partition), line.outcome.value, *cells)
    yield table
    yield from _refusals(lines)
    if dry_run:
        yield text("nothing was changed; without --dry-run these rows are written")


@offsets.command("rewrite-checkpoint")
@on_flow
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("new", type=click.Path(path_type=Path))
@option("--reverse", is_flag=True, help="The query has read the target and moves to the source.")
@option(
    "--may-repeat",
    is_flag=True,
    help="Accept that the query has read beyond the copy: those records are read again if they "
    "are copied later, and never if the source is lost.",
)
def rewrite_checkpoint(
    chosen: ChosenFlow, checkpoint: Path, new: Path, reverse: bool, may_repeat: bool
) -> Answer:
    """Rewrite a checkpoint of Spark Structured Streaming for the other cluster of a flow.

    CHECKPOINT belongs to a stopped query that has read the source with format("twinlog") or
    format("kafka"). NEW is a copy of it with the offsets of the same records on the target.
    CHECKPOINT is not changed. No mirror needs to run. If the query writes with format("twinlog") to
    topics that the flow has copied, its mark is set on the target, too.

    \b
    twinlog offsets rewrite-checkpoint mm2.properties /data/orders-checkpoint /data/orders-on-B
    twinlog offsets rewrite-checkpoint mm2.properties /data/on-B /data/back-on-A --reverse
    """
    from twinlog.client import spark_checkpoint
    from twinlog.client.group_translation import FlowTranslation

    flow = chosen.config.flow
    with chosen.open(FlowTranslation) as translation:
        query = spark_checkpoint.query_of(checkpoint)
        marks = spark_checkpoint.move_marks(translation, query, reverse=reverse)
        found = spark_checkpoint.rewrite_checkpoint(
            translation, flow, checkpoint, new, reverse=reverse, may_repeat=may_repeat
        )
    fields = {
        "flow": chosen.name,
        "reverse": reverse,
        "checkpoint": checkpoint,
        "new": new,
        "batch": found.noted.batch,
        "is_committed": found.noted.is_committed,
        "other_sources": found.other_sources,
        "offsets": found.offsets,
        "marks": marks.moved,
        "marks_problem": marks.problem or None,
    }
    sides = (flow.target, flow.source) if reverse else (flow.source, flow.target)
    return Answer(fields, chain(_shown(found, new, *sides), _shown_marks(marks, *sides)))


def _shown(found: Rewritten, new: Path, here: str, there: str) -> Iterator[RenderableType]:
    table = offsets_table(here, there)
    for one in found.offsets:
        note = "" if one.is_exact else "the end of the copy: the query had read further"
        offsets = (str(one.partition), str(one.offset), one.to_topic, str(one.to_offset))
        row(table, one.topic, *offsets, note)
    yield table
    what = "resumes after" if found.noted.is_committed else "repeats"
    topics = ",".join(sorted({one.to_topic for one in found.offsets}))
    yield text(f"{new}: the query {what} micro-batch {found.noted.batch}")
    yield text(f"  read {there} with it, and subscribe to {topics}")
    if found.other_sources:
        yield text(f"  sources of other topics, which stay as they are: {found.other_sources}")


def _shown_marks(marks: MovedMarks, here: str, there: str) -> Iterator[RenderableType]:
    for one in marks.moved:
        topics = ",".join(one.topics)
        if one.why_left:
            yield text(
                f"  its mark (micro-batch {one.batch} in {topics}) is not set on {there}: "
                f"{one.why_left}. If the query will write to the copy of {topics}, let the mirror "
                "copy all of it, then run this command again. If it will write to a topic "
                "without these rows, start it once with missingMark=write"
            )
        else:
            yield text(
                f"  its mark (micro-batch {one.batch} in {topics}) is set on {there}: if the query "
                f"will write there, keep its kafka.transactional.id, or set "
                f"{one.transactional_id} if it has none"
            )
    if marks.problem:
        yield text(
            f'  if the query writes with format("twinlog"), its mark on {here} is not set on '
            f"{there}: {marks.problem}"
        )


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
    twinlog offsets translate mm2.properties --flow A:B --topic orders --partition 3 --offset 42
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
