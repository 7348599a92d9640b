"""The `--format` of a command line, found before the line is parsed, so that usage errors are
printed in the same format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from twinlog.cli.terminal.output import Format

_FLAG: Final = "--format"


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
    """Return the format of the command line, else of the command's environment variable; text if
    the value is unknown.
    """
    variable = "_".join(("twinlog", *words, "format")).upper().replace("-", "_")
    given = [*_given(arguments)] or [environment.get(variable, "")]
    return next((one for one in Format if one == given[-1]), Format.TEXT)


def _given(arguments: Sequence[str]) -> Iterator[str]:
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return
        if argument == _FLAG:
            yield next(rest, "")
        elif argument.startswith(f"{_FLAG}="):
            yield argument.partition("=")[2]
