"""Which `--format` a command line asks for, known before it is understood: its error is for the
same reader as its answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from twinlog.cli.terminal.output import Format

_FLAG: Final = "--format"


def words_of(root: click.Group, arguments: Sequence[str]) -> tuple[str, ...]:
    """The command and the commands of it that are named, as far as they exist."""
    words: list[str] = []
    at: click.Command | None = root
    context = click.Context(root, info_name="twinlog", resilient_parsing=True)
    for argument in arguments:
        if not isinstance(at, click.Group):
            break
        if argument.startswith("-"):
            continue  # what groups have are flags
        at = at.get_command(context, argument)
        if at is None:
            break
        words.append(argument)
    return tuple(words)


def asked_format(
    words: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]
) -> Format:
    """That of the command line, else of the command's variable; text where it is none of them."""
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
