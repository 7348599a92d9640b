"""`--format`: whether the output is for people or for programs."""

from __future__ import annotations

import click

from twinlog.cli.options.option import F, Section, option
from twinlog.cli.terminal.output import ANSWER, Format


def format_option(command: F) -> F:
    """Add `--format text|json|yaml`, which the printer reads from `ANSWER`."""

    def keep(_context: click.Context, _parameter: click.Parameter, value: str) -> None:
        answer = ANSWER.get(None)
        if answer is not None:  # a line that is only parsed has none
            answer.output = Format(value)

    return option(
        "--format",
        type=click.Choice([one.value for one in Format]),
        expose_value=False,
        callback=keep,
        default=Format.TEXT.value,
        show_default=True,
        section=Section.OUTPUT,
        help="text for people, json or yaml for programs.",
    )(command)
