"""`twinlog repair`: show and accept records of other clients in remote topics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.flow_option import flow_option, one_flow
from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.option import option
from twinlog.cli.options.run_options import secrets_option
from twinlog.cli.options.steering_options import topic_pattern
from twinlog.cli.terminal.output import is_for_programs, write_line, write_object
from twinlog.errors import UsageError
from twinlog.quantities import plural

if TYPE_CHECKING:
    from twinlog.client.repair import RepairLine, TopicRepair


@click.group("repair", cls=CommandGroup)
def repair() -> None:
    """Accept records of other clients in remote topics, so that copying resumes after them.

    \b
    twinlog repair plan mm2.properties
    twinlog repair run mm2.properties --topics orders
    """


def _options(command: Any) -> Any:
    topics = option(
        "--topics",
        default=None,
        metavar="REGEX,...",
        help="Source topics, in the syntax of the key `topics`; default: all.",
    )
    return flow_option(secrets_option(format_option(topics(command))))


@repair.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@_options
def plan(file: Path, *, topics: str | None, flow: str | None) -> int:
    """Print records of other clients in remote topics, and where copying would resume.

    The plan has each partition that has stopped with EXTRA_RECORDS, TAKEN_OVER, GAP_WRITTEN or
    DIVERGED. Only EXTRA_RECORDS can be accepted; for the other codes it prints what to do. Exit
    code 1 if a partition cannot be accepted.

    \b
    twinlog repair plan mm2.properties
    twinlog repair plan mm2.properties --topics orders --format json
    """
    with _repair(file, flow, "") as (one, name):
        lines = one.plan(topic_pattern(topics))
    if is_for_programs():
        body = {"flow": name, "partitions": [line.as_json() for line in lines]}
        write_object(body)
    else:
        _show(lines)
    return 1 if any(line.found is None for line in lines) else 0


@repair.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@option("--yes", is_flag=True, help="Do not ask for confirmation.")
@option("--dry-run", is_flag=True, help="Print the plan, and change nothing.")
@option("--reason", default="", metavar="TEXT", help="Written to the log.")
@_options
def run(
    file: Path,
    *,
    yes: bool,
    dry_run: bool,
    reason: str,
    topics: str | None,
    flow: str | None,
) -> int:
    """Accept the records that `repair plan` shows: they stay, and copying resumes after them.

    Refused if the records have changed since the plan was shown: stop the other producer first. It
    cannot be undone. Groups keep their offsets before, in and after the accepted records.

    \b
    twinlog repair run mm2.properties --dry-run
    twinlog repair run mm2.properties --topics orders --reason 'a test wrote there' --yes
    """
    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError("give --yes, or --dry-run to see what would be done")
    with _repair(file, flow, reason) as (one, name):
        lines = one.plan(topic_pattern(topics))
        can = [line for line in lines if line.found is not None]
        if not is_for_programs() or not yes:
            _show(lines, sys.stderr if is_for_programs() else None)
        if not dry_run and can and not (yes or _is_confirmed(name, can)):
            write_line("nothing was changed", sys.stderr)
            return 1
        if not dry_run:
            one.accept(can)
    if is_for_programs():
        body = {
            "flow": name,
            "dry_run": dry_run,
            "partitions": [line.as_json() for line in lines],
        }
        write_object(body)
    elif can:
        write_line(f"{plural(len(can), 'partition')}: {'would be' if dry_run else 'is'} accepted")
    return 1 if len(can) < len(lines) else 0


@contextmanager
def _repair(file: Path, flow: str | None, reason: str) -> Iterator[tuple[TopicRepair, str]]:
    from twinlog.cli.options.configuration import load_file
    from twinlog.client.repair import TopicRepair
    from twinlog.control.flow.wiring import flow_setup

    config = one_flow(load_file(file).flows, flow)
    setup = flow_setup(config)
    one = TopicRepair(config, setup.source, setup.target, reason)
    try:
        yield one, str(config.flow)
    finally:
        one.close()


def _show(lines: list[RepairLine], stream: Any = None) -> None:
    if not lines:
        write_line("no partition has stopped because of its records", stream)
    for line in lines:
        for text in line.lines():
            write_line(text, stream)


def _is_confirmed(name: str, can: list[RepairLine]) -> bool:
    offsets = sum(line.wanted.accepted.offsets for line in can if line.wanted is not None)
    question = f"{plural(offsets, 'offset')} in {plural(len(can), 'partition')} will stay."
    answer = click.prompt(f"{question} Type {name} to continue", default="", err=True)
    return str(answer).replace(" ", "") == name
