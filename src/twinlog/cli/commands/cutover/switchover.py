"""`twinlog switchover`: move clients while both clusters run, without loss."""

from __future__ import annotations

from typing import Any, Final

import click

from twinlog.cli.commands.cutover.begin import (
    Evidence,
    cutover_options,
    require_an_answer,
    run_options,
    scope_of,
)
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.flow_option import ChosenFlow
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer
from twinlog.errors import UsageError

GATES: Final = (
    *("mirror", "topics", "copy", "lag", "replicas", "configs", "acls", "groups", "foreign"),
    "transactions",
)
"""The gates of `control.cutover.gates`, which is not imported for `--help`."""


def gate_options(command: Any) -> Any:
    """Pass most_lag to the command."""
    return option(
        "--max-lag",
        "most_lag",
        type=click.IntRange(min=0),
        default=1000,
        show_default=True,
        metavar="RECORDS",
        help="The gate `lag` is open up to this lag.",
    )(command)


def fence_options(command: Any) -> Any:
    """Pass fence and fence_hook to the command."""
    for one in (
        option(
            "--fence-hook",
            default="",
            metavar="CMD",
            help="With --fence hook: shell command, run with TWINLOG_STEP=fence, and with "
            "TWINLOG_STEP=unfence by `abort`.",
        ),
        option(
            "--fence",
            type=click.Choice(["acl", "hook", "none"]),
            default="acl",
            show_default=True,
            help="How to fence producers from the source; none: you have stopped them.",
        ),
    ):
        command = one(command)
    return command


@click.group("switchover", cls=CommandGroup)
def switchover() -> None:
    """Move clients to the target of a flow as planned: producers first, and without loss.

    The running mirror copies the remaining records. Each run checks both clusters and resumes from
    their state, so repeat a run that was killed. Until the promotion, `abort` takes everything
    back.

    \b
    twinlog switchover plan mm2.properties --flow 'A->B'
    twinlog switchover run mm2.properties --flow 'A->B' --hook './move-dns.sh'
    twinlog switchover abort mm2.properties --flow 'A->B'
    """


@switchover.command("plan")
@cutover_options
@gate_options
def plan(chosen: ChosenFlow, topics: str | None, most_lag: int) -> Answer:
    """Print every gate with its evidence, and where each group would resume.

    Exit code 0 if every gate is open, else 1.

    \b
    twinlog switchover plan mm2.properties --flow 'A->B'
    twinlog switchover plan mm2.properties --topics 'orders.*' --format json
    """
    return _show(chosen, topics, most_lag)


@switchover.command("status")
@cutover_options
@gate_options
def status(chosen: ChosenFlow, topics: str | None, most_lag: int) -> Answer:
    """Print the progress of a switchover, as read from both clusters; exit codes as of `plan`.

    \b
    twinlog switchover status mm2.properties --flow 'A->B'
    """
    return _show(chosen, topics, most_lag)


@switchover.command("run")
@cutover_options
@gate_options
@fence_options
@option(
    "--hook",
    default="",
    metavar="CMD",
    help="Shell command that is run after the promotion, to switch clients; its environment names "
    "the flow and both clusters.",
)
@option(
    "--accept",
    "accepted",
    multiple=True,
    type=click.Choice(GATES),
    help="Continue even if this gate is closed; may be given several times.",
)
@option(
    "--within",
    "within_s",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="Timeout of each step.",
)
@run_options
def run(  # noqa: PLR0913, PLR0917 (the options)
    chosen: ChosenFlow,
    topics: str | None,
    most_lag: int,
    fence: str,
    fence_hook: str,
    hook: str,
    accepted: tuple[str, ...],
    within_s: int,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> Answer:
    """Fence producers, wait until all is copied, set the groups' offsets, and promote.

    A mirror must be running. If a step cannot be done, the run ends with exit code 1 and prints
    why. Completed steps stay, and the same command resumes from there.

    \b
    twinlog switchover run mm2.properties --flow 'A->B' --dry-run
    twinlog switchover run mm2.properties --flow 'A->B' --yes --hook './move-dns.sh'
    twinlog switchover run mm2.properties --fence none --accept acls
    """
    from twinlog.control.cutover.switchover import FenceKind, Switchover, Ways

    require_an_answer(yes=yes, dry_run=dry_run)
    shown = Evidence()
    ways = Ways(
        fence=FenceKind(_checked(fence, fence_hook)),
        fence_hook=fence_hook,
        hook=hook,
        accepted=accepted,
        most_lag=most_lag,
        within_s=within_s,
    )
    with scope_of(chosen, topics, reason) as scope:
        work = Switchover(scope, ways, shown.say)
        found = work.plan()
        what = "Producers on the source will be stopped."
        asked = {"is_open": found.is_open, "dry_run": dry_run, "yes": yes}
        if end := shown.ends_at(found, scope.name, what, **asked):
            return end
        work.run(found)
        return shown.answer({"dry_run": False, "plan": found, "after": work.plan()})


@switchover.command("abort")
@cutover_options
@fence_options
def abort(
    chosen: ChosenFlow,
    topics: str | None,
    fence: str,
    fence_hook: str,
) -> Answer:
    """Remove the fence; refused after the promotion.

    \b
    twinlog switchover abort mm2.properties --flow 'A->B'
    twinlog switchover abort mm2.properties --fence hook --fence-hook './producers.sh'
    """
    from twinlog.control.cutover.switchover import FenceKind, Switchover, Ways

    shown = Evidence()
    ways = Ways(fence=FenceKind(_checked(fence, fence_hook)), fence_hook=fence_hook)
    with scope_of(chosen, topics) as scope:
        Switchover(scope, ways, shown.say).abort()
    return shown.answer({})


def _checked(fence: str, fence_hook: str) -> str:
    if (fence == "hook") != bool(fence_hook):
        raise UsageError("--fence-hook is required with --fence hook, and only allowed with it")
    return fence


def _show(chosen: ChosenFlow, topics: str | None, most_lag: int) -> Answer:
    from twinlog.control.cutover.switchover import Switchover, Ways

    shown = Evidence()
    with scope_of(chosen, topics) as scope:
        found = Switchover(scope, Ways(most_lag=most_lag), shown.say).plan()
    return shown.show(found, is_open=found.is_open)
