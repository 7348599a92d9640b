"""`--format`: whether the output is for people or for programs."""

from __future__ import annotations

import click

from twinlog.cli.options.option import F, Section, option
from twinlog.cli.terminal.output import Format


def format_option(command: F) -> F:
    """`--format text|json|yaml`, given to the command as `output`."""
    return option(
        "--format",
        "output",
        type=click.Choice([one.value for one in Format]),
        callback=lambda _context, _parameter, value: Format(value),
        default=Format.TEXT.value,
        show_default=True,
        section=Section.OUTPUT,
        help="text for people, json or yaml for programs.",
    )(command)
