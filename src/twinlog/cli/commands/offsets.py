"""`twinlog offsets`: translate offsets to the other cluster, reset groups, and rebuild the map."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import RenderableType
from rich.table import Table

from twinlog.cli.options import candidates
from twinlog.cli.options.candidates import names_of_topics
from twinlog.cli.options.command import Command, CommandGroup
from twinlog.cli.options.flow_option import (
    ChosenFlow,
    flow_option,
    load_file,
    on_file,
    on_flow,
    one_flow,
    topics_option,
)
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer, is_for_programs, write_line
from twinlog.cli.terminal.reading import ReadingLine
from twinlog.cli.terminal.tables import (
    plain_table,
    row,
    text,
    write_all,
    write_always,
)
from twinlog.config.values.times import NoTime, in_iso, span_in_milliseconds, to_milliseconds
from twinlog.errors import UsageError
from twinlog.model import Flow
from twinlog.quantities import count, first_few, plural

if TYPE_CHECKING:
    from twinlog.client.group_translation import TranslatedGroup, TranslatedOffset
    from twinlog.client.offset_reset import Goal, GroupReset, OffsetReset
    from twinlog.client.spark_checkpoint import MovedMarks, Rewritten
    from twinlog.config.flow.schema import FlowConfig, MirrorConfig
    from twinlog.control.rebuild.map_rebuild import RebuiltLine
    from twinlog.mirror.plan import PartitionPlan


# `twinlog offsets reset` sets the offsets of idle groups on one cluster.

JSON_VERSION: Final = 2
ROWS_SHOWN: Final = 200
"""Maximum number of offsets in the output for people. --format json has all."""

RESET_NUMBERS: Final = ("partition", "now", "new", "start", "end", "records")


@click.command("reset", cls=Command)
@on_file
@option(
    "--cluster",
    metavar="ALIAS",
    shell_complete=candidates.aliases,
    help="The groups' cluster, by its alias in FILE; default: the target of --flow.",
)
@flow_option
@option("--group", "groups", multiple=True, help="A group; may be given several times.")
@option("--groups", "pattern", metavar="REGEX", help="Groups whose whole name matches.")
@option("--all", "every", is_flag=True, help="All groups of the cluster that have offsets.")
@option(
    "--topics",
    "topic_pattern",
    metavar="REGEX",
    help="Only topics whose whole name matches, among those the group has offsets of.",
)
@option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=candidates.names_of_topics,
    help="All partitions of this topic, even if the group has no offset yet.",
)
@option(
    "--to-timestamp",
    "at",
    metavar="TIME",
    help="To the first records at or after this time: 2026-01-31T12:00:00Z, or milliseconds.",
)
@option("--to-earliest", is_flag=True, help="To the log start offsets.")
@option("--to-latest", is_flag=True, help="To the log end offsets.")
@option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="To this offset.")
@option(
    "--shift-by",
    type=int,
    metavar="NUMBER",
    help="By this many offsets; a negative number shifts backwards: -100.",
)
@option(
    "--by-duration",
    metavar="DURATION",
    help="To the first records that are at most this old: PT30M, P1D.",
)
@option("--dry-run", is_flag=True, help="Print what would be set, and set nothing.")
@option("--yes", "--execute", "yes", is_flag=True, help="Do not ask for confirmation.")
def reset(  # noqa: PLR0913, PLR0917 (options of a command)
    file: Path,
    cluster: str | None,
    flow: str | None,
    groups: tuple[str, ...],
    pattern: str | None,
    every: bool,
    topic_pattern: str | None,
    topics: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    **goals: Any,
) -> Answer:
    """Set offsets of idle groups, on the source or on the target.

    The plan is printed first: each group's current offsets, its new offsets, and the log's range.
    An offset outside the log is set to the nearer end of the log; a time after the newest record
    means the log end. Groups with members are refused, and the members are printed; other groups
    continue. Either all offsets of a group are set, or none.

    \b
    twinlog offsets reset mm2.properties --group shop --to-timestamp 2026-01-31T12:00:00Z --dry-run
    twinlog offsets reset mm2.properties --cluster B --groups 'team-a-.*' --by-duration PT30M
    twinlog offsets reset mm2.properties --cluster A --group shop --topics orders --shift-by -100
    twinlog offsets reset mm2.properties --cluster B --all --to-earliest --yes --format json
    """
    from twinlog.client.offset_reset import OffsetReset
    from twinlog.cluster.client import prompt_client
    from twinlog.control.compare import matching
    from twinlog.control.flow.wiring import admins_of

    goal = _goal(**goals)
    if bool(groups) + (pattern is not None) + every != 1:
        raise UsageError("give --group NAME (several times), or --groups REGEX, or --all")
    if topics and topic_pattern is not None:
        raise UsageError("give --topic or --topics, not both")
    matches = matching(topic_pattern, "--topics")
    if not (dry_run or yes) and (is_for_programs() or not sys.stdin.isatty()):
        raise UsageError("give --yes, or --dry-run to see what would be set")
    config = load_file(file)
    alias = _alias(config, cluster, flow)
    with prompt_client(admins_of(config.flows)[alias]) as client:
        work = OffsetReset(client)
        names = [*dict.fromkeys(groups)] or _names(work, pattern)
        plans = work.plan(goal, names, topics=topics, matches=matches)
        if not groups:
            plans = [*filter(_has_offsets, plans)]
        _show(f"{alias}: {_goal_text(goal)}", plans, warnings_of(config.flows, alias, plans))
        if not dry_run:
            todo = [plan for plan in plans if plan.refused is None]
            if todo and not (yes or _reset_is_wanted(alias, todo)):
                return Answer({}, ["nothing was changed"], 1)
            plans = [work.execute(plan) for plan in plans]
    fields = {
        "cluster": alias,
        "to": {"kind": goal.kind, "value": goal.value},
        "dry_run": dry_run,
        "groups": plans,
    }
    refused = [text(str(plan.refused), style="red") for plan in plans if plan.refused]
    return Answer(
        fields,
        [*_result_parts(plans, dry_run=dry_run), *refused],
        1 if refused else 0,
        problems=refused,
        version=JSON_VERSION,
    )


def _names(work: OffsetReset, pattern: str | None) -> list[str]:
    """Return the groups of --groups, or all groups. Raises UsageError if there is none."""
    from twinlog.control.compare import matching

    groups = work.names(matching(pattern, "--groups"))
    if not groups:
        what = "--all" if pattern is None else f"--groups: {pattern}"
        raise UsageError(f"{what}: the cluster has no such group, or this user cannot see it")
    return groups


def _has_offsets(plan: GroupReset) -> bool:
    """Return False for a group without offsets, which is left out unless it is named."""
    is_empty = plan.refused is not None and plan.refused.code == "NO_OFFSETS"
    return bool(plan.topic_ids) or not is_empty


def _goal(
    *,
    at: str | None,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    by_duration: str | None,
) -> Goal:
    from twinlog.client.offset_reset import Goal, GoalKind

    ways = [way for way in (at, to_offset, shift_by, by_duration) if way is not None]
    if len(ways) + to_earliest + to_latest != 1:
        raise UsageError(
            "give one of --to-timestamp, --to-earliest, --to-latest, --to-offset, --shift-by, "
            "--by-duration"
        )
    if to_earliest:
        return Goal(kind=GoalKind.EARLIEST)
    if to_latest:
        return Goal(kind=GoalKind.LATEST)
    if to_offset is not None:
        return Goal(kind=GoalKind.OFFSET, value=to_offset)
    if shift_by is not None:
        return Goal(kind=GoalKind.SHIFT, value=shift_by)
    try:
        if at is not None:
            return Goal(kind=GoalKind.TIMESTAMP, value=to_milliseconds(at))
        back_ms = span_in_milliseconds(by_duration or "")
    except NoTime as problem:
        flag = "--by-duration" if at is None else "--to-timestamp"
        raise UsageError(f"{flag}: {problem}") from None
    return Goal(kind=GoalKind.TIMESTAMP, value=max(0, int(time.time() * 1000) - back_ms))


def _alias(config: MirrorConfig, cluster: str | None, flow: str | None) -> str:
    """Return the alias of the cluster whose groups are reset. Raises UsageError unless the cluster
    belongs to a flow, because the flow has the connection settings.
    """
    if cluster is None:
        return one_flow(config.flows, flow).flow.target
    if flow is not None:
        raise UsageError("give --cluster or --flow, not both")
    known = sorted({a for flow in config.flows for a in (flow.flow.source, flow.flow.target)})
    if cluster not in known:
        raise UsageError(
            f"--cluster: no flow of the file has a cluster {cluster}; the clusters are {known}"
        )
    return cluster


def warnings_of(
    flows: Sequence[FlowConfig], alias: str, plans: Sequence[GroupReset]
) -> Iterator[str]:
    """Yield a warning for each flow whose sync would move groups forward again after the reset."""
    for flow in flows:
        back = [p.group for p in plans if p.goes_back and flow.groups.selects(p.group)]
        if flow.flow.target == alias and flow.groups.sync_s is not None and back:
            yield (
                f"{flow.flow} syncs offsets of idle groups (sync.group.offsets.enabled), so it "
                f"would move {first_few(back)} forward again: pause the flow first (twinlog flow "
                f"pause), or add these groups to groups.exclude"
            )


def _reset_is_wanted(alias: str, plans: Sequence[GroupReset]) -> bool:
    """Ask the user to type the cluster's alias, because a single key could be pressed by mistake.
    Return True if it was typed.
    """
    typed = click.prompt(
        f"Type {alias} to set the offsets of {plural(len(plans), 'group')} there",
        err=True,
        default="",
        show_default=False,
    )
    return bool(typed.strip() == alias)


def _goal_text(goal: Goal) -> str:
    return {
        "earliest": "to the log start offsets",
        "latest": "to the log end offsets",
        "offset": f"to offset {goal.value}",
        "shift": f"{abs(goal.value)} offsets {'back' if goal.value < 0 else 'on'}",
        "timestamp": f"to the first records since {in_iso(goal.value)}",
    }[goal.kind.value]


def _show(where: str, plans: Sequence[GroupReset], warnings: Iterator[str]) -> None:
    """Print the plan of a reset and its warnings, but only warnings if stdout is for programs."""
    if is_for_programs():
        for line in warnings:
            write_line(f"warning: {line}", sys.stderr)
        return
    write_all(_reset_parts(where, plans))
    write_always(text(("warning: ", "yellow"), line) for line in warnings)


def _reset_parts(where: str, plans: Sequence[GroupReset]) -> Iterator[RenderableType]:
    offsets = sum(len(plan.offsets) for plan in plans)
    yield text(f"{where}, {plural(len(plans), 'group')}, {plural(offsets, 'partition')}")
    table = plain_table("group", "topic", *RESET_NUMBERS, "", numbers=RESET_NUMBERS)
    rows = [(plan, offset) for plan in plans for offset in plan.offsets]
    for plan, offset in rows[:ROWS_SHOWN]:
        now: int | str = "none" if offset.before is None else offset.before
        numbers = (offset.partition, now, offset.after, offset.start, offset.end)
        step = offset.after - (offset.before or 0)
        moved = "" if offset.before is None else f"{'+' if step > 0 else ''}{count(step)}"
        row(table, plan.group, offset.topic, *numbers, moved, offset.fit.value)
    if rows:
        yield table
    if len(rows) > ROWS_SHOWN:
        yield text(f"and {len(rows) - ROWS_SHOWN} more (--format json --dry-run has all)")


def _result_parts(plans: Sequence[GroupReset], *, dry_run: bool) -> Iterator[RenderableType]:
    if dry_run:
        yield text("nothing was changed; without --dry-run these offsets are set")
        return
    done = [plan for plan in plans if plan.is_done]
    if done:
        offsets = sum(len(reset.offsets) for reset in done)
        what = f"{plural(offsets, 'offset')} of {plural(len(done), 'group')} set"
        yield text(what, style="green")


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
        ReadingLine() as shown,
        closing(MapRebuild(chosen.setup, on_step=shown.step, say=shown.write_line)) as work,
    ):
        plans = work.plan(pattern)
        if not dry_run:
            if not (yes or _is_wanted(name, plans)):
                write_line("nothing was changed", sys.stderr)
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
    except (re.error, OverflowError, RecursionError) as problem:
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
        known = [line.first, line.end, line.runs, line.next_upstream] if line.runs else []
        row(table, line.target.topic, line.target.partition, line.outcome.value, *known)
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
    help="Continue although the query has read records that are not copied yet. If they are copied "
    "later, the query reads them again.",
)
def rewrite_checkpoint(
    chosen: ChosenFlow, checkpoint: Path, new: Path, reverse: bool, may_repeat: bool
) -> Answer:
    """Rewrite a checkpoint of Spark Structured Streaming for the other cluster of a flow.

    CHECKPOINT belongs to a stopped query that has read the source with format("twinlog") or
    format("kafka"). NEW is a copy of it with the offsets of the same records on the target.
    CHECKPOINT is not changed. No mirror needs to run. If the query writes with format("twinlog") to
    topics that the flow has copied completely, the number of its last micro-batch is also stored on
    the target.

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
        rewritten = spark_checkpoint.rewrite_checkpoint(
            translation, flow, checkpoint, new, reverse=reverse, may_repeat=may_repeat
        )
    fields = {
        "flow": chosen.name,
        "reverse": reverse,
        "checkpoint": checkpoint,
        "new": new,
        "batch": rewritten.noted.batch,
        "is_committed": rewritten.noted.is_committed,
        "other_sources": rewritten.other_sources,
        "offsets": rewritten.offsets,
        "marks": marks.moved,
        "marks_problem": marks.problem or None,
    }
    sides = (flow.target, flow.source) if reverse else (flow.source, flow.target)
    return Answer(fields, chain(_shown(rewritten, new, *sides), _shown_marks(marks, *sides)))


def _shown(rewritten: Rewritten, new: Path, source: str, target: str) -> Iterator[RenderableType]:
    further = "the end of the copy: the query had read further"
    notes = ("" if offset.is_exact else further for offset in rewritten.offsets)
    yield _offsets_table(source, target, rewritten.offsets, notes)
    what = "resumes after" if rewritten.noted.is_committed else "repeats"
    topics = ",".join(sorted({offset.to_topic for offset in rewritten.offsets}))
    yield text(f"{new}: the query {what} micro-batch {rewritten.noted.batch}")
    yield text(f"  read {target} with it, and subscribe to {topics}")
    if rewritten.other_sources:
        yield text(f"  sources of other topics, which stay as they are: {rewritten.other_sources}")


def _offsets_table(
    source: str, target: str, offsets: Sequence[TranslatedOffset], notes: Iterable[str]
) -> Table:
    """Return a table of offsets on `source`, translations to `target`, and remarks."""
    numbers = ("partition", "offset", f"offset on {target}")
    table = plain_table(source, *numbers[:2], target, numbers[2], "", numbers=numbers)
    for each, note in zip(offsets, notes, strict=True):
        row(table, each.topic, each.partition, each.offset, each.to_topic, each.to_offset, note)
    return table


def _shown_marks(marks: MovedMarks, source: str, target: str) -> Iterator[RenderableType]:
    for mark in marks.moved:
        topics = ",".join(mark.topics)
        if mark.why_left:
            yield text(
                f"  the query's mark (micro-batch {mark.batch} in {topics}) is not set on "
                f"{target}: {mark.why_left}. If the query will write to the copy of {topics}, let "
                "the mirror copy all of it, then run this command again. If the query will write "
                "to a topic without these rows, start the query once with missingMark=write"
            )
        else:
            yield text(
                f"  the query's mark (micro-batch {mark.batch} in {topics}) is set on {target}: if "
                "the query will write there, keep its kafka.transactional.id, or set "
                f"{mark.transactional_id} if it has none"
            )
    if marks.problem:
        yield text(
            f'  if the query writes with format("twinlog"), its mark on {source} is not set on '
            f"{target}: {marks.problem}"
        )


@offsets.command("translate")
@on_flow
@option("--group", help="Translate all offsets that this group has committed.")
@option(
    "--topic",
    shell_complete=names_of_topics,
    help="Translate one offset of this topic. With --reverse: the topic's name on the target.",
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
    """Print the exact offsets at which to resume on the other cluster, from the offset map.

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
            "--group translates all offsets of the group, so it excludes --offset and --partition. "
            "To translate one offset, replace --group with --topic"
        )
    with chosen.open(FlowTranslation) as translation:
        if group is not None:
            translated = translation.group(group, reverse=reverse)
        else:
            assert topic is not None and offset is not None  # noqa: S101 (checked above)
            tp = TopicPartition(topic, partition or 0)
            translated = TranslatedGroup(
                offsets=(translation.translate(tp, offset, reverse=reverse),)
            )
    fields = {
        "flow": chosen.name,
        "reverse": reverse,
        "from_checkpoints": translated.from_checkpoints,
        "offsets": translated.offsets,
    }
    return Answer(fields, _translated(translated, chosen.config.flow, reverse=reverse))


def _translated(
    translated: TranslatedGroup, flow: Flow, *, reverse: bool
) -> Iterator[RenderableType]:
    source, target = (flow.target, flow.source) if reverse else (flow.source, flow.target)
    yield _offsets_table(source, target, translated.offsets, map(_note, translated.offsets))
    if translated.from_checkpoints:
        yield text(
            f"{flow.source} does not respond: these are the offsets of the group's newest "
            "checkpoints",
            style="yellow",
        )


def _note(offset: TranslatedOffset) -> str:
    if offset.to_offset is None:
        return "not copied by Twinlog"
    return "" if offset.is_exact else "not exact: not copied yet, or by MirrorMaker 2"
