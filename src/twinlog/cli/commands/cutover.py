"""Commands that move clients to a flow's target and back: `switchover`, `failover`, `failback`.

The steps that they share come first: options, the flow's scope, the typed confirmation, and the
output of evidence. The commands follow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from twinlog.cli.options import candidates
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.flow_option import ChosenFlow, on_flow, topic_pattern
from twinlog.cli.options.option import option, options, reason_option, yes_option
from twinlog.cli.terminal.output import Answer, is_for_programs, write_line
from twinlog.control.cutover import GATES
from twinlog.errors import TwinlogError, UsageError

if TYPE_CHECKING:
    from twinlog.control.cutover.failover import Failover
    from twinlog.control.cutover.scope import CutoverScope, Say
    from twinlog.control.cutover.switchover import Switchover
    from twinlog.control.failback.failback import Failback

RECREATE: Final = (
    "--tail recreate is not supported, because it would delete a topic of the source. Give --tail "
    "keep, which saves the tail. The flow back then copies the target's records to a separate "
    "topic or, under the identity policy, after the tail"
)


class ShownPlan(Protocol):
    """The plan of a command that moves clients."""

    @property
    def is_open(self) -> bool:
        """True if the run could begin now without losing records."""

    def lines(self) -> Iterator[str]: ...


cutover_options = options(
    on_flow,
    option(
        "--topics",
        metavar="REGEX,...",
        shell_complete=candidates.topics,
        help="Only these source topics; default: the whole flow.",
    ),
)
"""Add FILE, --flow and --topics to a command. FILE and --flow are passed to it as `chosen`
(ChosenFlow), and --topics as `topics`.
"""

run_options = options(
    option("--dry-run", is_flag=True, help="Print the plan, and change nothing."),
    yes_option,
    reason_option,
)
"""Add --dry-run, --yes and --reason to a command, which gets them as `dry_run`, `yes` and `reason`.
"""


def require_an_answer(*, yes: bool, dry_run: bool) -> None:
    """Raise UsageError if a run needs a confirmation, but stdin is not a terminal."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError("give --yes, or --dry-run to see what would be done")


def is_confirmed(flow: str, question: str) -> bool:
    """Ask the user to type the flow's name, as A->B or A:B. Return True if it was typed."""
    answer = click.prompt(
        f"{question} Type {flow} to continue", default="", show_default=False, err=True
    )
    return str(answer).replace(" ", "").replace(":", "->") == flow


@contextmanager
def _moving(
    make: Callable[..., Any], chosen: ChosenFlow, topics: str | None, reason: str = ""
) -> Iterator[tuple[Any, Evidence]]:
    """Yield (work, evidence). `work`: the result of `make` for the flow's scope with these topics,
    such as a Switchover. `evidence`: prints the lines of `work`, and collects them for the answer.
    """
    from twinlog.control.cutover.scope import CutoverScope

    shown = Evidence()
    with CutoverScope(chosen.setup, topic_pattern(topics), reason=reason) as scope:
        yield make(scope, shown.print_line), shown


@dataclass(slots=True)
class Evidence:
    """Prints each line of evidence immediately, and adds all lines to the command's answer."""

    lines: list[str] = field(default_factory=list)
    version: int = 2

    def print_line(self, line: str) -> None:
        """Print a line of evidence to stdout, or to stderr if stdout is for programs."""
        self.lines.append(line)
        write_line(line, sys.stderr if is_for_programs() else None)

    def show(self, plan: ShownPlan, *, is_over: bool = False) -> Answer:
        """Print a plan, and return the answer of a command that only shows the plan. The exit code
        is 0 if the plan is open or `is_over`, else 1.
        """
        for line in plan.lines():
            self.print_line(line)
        return self.answer({"plan": plan}, 0 if plan.is_open or is_over else 1)

    def ends_at(
        self, plan: ShownPlan, flow: str, question: str, *, dry_run: bool, yes: bool
    ) -> Answer | None:
        """Print the plan, and return None if the command must go on. Return an answer if it is a
        dry run, or if the user does not confirm.
        """
        shown = self.show(plan)
        if dry_run:
            return self.answer({"dry_run": True, "plan": plan}, shown.exit_code)
        return None if yes or is_confirmed(flow, question) else self.nothing_changed()

    def nothing_changed(self) -> Answer:
        self.print_line("nothing was changed")
        return Answer({}, exit_code=1, version=self.version)

    def answer(self, fields: dict[str, Any], exit_code: int = 0) -> Answer:
        """Return an answer with these fields, and with the lines printed so far as `evidence`."""
        return Answer({**fields, "evidence": self.lines}, exit_code=exit_code, version=self.version)


def _show(
    make: Callable[..., Any], chosen: ChosenFlow, topics: str | None, *, is_status: bool = False
) -> Answer:
    """Print the plan of a cutover. `is_status`: the exit code is 0 after the promotion, too, even
    if the plan is not open.
    """
    with _moving(make, chosen, topics) as (work, shown):
        plan = work.plan()
    return shown.show(plan, is_over=is_status and bool(plan.promoted))


def _run_plan(work: Switchover | Failover, plan: Any) -> tuple[dict[str, Any], int]:
    left = work.run(plan)
    after: Any = None
    try:
        after = work.plan()
    except TwinlogError as error:  # it must not look like a failure of the run, which has ended
        work.say(f"the state after the run is unknown: {error}")
    return {"after": after}, 1 if left else 0


def _run(  # noqa: PLR0913 (the options)
    make: Callable[..., Any],
    question: str,
    act: Callable[[Any, Any], tuple[dict[str, Any], int]] = _run_plan,
    *,
    chosen: ChosenFlow,
    topics: str | None,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> Answer:
    """Print the plan, ask for confirmation, and run the plan. `act`: runs a plan, and returns
    fields of the answer and the exit code.
    """
    require_an_answer(yes=yes, dry_run=dry_run)
    with _moving(make, chosen, topics, reason) as (work, shown):
        plan = work.plan()
        if end := shown.ends_at(plan, plan.flow, question, dry_run=dry_run, yes=yes):
            return end
        fields, exit_code = act(work, plan)
    return shown.answer({"dry_run": False, "plan": plan, **fields}, exit_code)


def _abort(make: Callable[..., Any], chosen: ChosenFlow, topics: str | None) -> Answer:
    with _moving(make, chosen, topics) as (work, shown):
        work.abort()
    return shown.answer({})


gate_options = option(
    "--max-lag",
    "most_lag",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    metavar="RECORDS",
    help="The gate `lag` is open if at most this many records are not copied yet.",
)
fence_options = options(
    option(
        "--fence",
        type=click.Choice(["acl", "hook", "none"]),
        default="acl",
        show_default=True,
        help="How to fence producers from the source; none: you have stopped them.",
    ),
    option(
        "--fence-hook",
        default="",
        metavar="CMD",
        help="With --fence hook: shell command that stops producers. It is run with "
        "TWINLOG_STEP=fence; `abort` runs it with TWINLOG_STEP=unfence.",
    ),
)


@click.group("switchover", cls=CommandGroup)
def switchover() -> None:
    """Move clients to the target of a flow as planned: producers first, and without loss.

    The running mirror copies the remaining records. Each run checks both clusters and resumes
    from their state, so a run that was killed can be repeated. Before the promotion, `abort`
    removes the fence, and the flow continues as before.

    \b
    twinlog switchover plan mm2.properties --flow A:B
    twinlog switchover run mm2.properties --flow A:B --hook './move-dns.sh'
    twinlog switchover abort mm2.properties --flow A:B
    """


@switchover.command("plan")
@cutover_options
@gate_options
def plan_switchover(most_lag: int, **arguments: Any) -> Answer:
    """Print every gate with its evidence, and where each group would resume.

    Exit code 0 if every gate is open, else 1.

    \b
    twinlog switchover plan mm2.properties --flow A:B
    twinlog switchover plan mm2.properties --topics 'orders.*' --format json
    """
    return _show(_switchover(most_lag=most_lag), **arguments)


@switchover.command("status")
@cutover_options
@gate_options
def status_switchover(most_lag: int, **arguments: Any) -> Answer:
    """Print the progress of a switchover, as read from both clusters.

    The exit codes are those of `switchover plan`.

    \b
    twinlog switchover status mm2.properties --flow A:B
    """
    return _show(_switchover(most_lag=most_lag), **arguments)


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
def run_switchover(
    *,
    most_lag: int,
    fence: str,
    fence_hook: str,
    hook: str,
    accepted: tuple[str, ...],
    within_s: int,
    **arguments: Any,
) -> Answer:
    """Fence producers, wait until all is copied, set the groups' offsets, and promote.

    A mirror must be running. If a step fails, the run prints why and ends with exit code 1.
    Completed steps remain in effect. Repeat the command to continue with the step that failed.

    \b
    twinlog switchover run mm2.properties --flow A:B --dry-run
    twinlog switchover run mm2.properties --flow A:B --yes --hook './move-dns.sh'
    twinlog switchover run mm2.properties --fence none --accept acls
    """
    require_an_answer(yes=arguments["yes"], dry_run=arguments["dry_run"])
    make = _switchover(
        fence, fence_hook, hook=hook, accepted=accepted, most_lag=most_lag, within_s=within_s
    )
    return _run(make, "Producers on the source will be stopped.", **arguments)


@switchover.command("abort")
@cutover_options
@fence_options
def abort_switchover(fence: str, fence_hook: str, **arguments: Any) -> Answer:
    """Remove the fence; refused after the promotion.

    \b
    twinlog switchover abort mm2.properties --flow A:B
    twinlog switchover abort mm2.properties --fence hook --fence-hook './producers.sh'
    """
    return _abort(_switchover(fence, fence_hook), **arguments)


def _switchover(
    fence: str = "acl", fence_hook: str = "", **options: Any
) -> Callable[[CutoverScope, Say], Switchover]:
    if (fence == "hook") != bool(fence_hook):
        raise UsageError("--fence-hook is required with --fence hook, and only allowed with it")
    from twinlog.control.cutover.switchover import FenceKind, Switchover, SwitchoverOptions

    chosen = SwitchoverOptions(fence=FenceKind(fence), fence_hook=fence_hook, **options)
    return lambda scope, say: Switchover(scope, say, chosen)


@click.group("failover", cls=CommandGroup)
def failover() -> None:
    """Move clients to the target of a flow whose source is lost.

    No mirror needs to run. Each run checks both clusters and resumes from their state, so repeat a
    run that was killed.

    \b
    twinlog failover plan mm2.properties --flow A:B
    twinlog failover run mm2.properties --flow A:B --reason 'A is lost'
    twinlog failover status mm2.properties --flow A:B
    """


@failover.command("plan")
@cutover_options
def plan_failover(**arguments: Any) -> Answer:
    """Print what was copied, what is known to be missing, and where each group would resume.

    Exit code 0 if every partition is known to be complete, and every group resumes exactly and is
    neither in use nor further on the target; else 1.

    \b
    twinlog failover plan mm2.properties --flow A:B
    twinlog failover plan mm2.properties --topics 'orders.*' --format json
    """
    return _show(_failover, **arguments)


@failover.command("status")
@cutover_options
def status_failover(**arguments: Any) -> Answer:
    """Print the progress of a failover, as read from both clusters.

    The exit codes are those of `failover plan`, and 0 after the promotion.

    \b
    twinlog failover status mm2.properties --flow A:B
    """
    return _show(_failover, **arguments, is_status=True)


@failover.command("run")
@cutover_options
@run_options
def run_failover(**arguments: Any) -> Answer:
    """Set the groups' offsets and promote the remote topics: the copy ends permanently.

    Groups are only moved forward. Groups that are in use on the target are printed and not changed.
    When the source comes back, the flow stays FENCED. Exit code 1 if a group's offsets are not as
    planned.

    \b
    twinlog failover run mm2.properties --flow A:B --dry-run
    twinlog failover run mm2.properties --flow A:B --yes --reason 'A is lost'
    """
    return _run(_failover, "Records that were not copied stay missing.", **arguments)


@failover.command("abort")
@cutover_options
def abort_failover(**arguments: Any) -> Answer:
    """Cancel the failover; refused after the promotion.

    \b
    twinlog failover abort mm2.properties --flow A:B
    """
    return _abort(_failover, **arguments)


def _failover(scope: CutoverScope, say: Say) -> Failover:
    from twinlog.control.cutover.failover import Failover

    return Failover(scope, say)


@click.group("failback", cls=CommandGroup)
def failback() -> None:
    """Move back to the source after a failover, saving its divergent tail first.

    The tail is the records of the source that the target never got. Each run checks both clusters
    and the saved files and resumes from their state, so a run that was killed can be repeated.

    \b
    twinlog failback plan mm2.properties --flow A:B
    twinlog failback run mm2.properties --flow A:B --tail keep --save ./tail
    twinlog failback status mm2.properties --flow A:B
    """


@failback.command("plan")
@cutover_options
def plan_failback(**arguments: Any) -> Answer:
    """Print each partition's tail, records lost by the source, and how to start the reverse flow.

    The command reads the whole tail and changes nothing. Exit code 0 if a run could begin, else 1.

    \b
    twinlog failback plan mm2.properties --flow A:B
    twinlog failback plan mm2.properties --topics 'orders.*' --format json
    """
    return _show(_failback, **arguments)


@failback.command("status")
@cutover_options
def status_failback(**arguments: Any) -> Answer:
    """Print the progress of a failback, as read from both clusters.

    The exit codes are those of `failback plan`.

    \b
    twinlog failback status mm2.properties --flow A:B
    """
    return _show(_failback, **arguments)


@failback.command("run")
@cutover_options
@option(
    "--tail",
    required=True,
    type=click.Choice(["keep", "replay", "recreate"]),
    help="keep: leave the tail on the source; replay: also append it to the target.",
)
@option(
    "--save",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The folder for the saved records; it must be closed to other users (mode 0700). "
    "A save that is already in the folder is continued.",
)
@run_options
def run_failback(tail: str, folder: Path, **arguments: Any) -> Answer:
    """Save the tail, append it to the target if wanted, and print how to start the reverse flow.

    Nothing is ever deleted. If a step fails, the run prints why and ends with exit code 1.
    Completed steps remain in effect. Repeat the command to continue with the step that failed.

    \b
    twinlog failback run mm2.properties --flow A:B --tail keep --save ./tail --dry-run
    twinlog failback run mm2.properties --flow A:B --tail replay --save ./tail --yes
    """
    if tail == "recreate":
        raise UsageError(RECREATE)

    def save(work: Failback, plan: Any) -> tuple[dict[str, Any], int]:
        try:
            files = work.run(plan, work.saved_in(folder), replays=tail == "replay")
        except OSError as error:
            where = error.filename or folder
            raise UsageError(f"--save: {where}: {error.strerror}") from error
        return {"folder": folder, "files": files}, 0

    what = "The tail will be saved."
    if tail == "replay":
        what = "The tail will be saved, and appended permanently to the target."
    return _run(_failback, what, save, **arguments)


@failback.command("abort")
@cutover_options
def abort_failback(**arguments: Any) -> Answer:
    """Cancel a replay that has not appended anything; appended records cannot be removed.

    \b
    twinlog failback abort mm2.properties --flow A:B
    """
    return _abort(_failback, **arguments)


def _failback(scope: CutoverScope, say: Say) -> Failback:
    from twinlog.control.failback.failback import Failback

    return Failback(scope, say)
