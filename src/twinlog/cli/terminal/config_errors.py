"""How `twinlog check` shows a file that is wrong: all errors by line, then what else is odd."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from twinlog.cli.terminal.tables import lines, row, text
from twinlog.config.values.warnings import ConfigWarning
from twinlog.errors import ConfigError
from twinlog.quantities import plural

KEY_WIDTH: Final = 36
"""A longer key has several lines, so that there is room for what is said of it."""


def names_lines(error: ConfigError) -> bool:
    """Whether lines of a file are to blame, and not the file or an option."""
    return all(
        one.file is not None and one.key is not None and not one.file.startswith("--")
        for one in error.each
    )


def error_parts(error: ConfigError) -> Iterator[RenderableType]:
    """The verdict, the errors, the warnings."""
    errors = error.each
    found = [plural(len(errors), "error")]
    if error.warnings:
        found.append(plural(len(error.warnings), "warning"))
    file = errors[0].file
    yield text(("NOT READY", "bold red"), f": {file}: {', '.join(found)}; no cluster was asked")
    table = _table()
    for one in errors:
        code = "" if one.code == ConfigError.code else f" [{one.code}]"  # it says nothing more
        where = _location(one.file, one.line, file)
        row(table, text("error", style="red"), where, _key(one.key or ""), f"{one.what}{code}")
    _add(table, error.warnings, file)
    yield table


def warning_parts(warnings: Iterable[ConfigWarning]) -> Iterator[RenderableType]:
    """A row for each."""
    found = list(warnings)
    if found:
        table = _table()
        _add(table, found, found[0].file)
        yield table


def _add(table: Table, warnings: Iterable[ConfigWarning], file: str | None) -> None:
    """A row for each; those of `file` have their line alone."""
    for one in sorted(warnings, key=lambda one: (one.file, one.line or 0)):
        where = _location(one.file, one.line, file)
        row(
            table,
            text("warning", style="yellow"),
            where,
            _key(one.key),
            f"{one.message} [{one.code}]",
        )


def _table() -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(min_width=len("warning"), no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    table.add_column(overflow="fold", max_width=KEY_WIDTH)
    table.add_column(overflow="fold")
    return table


def _key(key: str) -> Text:
    """A long one is broken behind dots, where it has them."""
    broken = [""]
    for part in re.findall(r"[^.]*\.|[^.]+$", text(key).plain):
        if broken[-1] and len(broken[-1] + part) > KEY_WIDTH:
            broken.append("")
        broken[-1] += part
    return lines("\n".join(broken))


def _location(file: str | None, line: int | None, usual: str | None) -> str:
    number = "-" if line is None else str(line)
    return number if file == usual else f"{file}:{number}"
