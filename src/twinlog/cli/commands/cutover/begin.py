"""First steps that the commands share: their options, the flow's scope, the typed confirmation, and
the output of evidence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from twinlog.cli.options import candidates
from twinlog.cli.options.flow_option import flow_option, one_flow
from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.option import option
from twinlog.cli.options.run_options import secrets_option
from twinlog.cli.options.steering_options import topic_pattern
from twinlog.cli.terminal.output import is_for_programs, write_line, write_object
from twinlog.errors import UsageError

if TYPE_CHECKING:
    from twinlog.control.cutover.scope import CutoverScope


Say = Callable[[str], None]


class ShownPlan(Protocol):
    """What a run would do."""

    def lines(self) -> Iterator[str]: ...

    def as_json(self) -> dict[str, Any]: ...


PlanT = TypeVar("PlanT", bound=ShownPlan)


def cutover_options(command: Any) -> Any:
    """Pass the options to the command as `chosen`."""

    @wraps(command)
    def with_chosen(  # click gives each option by its name
        file: Path, flow: str | None, topics: str | None, **given: Any
    ) -> int:
        chosen = ChosenFlow(file=file, flow=flow, topics=topics)
        exit_code: int = command(chosen, **given)
        return exit_code

    options: Any = with_chosen
    for one in (
        format_option,
        secrets_option,
        option(
            "--topics",
            metavar="REGEX,...",
            shell_complete=candidates.topics,
            help="Only these source topics; default: the whole flow.",
        ),
        flow_option,
        click.argument("file", type=click.Path(path_type=Path)),
    ):
        options = one(options)
    return options


def run_options(command: Any) -> Any:
    """Pass dry_run, yes and reason to the command."""
    for one in (
        option("--reason", default="", metavar="TEXT", help="Shown by `twinlog status`."),
        option("--yes", is_flag=True, help="Do not ask for confirmation."),
        option("--dry-run", is_flag=True, help="Print the plan, and change nothing."),
    ):
        command = one(command)
    return command


def require_an_answer(*, yes: bool, dry_run: bool) -> None:
    """Raise UsageError, before checking anything, if no terminal can confirm the run."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError("give --yes, or --dry-run to see what would be done")


def is_confirmed(flow: str, question: str) -> bool:
    """Return whether the user types the flow's name."""
    answer = click.prompt(f"{question} Type {flow} to continue", default="", err=True)
    return str(answer).replace(" ", "") == flow


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFlow:
    """The flow and topics that a command acts on."""

    file: Path
    flow: str | None
    topics: str | None

    @contextmanager
    def scope(self, reason: str = "") -> Iterator[CutoverScope]:
        """Yield the flow and topics of the file."""
        from twinlog.cli.options.configuration import load_file
        from twinlog.control.cutover.scope import CutoverScope
        from twinlog.control.flow.wiring import flow_setup

        pattern = topic_pattern(self.topics)
        config = one_flow(load_file(self.file).flows, self.flow)
        with CutoverScope(flow_setup(config), pattern, reason=reason) as scope:
            yield scope

    def show_plan(self, plan: Callable[[CutoverScope, Say], PlanT]) -> PlanT:
        """Make and print the plan, changing nothing, and return it."""
        shown = Evidence()
        with self.scope() as scope:
            found = plan(scope, shown.say)
        shown.show(found)
        shown.end({"plan": found.as_json()})
        return found


@dataclass(slots=True, kw_only=True)
class Evidence:
    """Prints lines for people as they come, or one object for programs at the end."""

    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Print a line of evidence, for programs to stderr as well, because a run takes a while."""
        self.lines.append(line)
        write_line(line, sys.stderr if is_for_programs() else None)

    def show(self, plan: ShownPlan) -> None:
        for line in plan.lines():
            self.say(line)

    def ends_at(
        self, plan: ShownPlan, flow: str, question: str, *, dry_run: bool, yes: bool
    ) -> bool:
        """Print the plan, and return True if the command ends here because of a dry run or because
        the user does not confirm.
        """
        self.show(plan)
        if dry_run:
            self.end({"dry_run": True, "plan": plan.as_json()})
        elif not yes and not is_confirmed(flow, question):
            self.say("nothing was changed")
        else:
            return False
        return True

    def end(self, body: dict[str, Any]) -> None:
        """Print the object for programs."""
        if is_for_programs():
            write_object({**body, "evidence": self.lines})
