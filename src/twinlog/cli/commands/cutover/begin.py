"""What both commands begin with: their options, the flow's scope, the typed confirmation, and how
evidence is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from twinlog.cli.options import candidates
from twinlog.cli.options.flow_option import flow_option, one_flow
from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.option import option
from twinlog.cli.options.run_options import secrets_option
from twinlog.cli.options.steering_options import names_of
from twinlog.cli.terminal.output import Format, write_line, write_object
from twinlog.errors import UsageError

if TYPE_CHECKING:
    from twinlog.control.cutover.scope import CutoverScope

JSON_VERSION: Final = 1


def cutover_options(command: Any) -> Any:
    """Given to the command as flow, topics and output."""
    for one in (
        format_option,
        secrets_option,
        option(
            "--topics",
            metavar="REGEX,...",
            shell_complete=candidates.topics,
            help="Only these, by their names on the source; default: the whole flow.",
        ),
        flow_option,
    ):
        command = one(command)
    return command


def run_options(command: Any) -> Any:
    """Given to the command as dry_run, yes and reason."""
    for one in (
        option("--reason", default="", metavar="TEXT", help="For those who see it in `status`."),
        option("--yes", is_flag=True, help="Do not ask for the flow's name first."),
        option("--dry-run", is_flag=True, help="Show the plan, and change nothing."),
    ):
        command = one(command)
    return command


@contextmanager
def scope_of(
    file: Path, flow: str | None, topics: str | None, *, reason: str = ""
) -> Iterator[CutoverScope]:
    """The chosen flow and topics of a file."""
    from twinlog.cli.options.configuration import load_file
    from twinlog.config.regex.patterns import compile_names
    from twinlog.config.regex.reader import RegexProblem
    from twinlog.control.cutover.scope import CutoverScope
    from twinlog.control.flow.wiring import flow_setup
    from twinlog.errors import ConfigError

    try:
        pattern = None if topics is None else compile_names(names_of(topics))
    except (RegexProblem, ConfigError) as problem:
        raise UsageError(f"--topics: {problem}") from problem
    config = one_flow(load_file(file).flows, flow)
    with CutoverScope(flow_setup(config), pattern, reason=reason) as scope:
        yield scope


def require_an_answer(*, yes: bool, dry_run: bool) -> None:
    """Before anything is looked at: nobody could confirm it."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError("give --yes, or --dry-run to see what would be done")


def is_confirmed(flow: str, question: str) -> bool:
    """Whether somebody types the flow's name."""
    answer = click.prompt(f"{question} Type {flow} to continue", default="", err=True)
    return str(answer).replace(" ", "") == flow


@dataclass(slots=True, kw_only=True)
class Evidence:
    """Lines for people as they come, or one object for programs at the end."""

    output: Format
    command: str
    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """A line of evidence; programs get it on stderr as well, since a run takes its time."""
        self.lines.append(line)
        write_line(line, sys.stderr if self.output.is_for_programs else None)

    def end(self, body: dict[str, Any]) -> None:
        """The object for programs."""
        if self.output.is_for_programs:
            write_object(self.output, self.command, JSON_VERSION, {**body, "evidence": self.lines})
