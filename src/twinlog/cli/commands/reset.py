"""`twinlog offsets reset`: set offsets of idle groups on one cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import RenderableType

from twinlog.cli.options import candidates
from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import flow_option, load_file, on_file, one_flow
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer, is_for_programs, write_line
from twinlog.cli.terminal.tables import plain_table, row, text, write_all, write_warnings
from twinlog.config.values.times import NoTime, in_iso, span_in_milliseconds, to_milliseconds
from twinlog.errors import UsageError
from twinlog.quantities import count, first_few, plural

if TYPE_CHECKING:
    from twinlog.client.offset_reset import Goal, GroupReset, OffsetReset
    from twinlog.config.flow.schema import FlowConfig, MirrorConfig

JSON_VERSION: Final = 2
ROWS_SHOWN: Final = 200
"""Maximum number of rows; --format json is complete."""

NUMBERS: Final = ("partition", "now", "new", "start", "end", "records")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChoice:
    """The selected groups, and their selected topics."""

    groups: tuple[str, ...]
    pattern: str | None
    every: bool
    topics: tuple[str, ...]
    topic_pattern: str | None

    def __post_init__(self) -> None:
        ways = [bool(self.groups), self.pattern is not None, self.every]
        if sum(ways) != 1:
            raise UsageError("give --group NAME (several times), or --groups REGEX, or --all")
        if self.topics and self.topic_pattern is not None:
            raise UsageError("give --topic or --topics, not both")

    def names(self, work: OffsetReset) -> list[str]:
        """Return the groups' names; raises UsageError if none matches."""
        if self.groups:
            return list(dict.fromkeys(self.groups))
        from twinlog.control.compare.comparison import matching

        found = work.names(matching(self.pattern, "--groups"))
        if not found:
            what = "--all" if self.every else f"--groups: {self.pattern}"
            raise UsageError(f"{what}: the cluster has no such group, or the user may not list it")
        return found

    @property
    def matches(self) -> Callable[[str], bool]:
        """Return the filter for a group's topics."""
        from twinlog.control.compare.comparison import matching

        return matching(self.topic_pattern, "--topics")


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
    help="To the first records at or after 2026-01-31T12:00:00Z, or milliseconds.",
)
@option("--to-earliest", is_flag=True, help="To the log start offsets.")
@option("--to-latest", is_flag=True, help="To the log end offsets.")
@option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="To this offset.")
@option(
    "--shift-by",
    type=int,
    metavar="NUMBER",
    help="By this many offsets, backwards if negative: -100.",
)
@option(
    "--by-duration",
    metavar="DURATION",
    help="To the first records since this long ago: PT30M, P1D.",
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
    An offset outside the log is set to the nearer end of the log; a time after the newest record is
    the log end. Groups with members are refused, and the members are printed; other groups
    continue. Either all offsets of a group are set, or none.

    \b
    twinlog offsets reset mm2.properties --group shop --to-timestamp 2026-01-31T12:00:00Z --dry-run
    twinlog offsets reset mm2.properties --cluster B --groups 'team-a-.*' --by-duration PT30M
    twinlog offsets reset mm2.properties --cluster A --group shop --topics orders --shift-by -100
    twinlog offsets reset mm2.properties --cluster B --all --to-earliest --yes --format json
    """
    from twinlog.client.offset_reset import OffsetReset
    from twinlog.cluster.client import prompt_client
    from twinlog.control.flow.wiring import admins_of

    goal = _goal(**goals)
    chosen = GroupChoice(
        groups=groups, pattern=pattern, every=every, topics=topics, topic_pattern=topic_pattern
    )
    matches = chosen.matches
    if not (dry_run or yes) and (is_for_programs() or not sys.stdin.isatty()):
        raise UsageError("give --yes, or --dry-run to see what would be set")
    config = load_file(file)
    alias = _alias(config, cluster, flow)
    with prompt_client(admins_of(config.flows)[alias]) as client:
        work = OffsetReset(client)
        plans = work.plan(goal, chosen.names(work), topics=topics, matches=matches)
        if not chosen.groups:  # skip groups without offsets unless they are named
            plans = [one for one in plans if not _has_nothing(one)]
        _show(f"{alias}: {_said(goal)}", plans, warnings_of(config.flows, alias, plans))
        if not dry_run:
            todo = [one for one in plans if one.refused is None]
            if todo and not (yes or _is_wanted(alias, todo)):
                return Answer({}, ["nothing was changed"], 1)
            plans = [work.execute(one) for one in plans]
    fields = {
        "cluster": alias,
        "to": {"kind": goal.kind, "value": goal.value},
        "dry_run": dry_run,
        "groups": plans,
    }
    refused = [text(str(one.refused), style="red") for one in plans if one.refused]
    return Answer(
        fields,
        [*_done(plans, dry_run=dry_run), *refused],
        1 if refused else 0,
        problems=refused,
        version=JSON_VERSION,
    )


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

    ways = [one for one in (at, to_offset, shift_by, by_duration) if one is not None]
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
    """Return the cluster to reset. It must belong to a flow, which has the connection settings."""
    if cluster is None:
        return one_flow(config.flows, flow).flow.target
    if flow is not None:
        raise UsageError("give --cluster or --flow, not both")
    known = sorted({a for one in config.flows for a in (one.flow.source, one.flow.target)})
    if cluster not in known:
        raise UsageError(
            f"--cluster: {cluster} is not a cluster of a flow of the file, which has {known}"
        )
    return cluster


def _has_nothing(plan: GroupReset) -> bool:
    return plan.refused is not None and plan.refused.code == "NO_OFFSETS" and not plan.topic_ids


def warnings_of(
    flows: Sequence[FlowConfig], alias: str, plans: Sequence[GroupReset]
) -> Iterator[str]:
    """Yield warnings about groups that a mirror would move forward again."""
    for one in flows:
        back = [p.group for p in plans if p.goes_back and one.groups.selects(p.group)]
        if one.flow.target == alias and one.groups.sync_s is not None and back:
            yield (
                f"{one.flow} moves idle groups forward to where they are on {one.flow.source} "
                f"(sync.group.offsets.enabled), also {first_few(back)}: pause it first (twinlog "
                f"flow pause), or add them to groups.exclude"
            )


def _is_wanted(alias: str, plans: Sequence[GroupReset]) -> bool:
    """Ask the user to type the cluster's name, because a single key could be pressed by mistake.
    Return whether it was typed."""
    typed = click.prompt(
        f"Type {alias} to set the offsets of {plural(len(plans), 'group')} there",
        err=True,
        default="",
        show_default=False,
    )
    return bool(typed.strip() == alias)


def _said(goal: Goal) -> str:
    return {
        "earliest": "to the log start offsets",
        "latest": "to the log end offsets",
        "offset": f"to offset {goal.value}",
        "shift": f"{abs(goal.value)} offsets {'back' if goal.value < 0 else 'on'}",
        "timestamp": f"to the first records since {in_iso(goal.value)}",
    }[goal.kind.value]


def _show(where: str, plans: Sequence[GroupReset], warnings: Iterator[str]) -> None:
    """Print the plan before asking for confirmation."""
    if is_for_programs():
        for line in warnings:
            write_line(f"warning: {line}", sys.stderr)
        return
    write_all(_parts(where, plans))
    write_warnings(text(("warning: ", "yellow"), line) for line in warnings)


def _parts(where: str, plans: Sequence[GroupReset]) -> Iterator[RenderableType]:
    offsets = sum(len(one.offsets) for one in plans)
    yield text(f"{where}, {plural(len(plans), 'group')}, {plural(offsets, 'partition')}")
    table = plain_table("group", "topic", *NUMBERS, "", numbers=NUMBERS)
    every = [(plan, one) for plan in plans for one in plan.offsets]
    for plan, one in every[:ROWS_SHOWN]:
        now = "none" if one.before is None else str(one.before)
        numbers = (str(one.partition), now, str(one.after), str(one.start), str(one.end))
        moved = "" if one.before is None else _signed(one.after - one.before)
        row(table, plan.group, one.topic, *numbers, moved, one.fit.value)
    if every:
        yield table
    if len(every) > ROWS_SHOWN:
        yield text(f"and {len(every) - ROWS_SHOWN} more (--format json --dry-run has all)")


def _signed(number: int) -> str:
    return f"{'+' if number > 0 else ''}{count(number)}"


def _done(plans: Sequence[GroupReset], *, dry_run: bool) -> Iterator[RenderableType]:
    if dry_run:
        yield text("nothing was changed; without --dry-run these offsets are set")
        return
    done = [one for one in plans if one.is_done]
    if done:
        offsets = sum(len(one.offsets) for one in done)
        what = f"{plural(offsets, 'offset')} of {plural(len(done), 'group')} set"
        yield text(what, style="green")
