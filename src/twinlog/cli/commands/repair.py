"""`twinlog repair`: show and accept records of other clients in remote topics."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from twinlog.cli.commands.cutover import is_confirmed, require_an_answer
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.flow_option import ChosenFlow, on_flow, topic_pattern
from twinlog.cli.options.option import option, options, yes_option
from twinlog.cli.terminal.output import Answer, is_for_programs, write_line
from twinlog.quantities import plural

if TYPE_CHECKING:
    from twinlog.client.repair import RepairLine


@click.group("repair", cls=CommandGroup)
def repair() -> None:
    """Accept records of other clients in remote topics, so that copying resumes after them.

    \b
    twinlog repair plan mm2.properties
    twinlog repair run mm2.properties --topics orders
    """


_options = options(
    on_flow,
    option(
        "--topics",
        metavar="REGEX,...",
        help="Source topics, in the syntax of the key `topics`; default: all.",
    ),
)


@repair.command("plan")
@_options
def plan(chosen: ChosenFlow, *, topics: str | None) -> Answer:
    """Print records of other clients in remote topics, and where copying would resume.

    The plan has each partition that has stopped with EXTRA_RECORDS, TAKEN_OVER, GAP_WRITTEN or
    DIVERGED. Only EXTRA_RECORDS can be accepted; for the other codes it prints what to do. Exit
    code 1 if a partition cannot be accepted.

    \b
    twinlog repair plan mm2.properties
    twinlog repair plan mm2.properties --topics orders --format json
    """
    from twinlog.client.repair import TopicRepair

    with chosen.open(TopicRepair, "") as work:
        lines = work.plan(topic_pattern(topics))
    fields = {"flow": chosen.name, "partitions": [line.printed() for line in lines]}
    return Answer(
        fields, _lines_as_text(lines), int(any(line.found is None for line in lines)), version=2
    )


@repair.command("run")
@yes_option
@option("--dry-run", is_flag=True, help="Print the plan, and change nothing.")
@option("--reason", default="", metavar="TEXT", help="Written to the mirror's log.")
@_options
def run(chosen: ChosenFlow, *, yes: bool, dry_run: bool, reason: str, topics: str | None) -> Answer:
    """Accept the records that `repair plan` shows: they stay, and copying resumes after them.

    Refused if the records have changed since the plan was shown: stop the other producer first. A
    repair cannot be undone. Groups keep their offsets before, in and after the accepted records.

    \b
    twinlog repair run mm2.properties --dry-run
    twinlog repair run mm2.properties --topics orders --reason 'a test wrote there' --yes
    """
    from twinlog.client.repair import TopicRepair

    require_an_answer(yes=yes, dry_run=dry_run)
    with chosen.open(TopicRepair, reason) as work:
        lines = work.plan(topic_pattern(topics))
        acceptable = [line for line in lines if line.found is not None]
        if not is_for_programs() or not yes:
            for text in _lines_as_text(lines):
                write_line(text, sys.stderr if is_for_programs() else None)
        offsets = sum(
            line.wanted.accepted.offsets for line in acceptable if line.wanted is not None
        )
        what = f"{plural(offsets, 'offset')} in {plural(len(acceptable), 'partition')} will stay."
        if not dry_run and acceptable and not (yes or is_confirmed(chosen.name, what)):
            write_line("nothing was changed", sys.stderr)
            return Answer({}, exit_code=1, version=2)
        if not dry_run:
            work.accept(acceptable)
    rows = [line.printed() for line in lines]
    fields = {"flow": chosen.name, "dry_run": dry_run, "partitions": rows}
    done = f"{plural(len(acceptable), 'partition')}: {'would be' if dry_run else 'is'} accepted"
    return Answer(
        fields, [done] if acceptable else (), int(len(acceptable) < len(lines)), version=2
    )


def _lines_as_text(lines: Iterable[RepairLine]) -> Iterable[str]:
    texts = [text for line in lines for text in line.lines()]
    return texts or ["no partition has stopped because of records of other clients"]
