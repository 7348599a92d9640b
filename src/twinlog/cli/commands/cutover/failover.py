"""`twinlog failover`: the source is lost; set groups, and make the remote topics the originals."""

from __future__ import annotations

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
from twinlog.cli.terminal.output import Answer


@click.group("failover", cls=CommandGroup)
def failover() -> None:
    """Move clients to the target of a flow whose source is lost.

    No mirror needs to run. Each run checks both clusters and resumes from their state, so repeat a
    run that was killed.

    \b
    twinlog failover plan mm2.properties --flow 'A->B'
    twinlog failover run mm2.properties --flow 'A->B' --reason 'A is lost'
    twinlog failover status mm2.properties --flow 'A->B'
    """


@failover.command("plan")
@cutover_options
def plan(chosen: ChosenFlow, topics: str | None) -> Answer:
    """Print what was copied, what is known to be missing, and where each group would resume.

    Exit code 0 if every partition is known to be complete, and every group resumes exactly and is
    neither in use nor further on the target; else 1.

    \b
    twinlog failover plan mm2.properties --flow 'A->B'
    twinlog failover plan mm2.properties --topics 'orders.*' --format json
    """
    return _show(chosen, topics, "plan")


@failover.command("status")
@cutover_options
def status(chosen: ChosenFlow, topics: str | None) -> Answer:
    """Print the progress of a failover, as read from both clusters.

    Exit codes as of `plan`; 0 also after the promotion.

    \b
    twinlog failover status mm2.properties --flow 'A->B'
    """
    return _show(chosen, topics, "status")


@failover.command("run")
@cutover_options
@run_options
def run(
    chosen: ChosenFlow,
    topics: str | None,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> Answer:
    """Set the groups' offsets and promote the remote topics: the copy ends permanently.

    Groups are only moved forward. Groups that are in use on the target are left alone and printed.
    When the source comes back, the flow stays FENCED. Exit code 1 if a group's offsets are not as
    planned.

    \b
    twinlog failover run mm2.properties --flow 'A->B' --dry-run
    twinlog failover run mm2.properties --flow 'A->B' --yes --reason 'A is lost'
    """
    from twinlog.control.cutover.failover import Failover

    require_an_answer(yes=yes, dry_run=dry_run)
    shown = Evidence()
    with scope_of(chosen, topics, reason) as scope:
        work = Failover(scope)
        found = work.plan()
        what = "Records that were not copied stay missing."
        asked = {"is_open": found.is_clear, "dry_run": dry_run, "yes": yes}
        if end := shown.ends_at(found, scope.name, what, **asked):
            return end
        left = work.run(found, shown.say)
        after = work.plan()
    return shown.answer({"dry_run": False, "plan": found, "after": after}, 1 if left else 0)


@failover.command("abort")
@cutover_options
def abort(chosen: ChosenFlow, topics: str | None) -> Answer:
    """Take the failover back; refused after the promotion.

    \b
    twinlog failover abort mm2.properties --flow 'A->B'
    """
    from twinlog.control.cutover.failover import Failover

    shown = Evidence()
    with scope_of(chosen, topics) as scope:
        Failover(scope).abort(shown.say)
    return shown.answer({})


def _show(chosen: ChosenFlow, topics: str | None, verb: str) -> Answer:
    from twinlog.control.cutover.failover import Failover

    shown = Evidence()
    with scope_of(chosen, topics) as scope:
        found = Failover(scope).plan()
    is_over = verb == "status" and bool(found.promoted)
    return shown.show(found, is_open=found.is_clear or is_over)
