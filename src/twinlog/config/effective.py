"""A flow's values as they act, name by name, so that two readings can be compared.

Reloading (`changes`) and the comparison with another process (`digest`) both stand on it, so what
begins a flow again is what two processes must agree on. A value that is only written otherwise
(`010` for `10`, a blank behind a comma, the default spelled out) is the same value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from twinlog.config.flow.schema import FlowConfig, HeartbeatConfig
from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS, SECURITY_PROTOCOL, is_connection_key
from twinlog.config.keys.key_table import DEFINITIONS, RENAMED
from twinlog.config.keys.key_types import KeyKind
from twinlog.config.values.origin import Setting, shown_key
from twinlog.config.values.types import to_list, trimmed

_CLIENT: Final = re.compile(
    r"(source\.|target\.)?(cluster\.|producer\.override\.|producer\.|consumer\.|admin\.)"
)
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER_ENDINGS: Final = (".ms", ".bytes", ".size", ".memory")
"""How numeric settings of Java's clients are called, as far as they act here."""

ACT_WHEN_GIVEN: Final = frozenset(
    {
        "checkpoints.topic.replication.factor",
        "heartbeats.topic.replication.factor",
        "offset-syncs.topic.replication.factor",
        "twinlog.lane.memory.bytes",
    }
)
"""Their default is not what counts without them: topics get the brokers' default, lanes
`buffer.memory`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """One value; `setting` is where it stands, None for what several lines of other flows make."""

    value: str
    setting: Setting | None

    @property
    def shown(self) -> str:
        """For a message: secrets are hidden."""
        return self.value if self.setting is None else self.setting.shown


def effective(config: FlowConfig) -> dict[str, Effective]:
    """What acts and is not the default, by the name under which the flow looks it up."""
    found = {}
    for name, setting in config.settings.items():
        if name in RENAMED:
            continue  # it stands under its new name too, where it counts
        value = _canonical(name, setting)
        if name not in DEFINITIONS or name in ACT_WHEN_GIVEN or value != _default(name):
            found[name] = Effective(value=value, setting=setting)
    for name, value in _lone_heartbeats(config):
        found[name] = Effective(value=value, setting=None)
    return found


def is_of_connection(name: str) -> bool:
    """Whether a name says how to enter a cluster, for whichever of its clients."""
    return is_connection_key(_bare(name))


def as_written(config: FlowConfig, name: str) -> str:
    """`source.consumer.fetch.max.bytes` as people write it: `A.consumer.fetch.max.bytes`."""
    for side, alias in (("source.", config.flow.source), ("target.", config.flow.target)):
        if name.startswith(side) and _CLIENT.match(name):
            name = f"{alias}.{name.removeprefix(side).removeprefix('cluster.')}"
            break
    return shown_key(name)


def _default(name: str) -> str:
    default = DEFINITIONS[name].default or ""
    return _canonical(name, Setting(key=name, value=default, file="<default>"))


def _canonical(name: str, setting: Setting) -> str:
    text = trimmed(setting.value)
    if name not in DEFINITIONS:
        return _canonical_of_client(_bare(name), text, setting)
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
    # nothing else is touched: blanks and zeros of a password are part of it
    return _number(text) if key.endswith(_NUMBER_ENDINGS) else setting.value


def _number(text: str) -> str:
    return str(int(text)) if _NUMBER.fullmatch(text) else text


def _bare(name: str) -> str:
    return _CLIENT.sub("", name, count=1) if _CLIENT.match(name) else name


def _lone_heartbeats(config: FlowConfig) -> Iterator[tuple[str, str]]:
    """Those of pairs that are not enabled: their lines are none of this flow's settings."""
    for beat in config.heartbeats:
        if (beat.source_alias, beat.target_alias) != (config.source_alias, config.target_alias):
            yield f"heartbeats {beat.source_alias}->{beat.target_alias}", _said(beat)


def _said(beat: HeartbeatConfig) -> str:
    where = "target" if beat.into_target else "source"
    replicas = "" if beat.replication_factor is None else f", {beat.replication_factor} replicas"
    return f"every {beat.interval_seconds} s into the {where}{replicas}"
