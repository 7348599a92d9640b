"""How much a command prints: `-q` prints only warnings and errors, `-v` prints more."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import click
from click.core import ParameterSource

_META: Final = "twinlog.loudness"


class Loudness(StrEnum):
    QUIET = "--quiet"
    NORMAL = ""
    VERBOSE = "--verbose"


def loudness() -> Loudness:
    """Return the loudness of the command that runs in this thread."""
    context = click.get_current_context(silent=True)
    return Loudness.NORMAL if context is None else _wanted(context)[0]


def is_quiet() -> bool:
    return loudness() is Loudness.QUIET


def be(context: click.Context, wanted: Loudness, source: ParameterSource | None) -> None:
    """Apply an option. The command line wins over a variable; -v and -q together are refused."""
    before, its_source = _wanted(context)
    if before in (Loudness.NORMAL, wanted) or its_source is not source:
        if its_source is not ParameterSource.COMMANDLINE:
            context.meta[_META] = (wanted, source)
        return
    raise click.UsageError(f"{before} or {wanted}: give one of them", context)


def _wanted(context: click.Context) -> tuple[Loudness, ParameterSource | None]:
    found: tuple[Loudness, ParameterSource | None]
    found = context.meta.get(_META, (Loudness.NORMAL, None))
    return found
