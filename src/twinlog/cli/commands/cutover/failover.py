"""`twinlog failover`: the source is gone; groups are set, and what arrived becomes the original."""

from __future__ import annotations

from pathlib import Path

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
from twinlog.cli.terminal.output import Format


@click.group("failover", cls=CommandGroup)
def failover() -> None:
    """Move clients to the target of a flow whose source is gone, with a mirror or without one.

    No mirror needs to run. Each run looks at both clusters and resumes from what is there, so a
    run that was killed is simply given again.

    \b
    twinlog failover plan mm2.properties --flow 'A->B'
    twinlog failover run mm2.properties --flow 'A->B' --reason 'A is lost'
    twinlog failover status mm2.properties --flow 'A->B'
    """


@failover.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@cutover_options
def plan(file: Path, flow: str | None, topics: str | None, output: Format) -> int:
    """Show what arrived, what is known to be missing, and where each group would resume.

    Exit code 0 where nothing is known to be missing and every group resumes exactly, else 1.

    \b
    twinlog failover plan mm2.properties --flow 'A->B'
    twinlog failover plan mm2.properties --topics 'orders.*' --format json
    """
    return _look(file, flow, topics, output, "plan")


@failover.command("status")
@click.argument("file", type=click.Path(path_type=Path))
@cutover_options
def status(file: Path, flow: str | None, topics: str | None, output: Format) -> int:
    """Show how far a failover is, from what is on the two clusters; exit codes as of `plan`.

    \b
    twinlog failover status mm2.properties --flow 'A->B'
    """
    return _look(file, flow, topics, output, "status")


@failover.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@cutover_options
@run_options
def run(
    file: Path,
    flow: str | None,
    topics: str | None,
    output: Format,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> int:
    """Set the groups, and make what arrived the original: the copy ends for good.

    Groups are set forwards only; one that is in use on the target is left, and named. When the
    source comes back, the flow stays FENCED. Exit code 1 where a group is not where it should be.

    \b
    twinlog failover run mm2.properties --flow 'A->B' --dry-run
    twinlog failover run mm2.properties --flow 'A->B' --yes --reason 'A is lost'
    """
    from twinlog.control.cutover.failover import Failover

    require_an_answer(yes=yes, dry_run=dry_run)
    shown = Evidence(output=output, command="failover run")
    with scope_of(file, flow, topics, reason=reason) as scope:
        work = Failover(scope)
        found = work.plan()
        for line in found.lines():
            shown.say(line)
        if dry_run:
            shown.end({"dry_run": True, "plan": found.as_json()})
            return 0 if found.is_clear else 1
        if not yes and not is_confirmed(scope.name, "What is missing stays missing."):
            shown.say("nothing was changed")
            return 1
        left = work.run(found, shown.say)
        after = work.plan()
        shown.end({"dry_run": False, "plan": found.as_json(), "after": after.as_json()})
    return 1 if left else 0


@failover.command("abort")
@click.argument("file", type=click.Path(path_type=Path))
@cutover_options
def abort(file: Path, flow: str | None, topics: str | None, output: Format) -> int:
    """Take back what was wanted, before the promotion; behind it this is refused.

    \b
    twinlog failover abort mm2.properties --flow 'A->B'
    """
    from twinlog.control.cutover.failover import Failover

    shown = Evidence(output=output, command="failover abort")
    with scope_of(file, flow, topics) as scope:
        Failover(scope).abort(shown.say)
    shown.end({})
    return 0


def _look(file: Path, flow: str | None, topics: str | None, output: Format, verb: str) -> int:
    from twinlog.control.cutover.failover import Failover

    shown = Evidence(output=output, command=f"failover {verb}")
    with scope_of(file, flow, topics) as scope:
        found = Failover(scope).plan()
    for line in found.lines():
        shown.say(line)
    shown.end({"plan": found.as_json()})
    return 0 if found.is_clear or (verb == "status" and bool(found.promoted)) else 1
