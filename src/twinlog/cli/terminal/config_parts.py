"""Shows a configuration for `twinlog check`: its errors by line, its warnings, and with `--explain`
each key with its line and its meaning, as wide as the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twinlog.cli.terminal.tables import lines, row, text
from twinlog.config.advice.explanation import ExplainedKey, explain, without_meaning
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.keys.key_types import Support
from twinlog.config.values.warnings import ConfigWarning
from twinlog.errors import ConfigError
from twinlog.quantities import plural

KEY_WIDTH: Final = 36
"""Longer keys are broken into several lines, to leave room for the message."""


def names_lines(error: ConfigError) -> bool:
    """Return whether all errors are about lines, not about the file itself or an option."""
    return all(
        one.file is not None and one.key is not None and not one.file.startswith("--")
        for one in error.each
    )


def error_parts(error: ConfigError) -> Iterator[RenderableType]:
    """Yield the verdict, the errors and the warnings."""
    errors = error.each
    found = [plural(len(errors), "error")]
    if error.warnings:
        found.append(plural(len(error.warnings), "warning"))
    file = errors[0].file
    yield text(("NOT READY", "bold red"), f": {file}: {', '.join(found)}; no cluster was asked")
    table = _table()
    for one in errors:
        # the usual code gives no information
        code = "" if one.code == ConfigError.code else f" [{one.code}]"
        where = _location(one.file, one.line, file)
        row(table, text("error", style="red"), where, _key(one.key or ""), f"{one.what}{code}")
    _add(table, error.warnings, file)
    yield table


def warning_parts(warnings: Iterable[ConfigWarning]) -> Iterator[RenderableType]:
    """Yield a table with a row for each warning."""
    found = list(warnings)
    if found:
        table = _table()
        _add(table, found, found[0].file)
        yield table


def _add(table: Table, warnings: Iterable[ConfigWarning], file: str | None) -> None:
    """Add a row for each warning; warnings of `file` are shown with their line only."""
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
    """Break a long key after dots, if it has any."""
    broken = [""]
    for part in re.findall(r"[^.]*\.|[^.]+$", text(key).plain):
        if broken[-1] and len(broken[-1] + part) > KEY_WIDTH:
            broken.append("")
        broken[-1] += part
    return lines("\n".join(broken))


def _location(file: str | None, line: int | None, usual: str | None) -> str:
    number = "-" if line is None else str(line)
    return number if file == usual else f"{file}:{number}"


def explanation_json(config: MirrorConfig) -> dict[str, Any]:
    """Return the JSON fields: every key of every flow, and the lines without effect."""
    return {
        "warnings": [str(warning) for warning in config.warnings],
        "explained": [asdict(explain(flow)) for flow in config.flows],
        "without_meaning": [asdict(line) for line in without_meaning(config)],
    }


def explanation_parts(config: MirrorConfig, *, with_defaults: bool) -> Iterator[RenderableType]:
    """Yield, for each flow, the keys that the file sets and the differences from MirrorMaker 2."""
    for flow in map(explain, config.flows):
        yield text((flow.flow, "bold"), ": set in FILE")
        yield from _keys([key for key in flow.keys if key.file], config)
        if with_defaults:
            yield text((flow.flow, "bold"), ": defaults")
            acting = [key for key in flow.keys if key.support is not Support.NO_MEANING]
            yield from _keys([key for key in acting if not key.file], config)
        if flow.differences:
            yield text((flow.flow, "bold"), ": differences from MirrorMaker 2")
            for line in flow.differences:
                yield Padding(text(line), (0, 0, 0, 2), expand=False)
        yield text()
    idle = without_meaning(config)
    if idle:
        yield text("accepted, without effect", style="bold")
        yield from _keys(idle, config)
        yield text()


def _keys(keys: Iterable[ExplainedKey], config: MirrorConfig) -> Iterator[RenderableType]:
    for key in keys:
        mark = "" if key.support is Support.ACTS else f"[{key.support}] "
        said = text(f"{key.key} = ")
        said.append_text(lines(key.value))
        said.append_text(text(f"  ({_origin(key, config)})", style="dim"))
        said.overflow = "fold"
        yield Padding(said, (0, 0, 0, 2), expand=False)
        yield Padding(text(mark + key.meaning), (0, 0, 0, 6), expand=False)


def _origin(key: ExplainedKey, config: MirrorConfig) -> str:
    if not key.file:
        return "default"
    if key.line is None:
        return key.file
    # with one file, its name is known to the reader
    return f"{key.file}:{key.line}" if config.more_files else f"line {key.line}"
