"""`--format`: selects output for people or for programs. The option's value is already searched for
before click parses the arguments, so that usage errors are printed in the same format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from twinlog.cli.options.option import Section, option
from twinlog.cli.terminal.output import ANSWER, Format

_FLAG: Final = "--format"
_SHORT: Final = re.compile("-[qv]*o(.*)", re.DOTALL)


def _keep(_context: click.Context, _parameter: click.Parameter, value: str) -> None:
    answer = ANSWER.get(None)
    if answer is not None:  # None if the arguments are only parsed, not run
        answer.output = Format(value)


format_option = option(
    "-o",
    _FLAG,
    type=click.Choice([format_.value for format_ in Format]),
    expose_value=False,
    callback=_keep,
    default=Format.TEXT.value,
    show_default=True,
    section=Section.OUTPUT,
    help="text for people, json or yaml for programs.",
)
"""Add `-o`, `--format text|json|yaml`. The value is stored in `ANSWER`, where printers read it."""


def words_of(root: click.Group, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the known words at the begin of the line, such as ("offsets", "reset")."""
    words: list[str] = []
    at: click.Command | None = root
    context = click.Context(root, info_name="twinlog", resilient_parsing=True)
    for argument in arguments:
        if not isinstance(at, click.Group):
            break
        if argument.startswith("-"):
            continue  # the options of groups have no values, so the next word may be a command
        at = at.get_command(context, argument)
        if at is None:
            break
        words.append(argument)
    return tuple(words)


def requested_format(
    words: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]
) -> Format:
    """Return the format on the command line, or else the one in the command's environment variable.
    Return TEXT if there is neither, or if the value is invalid.
    """
    variable = "_".join(("twinlog", *words, "format")).upper().replace("-", "_")
    formats = [*_given_formats(arguments)] or [environment.get(variable, "")]
    return next((format_ for format_ in Format if format_ == formats[-1]), Format.TEXT)


def _given_formats(arguments: Sequence[str]) -> Iterator[str]:
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return
        short = _SHORT.fullmatch(argument)
        if argument == _FLAG:
            yield next(rest, "")
        elif argument.startswith(f"{_FLAG}="):
            yield argument.partition("=")[2]
        elif short is not None:
            yield short[1] or next(rest, "")
