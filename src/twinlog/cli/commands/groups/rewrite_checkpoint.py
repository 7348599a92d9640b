"""`twinlog offsets rewrite-checkpoint`: move a Spark stream to the other cluster."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType

from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import ChosenFlow, on_flow
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer
from twinlog.cli.terminal.tables import offsets_table, row, text

if TYPE_CHECKING:
    from twinlog.client.query_mark import MovedMarks
    from twinlog.client.spark_checkpoint import Rewritten


@click.command("rewrite-checkpoint", cls=Command)
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
    from twinlog.client import query_mark, spark_checkpoint
    from twinlog.client.group_translation import FlowTranslation

    flow = chosen.config.flow
    with chosen.open(FlowTranslation) as translation:
        marks = query_mark.move_marks(
            translation, spark_checkpoint.query_of(checkpoint), reverse=reverse
        )
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
