"""`twinlog switchover`: clients go over while both clusters live, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from twinlog.cli.commands.cutover.begin import (
    Evidence,
    cutover_options,
    is_confirmed,
    require_an_answer,
    run_options,
    scope_of,
)
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Format
from twinlog.errors import UsageError

GATES: Final = (
    *("mirror", "copy", "lag", "replicas", "configs", "acls", "groups", "foreign", "transactions"),
)
"""As `control.cutover.gates` names them; that is not imported for `--help`."""


def gate_options(command: Any) -> Any:
    """Given to the command as most_lag."""
    return option(
        "--max-lag",
        "most_lag",
        type=click.IntRange(min=0),
        default=1000,
        show_default=True,
        metavar="RECORDS",
        help="The gate `lag` is open while no more are on their way.",
    )(command)


def fence_options(command: Any) -> Any:
    """Given to the command as fence and fence_hook."""
    for one in (
        option(
            "--fence-hook",
            default="",
            metavar="CMD",
            help="With --fence hook: run with TWINLOG_STEP=fence, and unfence by `abort`.",
        ),
        option(
            "--fence",
            type=click.Choice(["acl", "hook", "none"]),
            default="acl",
            show_default=True,
            help="How producers are kept from the source; none: you have stopped them.",
        ),
    ):
        command = one(command)
    return command


@click.group("switchover", cls=CommandGroup)
def switchover() -> None:
    """Move clients to the target of a flow, planned: producers first, and nothing is lost.

    The running mirror copies what is left. Each run looks at both clusters and resumes from what is
    there, so a run that was killed is simply given again. Until the promotion `abort` takes
    everything back.

    \b
    twinlog switchover plan mm2.properties --flow 'A->B'
    twinlog switchover run mm2.properties --flow 'A->B' --hook './move-dns.sh'
    twinlog switchover abort mm2.properties --flow 'A->B'
    """


@switchover.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@cutover_options
@gate_options
def plan(file: Path, flow: str | None, topics: str | None, output: Format, most_lag: int) -> int:
    """Show every gate with its evidence, and where each group would resume.

    Exit code 0 where every gate is open, else 1.

    \b
    twinlog switchover plan mm2.properties --flow 'A->B'
    twinlog switchover plan mm2.properties --topics 'orders.*' --format json
    """
    return _look(file, flow, topics, output, "plan", most_lag)


@switchover.command("status")
@click.argument("file", type=click.Path(path_type=Path))
@cutover_options
@gate_options
def status(file: Path, flow: str | None, topics: str | None, output: Format, most_lag: int) -> int:
    """Show how far a switchover is, from what is on the two clusters; exit codes as of `plan`.

    \b
    twinlog switchover status mm2.properties --flow 'A->B'
    """
    return _look(file, flow, topics, output, "status", most_lag)


@switchover.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@cutover_options
@gate_options
@fence_options
@option(
    "--hook",
    default="",
    metavar="CMD",
    help="Run behind the promotion, to switch clients; it is given the flow and both clusters.",
)
@option(
    "--accept",
    "accepted",
    multiple=True,
    type=click.Choice(GATES),
    help="Continue though this gate is closed; may be given several times.",
)
@option(
    "--within",
    "within_s",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="How long each step waits for what it needs.",
)
@run_options
def run(  # noqa: PLR0913, PLR0917 (the options)
    file: Path,
    flow: str | None,
    topics: str | None,
    output: Format,
    most_lag: int,
    fence: str,
    fence_hook: str,
    hook: str,
    accepted: tuple[str, ...],
    within_s: int,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> int:
    """Fence producers off, wait until all is copied, set the groups, and promote.

    A mirror must run. Where a step cannot be done, the run ends with exit code 1 and says why; what
    was done stays, and the same command resumes from there.

    \b
    twinlog switchover run mm2.properties --flow 'A->B' --dry-run
    twinlog switchover run mm2.properties --flow 'A->B' --yes --hook './move-dns.sh'
    twinlog switchover run mm2.properties --fence none --accept acls
    """
    from twinlog.control.cutover.switchover import FenceKind, Switchover, Ways

    require_an_answer(yes=yes, dry_run=dry_run)
    shown = Evidence(output=output, command="switchover run")
    ways = Ways(
        fence=FenceKind(_checked(fence, fence_hook)),
        fence_hook=fence_hook,
        hook=hook,
        accepted=accepted,
        most_lag=most_lag,
        within_s=within_s,
    )
    with scope_of(file, flow, topics, reason=reason) as scope:
        work = Switchover(scope, ways, shown.say)
        found = work.plan()
        for line in found.lines():
            shown.say(line)
        if dry_run:
            shown.end({"dry_run": True, "plan": found.as_json()})
            return 0 if found.is_open else 1
        if not yes and not is_confirmed(scope.name, "Producers on the source will be stopped."):
            shown.say("nothing was changed")
            return 1
        work.run(found)
        shown.end({"dry_run": False, "plan": found.as_json(), "after": work.plan().as_json()})
    return 0


@switchover.command("abort")
@click.argument("file", type=click.Path(path_type=Path))
@cutover_options
@fence_options
def abort(
    file: Path,
    flow: str | None,
    topics: str | None,
    output: Format,
    fence: str,
    fence_hook: str,
) -> int:
    """Take the fence away, before the promotion; behind it this is refused.

    \b
    twinlog switchover abort mm2.properties --flow 'A->B'
    twinlog switchover abort mm2.properties --fence hook --fence-hook './producers.sh'
    """
    from twinlog.control.cutover.switchover import FenceKind, Switchover, Ways

    shown = Evidence(output=output, command="switchover abort")
    ways = Ways(fence=FenceKind(_checked(fence, fence_hook)), fence_hook=fence_hook)
    with scope_of(file, flow, topics) as scope:
        Switchover(scope, ways, shown.say).abort()
    shown.end({})
    return 0


def _checked(fence: str, fence_hook: str) -> str:
    if (fence == "hook") != bool(fence_hook):
        raise UsageError("--fence-hook: give it with --fence hook, and only with it")
    return fence


def _look(
    file: Path, flow: str | None, topics: str | None, output: Format, verb: str, most_lag: int
) -> int:
    from twinlog.control.cutover.switchover import Switchover, Ways

    shown = Evidence(output=output, command=f"switchover {verb}")
    with scope_of(file, flow, topics) as scope:
        found = Switchover(scope, Ways(most_lag=most_lag), shown.say).plan()
    for line in found.lines():
        shown.say(line)
    shown.end({"plan": found.as_json()})
    return 0 if found.is_open else 1
