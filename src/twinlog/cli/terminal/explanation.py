"""Shows a configuration for `twinlog check --explain`: each key with its line, and its meaning
below, as wide as the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding

from twinlog.cli.terminal.tables import lines, text
from twinlog.config.advice.explanation import ExplainedKey, explain, without_meaning
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.keys.key_types import Support


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
            yield from _keys([key for key in flow.keys if not (key.file or _is_idle(key))], config)
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


def _is_idle(key: ExplainedKey) -> bool:
    return key.support is Support.NO_MEANING


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
