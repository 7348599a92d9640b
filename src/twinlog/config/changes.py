"""What differs between two readings of a configuration, flow by flow; secrets are never shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from twinlog.config.origin import Setting, Settings, shown_key
from twinlog.config.schema import FlowConfig, MirrorConfig

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
    """Compare the effective values, so that moved lines and comments are no change."""
    old = {config.flow: config for config in before.flows}
    new = {config.flow: config for config in after.flows}
    changed: list[FlowConfig] = []
    lines: list[str] = []
    for flow, config in new.items():
        if flow not in old:
            lines.append(f"{flow}: added")
        elif found := list(_differences(old[flow].settings, config.settings)):
            changed.append(config)
            lines += (f"{flow}: {line}" for line in found)
    lines += (f"{flow}: removed" for flow in old if flow not in new)
    return ConfigChanges(
        changed=tuple(changed),
        added=tuple(config for flow, config in new.items() if flow not in old),
        removed=tuple(config for flow, config in old.items() if flow not in new),
        lines=tuple(lines),
    )


def _differences(before: Settings, after: Settings) -> Iterator[str]:
    said: set[tuple[str, str, str]] = set()
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and old.value == new.value:
            continue
        # one line of the file may stand under several names here: for a cluster's every client
        key = next(one.key for one in (new, old) if one is not None)
        line = (shown_key(key), _shown(old), _shown(new))
        if line not in said:
            said.add(line)
            yield f"{line[0]}: {line[1]} -> {line[2]}"


def _shown(setting: Setting | None) -> str:
    return _NOT_SET if setting is None else setting.shown
