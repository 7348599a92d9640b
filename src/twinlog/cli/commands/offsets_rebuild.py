"""`twinlog offsets rebuild`: rebuild an offset map that was deleted."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import RenderableType

from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import ChosenFlow, on_flow, topics_option
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer, write_line
from twinlog.cli.terminal.reading import ReadingLine
from twinlog.cli.terminal.tables import plain_table, row, text
from twinlog.errors import UsageError
from twinlog.quantities import count, plural

if TYPE_CHECKING:
    from twinlog.control.rebuild.map_rebuild import RebuiltLine
    from twinlog.mirror.plan import PartitionPlan

NUMBERS: Final = ("partition", "from", "to", "runs", "source resumes at")


@click.command("rebuild", cls=Command)
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
    twinlog offsets rebuild mm2.properties --flow 'A->B' --topics 'orders.*' --yes
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
                return Answer({}, exit_code=1)
            work.lead()
        lines = list(work.run(plans))
    fields = {"flow": name, "dry_run": dry_run, "partitions": map(_as_json, lines)}
    is_refused = any(line.outcome is LineOutcome.REFUSED for line in lines)
    report = _report(lines, dry_run=dry_run)
    return Answer(fields, report, int(is_refused), problems=_refusals(lines))


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


def _as_json(line: RebuiltLine) -> dict[str, Any]:
    return {
        "topic": line.source.topic,
        "partition": line.source.partition,
        "target_topic": line.target.topic,
        "outcome": line.outcome.value,
        "first_target_offset": line.first,
        "target_end": line.end,
        "runs": line.runs,
        "next_source_offset": line.next_upstream,
        "code": None if line.problem is None else line.problem.code,
        "message": None if line.problem is None else line.problem.message,
    }


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
