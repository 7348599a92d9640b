"""`twinlog failback`: the old source is back; what only it has is saved, and clients go home."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from twinlog.cli.commands.cutover.begin import (
    ChosenFlow,
    cutover_options,
    require_an_answer,
    run_options,
)
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.option import option
from twinlog.errors import UsageError

RECREATE: Final = (
    "--tail recreate is not offered: it would delete a topic of the source, and nothing here does; "
    "give --tail keep: the tail is saved, and the flow back copies what the target has to a topic "
    "beside it, or behind it under the identity policy"
)


@click.group("failback", cls=CommandGroup)
def failback() -> None:
    """Go back to the source of a flow behind a failover: first its divergent tail is saved.

    The tail is what the source has and the target never got. Each run looks at both clusters and
    at what is saved, and resumes from there, so a run that was killed is simply given again.

    \b
    twinlog failback plan mm2.properties --flow 'A->B'
    twinlog failback run mm2.properties --flow 'A->B' --tail keep --save ./tail
    twinlog failback status mm2.properties --flow 'A->B'
    """


@failback.command("plan")
@cutover_options
def plan(chosen: ChosenFlow) -> int:
    """Show the tail of each partition, what the source lost, and how the flow back is started.

    It reads the whole tail, and changes nothing. Exit code 0 where a run could begin, else 1.

    \b
    twinlog failback plan mm2.properties --flow 'A->B'
    twinlog failback plan mm2.properties --topics 'orders.*' --format json
    """
    return _show(chosen, "plan")


@failback.command("status")
@cutover_options
def status(chosen: ChosenFlow) -> int:
    """Show how far a failback is, from what is on the two clusters; exit codes as of `plan`.

    \b
    twinlog failback status mm2.properties --flow 'A->B'
    """
    return _show(chosen, "status")


@failback.command("run")
@cutover_options
@option(
    "--tail",
    required=True,
    type=click.Choice(["keep", "replay", "recreate"]),
    help="keep: leave it where it is; replay: append it to the target as well.",
)
@option(
    "--save",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The folder for records that never arrived; it must be closed to other users (mode 0700). "
    "Given again, the save is continued.",
)
@run_options
def run(
    chosen: ChosenFlow,
    tail: str,
    folder: Path,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> int:
    """Save the tail, then leave it or append it to the target; say how the flow back is started.

    Nothing is ever deleted. Where a step cannot be done, the run ends with exit code 1 and says
    why; what was done stays, and the same command resumes from there.

    \b
    twinlog failback run mm2.properties --flow 'A->B' --tail keep --save ./tail --dry-run
    twinlog failback run mm2.properties --flow 'A->B' --tail replay --save ./tail --yes
    """
    from twinlog.control.failback.failback import Failback, folder_of

    if tail == "recreate":
        raise UsageError(RECREATE)
    require_an_answer(yes=yes, dry_run=dry_run)
    shown = chosen.evidence("failback run")
    with chosen.scope(reason) as scope:
        work = Failback(scope, shown.say)
        found = work.plan()
        what = "The tail will be saved."
        if tail == "replay":
            what = "The tail will be saved, and appended to the target, for good."
        if shown.ends_at(found, scope.name, what, dry_run=dry_run, yes=yes):
            return 0 if dry_run and found.is_open else 1
        try:
            files = work.run(found, folder_of(scope, folder), replays=tail == "replay")
        except OSError as error:
            where = error.filename or folder
            raise UsageError(f"--save: {where}: {error.strerror}") from error
        shown.end(
            {
                "dry_run": False,
                "plan": found.as_json(),
                "folder": str(folder),
                "files": [one.as_json() for one in files],
            }
        )
    return 0


@failback.command("abort")
@cutover_options
def abort(chosen: ChosenFlow) -> int:
    """Take back a replay that has appended nothing; what was appended cannot be taken back.

    \b
    twinlog failback abort mm2.properties --flow 'A->B'
    """
    from twinlog.control.failback.failback import Failback

    shown = chosen.evidence("failback abort")
    with chosen.scope() as scope:
        Failback(scope, shown.say).abort()
    shown.end({})
    return 0


def _show(chosen: ChosenFlow, verb: str) -> int:
    from twinlog.control.failback.failback import Failback

    found = chosen.show_plan(f"failback {verb}", lambda scope, say: Failback(scope, say).plan())
    return 0 if found.is_open else 1
