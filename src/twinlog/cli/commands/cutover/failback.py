"""`twinlog failback`: save records that only the recovered source has, and move clients back."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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

RECREATE: Final = (
    "--tail recreate is not supported: it would delete a topic of the source, and Twinlog never "
    "does that; give --tail keep: the tail is saved, and the flow back copies the target's records "
    "to a separate topic, or after the tail under the identity policy"
)


@click.group("failback", cls=CommandGroup)
def failback() -> None:
    """Move back to the source after a failover, saving its divergent tail first.

    The tail is the records of the source that the target never got. Each run checks both clusters
    and the saved files and resumes from there, so repeat a run that was killed.

    \b
    twinlog failback plan mm2.properties --flow 'A->B'
    twinlog failback run mm2.properties --flow 'A->B' --tail keep --save ./tail
    twinlog failback status mm2.properties --flow 'A->B'
    """


@failback.command("plan")
@cutover_options
def plan(chosen: ChosenFlow, topics: str | None) -> Answer:
    """Print each partition's tail, what the source lost, and how to start the flow back.

    The command reads the whole tail and changes nothing. Exit code 0 if a run could begin, else 1.

    \b
    twinlog failback plan mm2.properties --flow 'A->B'
    twinlog failback plan mm2.properties --topics 'orders.*' --format json
    """
    return _show(chosen, topics)


@failback.command("status")
@cutover_options
def status(chosen: ChosenFlow, topics: str | None) -> Answer:
    """Print the progress of a failback, as read from both clusters; exit codes as of `plan`.

    \b
    twinlog failback status mm2.properties --flow 'A->B'
    """
    return _show(chosen, topics)


@failback.command("run")
@cutover_options
@option(
    "--tail",
    required=True,
    type=click.Choice(["keep", "replay", "recreate"]),
    help="keep: leave it on the source; replay: also append it to the target.",
)
@option(
    "--save",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The folder for the saved records; it must be closed to other users (mode 0700). "
    "If the folder has a save already, it is continued.",
)
@run_options
def run(
    chosen: ChosenFlow,
    topics: str | None,
    tail: str,
    folder: Path,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> Answer:
    """Save the tail, keep or append it to the target, and print how to start the flow back.

    Nothing is ever deleted. If a step cannot be done, the run ends with exit code 1 and prints why.
    Completed steps stay, and the same command resumes from there.

    \b
    twinlog failback run mm2.properties --flow 'A->B' --tail keep --save ./tail --dry-run
    twinlog failback run mm2.properties --flow 'A->B' --tail replay --save ./tail --yes
    """
    from twinlog.control.failback.failback import Failback, folder_of

    if tail == "recreate":
        raise UsageError(RECREATE)
    require_an_answer(yes=yes, dry_run=dry_run)
    shown = Evidence()
    with scope_of(chosen, topics, reason) as scope:
        work = Failback(scope, shown.say)
        found = work.plan()
        what = "The tail will be saved."
        if tail == "replay":
            what = "The tail will be saved, and appended permanently to the target."
        asked = {"is_open": found.is_open, "dry_run": dry_run, "yes": yes}
        if end := shown.ends_at(found, scope.name, what, **asked):
            return end
        try:
            files = work.run(found, folder_of(scope, folder), replays=tail == "replay")
        except OSError as error:
            where = error.filename or folder
            raise UsageError(f"--save: {where}: {error.strerror}") from error
    return shown.answer({"dry_run": False, "plan": found, "folder": folder, "files": files})


@failback.command("abort")
@cutover_options
def abort(chosen: ChosenFlow, topics: str | None) -> Answer:
    """Take back a replay that has not appended anything; appended records cannot be removed.

    \b
    twinlog failback abort mm2.properties --flow 'A->B'
    """
    from twinlog.control.failback.failback import Failback

    shown = Evidence()
    with scope_of(chosen, topics) as scope:
        Failback(scope, shown.say).abort()
    return shown.answer({})


def _show(chosen: ChosenFlow, topics: str | None) -> Answer:
    from twinlog.control.failback.failback import Failback

    shown = Evidence()
    with scope_of(chosen, topics) as scope:
        found = Failback(scope, shown.say).plan()
    return shown.show(found, is_open=found.is_open)
