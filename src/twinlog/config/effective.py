"""The effective values of a flow by name, so that two configurations can be compared.

Reloading (`changes_between`) and the comparison with another process (`digests`) both use these
values. If a change of a value restarts a flow, two processes must not have different values either.
Values that differ only in notation (`010` and `10`, a blank after a comma, an explicit default) are
equal.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.config.flow.precedence import setting_of
from twinlog.config.flow.schema import FlowConfig, HeartbeatConfig, MirrorConfig
from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS, SECURITY_PROTOCOL, is_connection_key
from twinlog.config.keys.key_table import DEFINITIONS, RENAMED, KeyKind
from twinlog.config.values.origin import Setting, shown_key
from twinlog.config.values.types import NUMBER, to_list, trimmed

_CLIENT: Final = re.compile(
    r"(source\.|target\.)?(cluster\.|producer\.override\.|producer\.|consumer\.|admin\.)"
)
_NUMBER_ENDINGS: Final = (".ms", ".bytes", ".size", ".memory")
"""Endings of the names of all numeric client settings that have an effect in Twinlog."""

ACT_WHEN_GIVEN: Final = frozenset(
    {
        "checkpoints.topic.replication.factor",
        "heartbeats.topic.replication.factor",
        "offset-syncs.topic.replication.factor",
        "twinlog.lane.memory.bytes",
    }
)
"""Keys that have an effect even if they are set to their default. If they are not set, topics get
the brokers' default replication factor, and lanes use `buffer.memory`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """An effective value. `setting`: its line, or None if lines of other flows define it."""

    value: str
    setting: Setting | None

    @property
    def shown(self) -> str:
        """Return the value for a message. Secrets are hidden."""
        return self.value if self.setting is None else self.setting.shown


def effective(config: FlowConfig) -> dict[str, Effective]:
    """Return the effective values other than defaults, by their names in the flow's settings."""
    by_name = {}
    for name, setting in config.settings.items():
        if name in RENAMED:
            continue  # a deprecated name; the setting is also present under its new name
        value = _canonical(name, setting)
        is_written = name not in DEFINITIONS or name in ACT_WHEN_GIVEN
        if is_written or value != _canonical(name, setting_of({}, name)):
            by_name[name] = Effective(value=value, setting=setting)
    for name, value in _lone_heartbeats(config):
        by_name[name] = Effective(value=value, setting=None)
    return by_name


def as_written(config: FlowConfig, name: str) -> str:
    """Return a name as in a file, such as `A.consumer.x` instead of `source.consumer.x`."""
    for side, alias in (("source.", config.flow.source), ("target.", config.flow.target)):
        if name.startswith(side) and _CLIENT.match(name):
            name = f"{alias}.{name.removeprefix(side).removeprefix('cluster.')}"
            break
    return shown_key(name)


def _canonical(name: str, setting: Setting) -> str:
    text = trimmed(setting.value)
    if name not in DEFINITIONS:
        return _canonical_of_client(_without_prefix(name), text, setting)
    match DEFINITIONS[name].kind:
        case KeyKind.BOOLEAN:
            return text.lower()
        case KeyKind.SHORT | KeyKind.INT | KeyKind.LONG:
            return _number(text)
        case KeyKind.LIST | KeyKind.NAMES:
            return ",".join(to_list(setting))
        case _:
            return text


def _canonical_of_client(key: str, text: str, setting: Setting) -> str:
    if key == BOOTSTRAP_SERVERS:
        return ",".join(to_list(setting))
    if key == SECURITY_PROTOCOL:
        return text.upper()
    # values that are not numbers stay unchanged, because blanks and zeros may be part of a password
    return _number(text) if key.endswith(_NUMBER_ENDINGS) else setting.value


def _number(text: str) -> str:
    return str(int(text)) if NUMBER.fullmatch(text) else text


def _without_prefix(name: str) -> str:
    return _CLIENT.sub("", name, count=1) if _CLIENT.match(name) else name


def _lone_heartbeats(config: FlowConfig) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each heartbeat that the flow writes for a flow that is not enabled."""
    for beat in config.heartbeats:
        if (beat.source_alias, beat.target_alias) != (config.source_alias, config.target_alias):
            yield f"heartbeats {beat.source_alias}->{beat.target_alias}", _heartbeat_text(beat)


def _heartbeat_text(beat: HeartbeatConfig) -> str:
    where = "target" if beat.into_target else "source"
    replicas = "" if beat.replication_factor is None else f", {beat.replication_factor} replicas"
    return f"every {beat.interval_seconds} s into the {where}{replicas}"


# Short digests of a flow's effective configuration, by key, for comparison between processes.
# Clients with permission to describe the flow's group can read the digests. So no digest is made of
# secrets or of security keys, which may also name files with different paths on each machine.

DIGEST_CHARACTERS: Final = 8


def digests(config: FlowConfig) -> dict[str, str]:
    """Return digests by key, for values that are not the default."""
    out: dict[str, str] = {}
    for name, value in effective(config).items():
        is_secret = value.setting is not None and value.setting.secret
        if is_secret or is_connection_key(_without_prefix(name)):
            continue
        digest = hashlib.sha256(value.value.encode()).hexdigest()
        out[as_written(config, name)] = digest[:DIGEST_CHARACTERS]
    return dict(sorted(out.items()))


def differing_keys(own: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the keys whose digests differ, sorted."""
    return sorted(key for key in {*own, *other} if own.get(key) != other.get(key))


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
    """Compare effective values of two configurations, not their lines, comments and notation."""
    old = {config.flow: config for config in before.flows}
    new = {config.flow: config for config in after.flows}
    changed: list[FlowConfig] = []
    lines: list[str] = []
    for flow, config in new.items():
        if flow not in old:
            lines.append(f"{flow}: added")
        elif differences := list(_differences(old[flow], config)):
            changed.append(config)
            lines += (f"{flow}: {line}" for line in differences)
    lines += (f"{flow}: removed" for flow in old if flow not in new)
    return ConfigChanges(
        changed=tuple(changed),
        added=tuple(config for flow, config in new.items() if flow not in old),
        removed=tuple(config for flow, config in old.items() if flow not in new),
        lines=tuple(lines),
    )


def _differences(before: FlowConfig, after: FlowConfig) -> Iterator[str]:
    lines: set[str] = set()
    olds, news = effective(before), effective(after)
    for name in sorted({*olds, *news}):
        old, new = olds.get(name), news.get(name)
        if old is not None and new is not None and old.value == new.value:
            continue
        # one line of the file may have several names in a flow, one for each client of a cluster
        setting = next((config.setting for config in (new, old) if config and config.setting), None)
        key = name if setting is None else shown_key(setting.key)
        line = f"{key}: {_shown_value(before, name, old)} -> {_shown_value(after, name, new)}"
        if line not in lines:
            lines.add(line)
            yield line


def _shown_value(config: FlowConfig, name: str, value: Effective | None) -> str:
    if value is not None:
        return value.shown
    # a value that equals the default may be written in the file, and is then shown
    return config.settings[name].shown if name in config.settings else _NOT_SET
