"""Differences between two configurations, flow by flow. Secrets are never shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from twinlog.config.effective import Effective, effective
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.values.origin import shown_key

_NOT_SET: Final = "not set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChanges:
    """The flows that a new configuration changes, adds and removes, and a line for each change."""

    changed: tuple[FlowConfig, ...]
    added: tuple[FlowConfig, ...]
    removed: tuple[FlowConfig, ...]
    lines: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.removed)


def changes_between(before: MirrorConfig, after: MirrorConfig) -> ConfigChanges:
    """Compare the effective values: moved lines, comments and other notations are not changes."""
    old = {config.flow: config for config in before.flows}
    new = {config.flow: config for config in after.flows}
    changed: list[FlowConfig] = []
    lines: list[str] = []
    for flow, config in new.items():
        if flow not in old:
            lines.append(f"{flow}: added")
        elif found := list(_differences(old[flow], config)):
            changed.append(config)
            lines += (f"{flow}: {line}" for line in found)
    lines += (f"{flow}: removed" for flow in old if flow not in new)
    return ConfigChanges(
        changed=tuple(changed),
        added=tuple(config for flow, config in new.items() if flow not in old),
        removed=tuple(config for flow, config in old.items() if flow not in new),
        lines=tuple(lines),
    )


def _differences(before: FlowConfig, after: FlowConfig) -> Iterator[str]:
    said: set[str] = set()
    olds, news = effective(before), effective(after)
    for name in sorted({*olds, *news}):
        old, new = olds.get(name), news.get(name)
        if old is not None and new is not None and old.value == new.value:
            continue
        # a line of the file may have several names here, one for each client of a cluster
        setting = next((one.setting for one in (new, old) if one and one.setting), None)
        key = name if setting is None else shown_key(setting.key)
        line = f"{key}: {_shown(before, name, old)} -> {_shown(after, name, new)}"
        if line not in said:
            said.add(line)
            yield line


def _shown(config: FlowConfig, name: str, found: Effective | None) -> str:
    if found is not None:
        return found.shown
    # a value that equals the default may still be written in the file
    return config.settings[name].shown if name in config.settings else _NOT_SET
