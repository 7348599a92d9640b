"""`--format`: whether the output is for people or for programs. It is also found before the line
is parsed, so that usage errors are printed in the same format.
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
    if answer is not None:  # a line that is only parsed has no answer
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
"""Add `-o`, `--format text|json|yaml`, which the printer reads from `ANSWER`."""


def words_of(root: click.Group, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the command and its subcommands, up to the first unknown word."""
    words: list[str] = []
    at: click.Command | None = root
    context = click.Context(root, info_name="twinlog", resilient_parsing=True)
    for argument in arguments:
        if not isinstance(at, click.Group):
            break
        if argument.startswith("-"):
            continue  # groups only have flags
        at = at.get_command(context, argument)
        if at is None:
            break
        words.append(argument)
    return tuple(words)


def asked_format(
    words: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]
) -> Format:
    """Return the format of the command line, or else of the command's environment variable. It is
    text if the value is unknown.
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
