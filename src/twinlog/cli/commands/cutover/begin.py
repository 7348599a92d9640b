"""First steps that the commands share: their options, the flow's scope, the typed confirmation, and
the output of evidence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import click

from twinlog.cli.options import candidates
from twinlog.cli.options.flow_option import ChosenFlow, on_flow
from twinlog.cli.options.option import option
from twinlog.cli.options.steering_options import topic_pattern
from twinlog.cli.terminal.output import Answer, is_for_programs, write_line
from twinlog.errors import UsageError

if TYPE_CHECKING:
    from twinlog.control.cutover.scope import CutoverScope


class ShownPlan(Protocol):
    """What a run would do."""

    def lines(self) -> Iterator[str]: ...


def cutover_options(command: Any) -> Any:
    """Pass chosen and topics to the command."""
    topics = option(
        "--topics",
        metavar="REGEX,...",
        shell_complete=candidates.topics,
        help="Only these source topics; default: the whole flow.",
    )
    return on_flow(topics(command))


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


@contextmanager
def scope_of(chosen: ChosenFlow, topics: str | None, reason: str = "") -> Iterator[CutoverScope]:
    """Yield the flow and topics of the file."""
    from twinlog.control.cutover.scope import CutoverScope

    pattern = topic_pattern(topics)
    with CutoverScope(chosen.setup, pattern, reason=reason) as scope:
        yield scope


@dataclass(slots=True)
class Evidence:
    """Prints lines for people as they come, and returns them to programs at the end."""

    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Print a line of evidence, for programs to stderr as well, because a run takes a while."""
        self.lines.append(line)
        write_line(line, sys.stderr if is_for_programs() else None)

    def show(self, plan: ShownPlan, *, is_open: bool) -> Answer:
        """Print a plan, and return the answer of a command that only shows it."""
        for line in plan.lines():
            self.say(line)
        return self.answer({"plan": plan}, 0 if is_open else 1)

    def ends_at(
        self,
        plan: ShownPlan,
        flow: str,
        question: str,
        *,
        is_open: bool,
        dry_run: bool,
        yes: bool,
    ) -> Answer | None:
        """Print the plan, and return an answer if the command ends here because of a dry run or
        because the user does not confirm.
        """
        shown = self.show(plan, is_open=is_open)
        if dry_run:
            return self.answer({"dry_run": True, "plan": plan}, shown.exit_code)
        return None if yes or is_confirmed(flow, question) else self.nothing()

    def nothing(self) -> Answer:
        self.say("nothing was changed")
        return Answer({}, exit_code=1)

    def answer(self, fields: dict[str, Any], exit_code: int = 0) -> Answer:
        """Return an answer with these fields, and with the lines printed so far as `evidence`."""
        return Answer({**fields, "evidence": self.lines}, exit_code=exit_code)
