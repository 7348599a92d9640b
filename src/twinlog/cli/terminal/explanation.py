"""How `twinlog check` shows what a configuration says: a table for each flow, keys with lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from twinlog.cli.terminal.tables import lines, row, text
from twinlog.config.advice.explanation import ExplainedKey, explain, without_meaning
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.keys.key_types import Support


def explanation_json(config: MirrorConfig) -> dict[str, Any]:
    """Fields of the JSON answer: every key of every flow, and the lines that change nothing."""
    return {
        "warnings": [str(warning) for warning in config.warnings],
        "explained": [asdict(explain(flow)) for flow in config.flows],
        "without_meaning": [asdict(line) for line in without_meaning(config)],
    }


def explanation_parts(config: MirrorConfig, *, only_set: bool) -> Iterator[RenderableType]:
    """What people read; `only_set` leaves defaults out."""
    for flow in map(explain, config.flows):
        keys = [key for key in flow.keys if key.file or not (only_set or _is_idle(key))]
        yield text((flow.flow, "bold"), ": ", "what FILE sets" if only_set else "keys")
        yield _table(keys, config)
        for line in flow.differences:
            yield text("  ", ("differs: ", "cyan"), line)
        yield text()
    idle = without_meaning(config)
    if idle:
        yield text("accepted, without a meaning here:")
        yield _table(idle, config)
        yield text()


def _is_idle(key: ExplainedKey) -> bool:
    return key.support is Support.NO_MEANING


def _table(keys: Iterable[ExplainedKey], config: MirrorConfig) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("  key", no_wrap=True)
    table.add_column("value")
    table.add_column("from", no_wrap=True)
    table.add_column("")
    for key in keys:
        mark = "" if key.support is Support.ACTS else f"[{key.support}] "
        row(
            table,
            f"  {key.key}",
            lines(key.value),
            text(_origin(key, config), style="" if key.file else "dim"),
            mark + key.meaning,
        )
    return table


def _origin(key: ExplainedKey, config: MirrorConfig) -> str:
    if not key.file:
        return "default"
    if key.line is None:
        return key.file
    # with one file its name is what the reader has just written
    return f"{key.file}:{key.line}" if config.more_files else f"line {key.line}"
