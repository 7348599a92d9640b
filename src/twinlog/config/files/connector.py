"""Reads MirrorMaker 2 connectors on Kafka Connect as an mm2.properties with one flow.

Kafka Connect runs the three connectors of a flow separately, each from a file of its own. Each file
has the addresses of both clusters in `source.cluster.*` and `target.cluster.*`; the other keys
belong to the flow. The connectors are read as one flow that does only their work, like a flow with
the same sections in a Strimzi resource.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from twinlog.config.files.names import Names, names_by_prefix
from twinlog.config.files.providers import provider_key
from twinlog.config.keys.client_keys import class_name
from twinlog.config.keys.key_table import section_of
from twinlog.config.values.origin import Setting, refuse
from twinlog.config.values.types import trimmed
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning
from twinlog.model import Flow

CLASS: Final = "connector.class"
_SIDES: Final = ("source", "target")
_ADDRESSES: Final = tuple(f"{side}.cluster.bootstrap." for side in _SIDES)
_ALIAS: Final = re.compile(r"[A-Za-z0-9._-]+")
_CONSUMER: Final = "consumer."
_SOURCE: Final = "MirrorSourceConnector"
_CHECKPOINT: Final = "MirrorCheckpointConnector"
_HEARTBEAT: Final = "MirrorHeartbeatConnector"
_SECTIONS: Final = {
    _SOURCE: "sourceConnector",
    _CHECKPOINT: "checkpointConnector",
    _HEARTBEAT: "heartbeatConnector",
}
"""The Strimzi section of each connector class. Keys that all connectors share are read only from
the connector that comes first in this order. In the other connectors such keys do not affect the
copy, as in Kafka Connect.
"""
_OFF: Final = {
    _SOURCE: {"topics": "", "heartbeats.replication.enabled": "false"},
    _CHECKPOINT: {
        "emit.checkpoints.enabled": "false",
        "sync.group.offsets.enabled": "false",
    },
    _HEARTBEAT: {"emit.heartbeats.enabled": "false"},
}
"""The keys, with their values, that disable a connector's work, by the connector's class."""
_OWN: Final = frozenset(("name", CLASS, "tasks.max"))
"""Keys whose values may differ between the connectors of one flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """One connector's configuration, as in its file."""

    name: str
    """The connector's class without the package."""
    flow: Flow
    keys: Mapping[str, Setting]

    def is_of_flow(self, others: Collection[Connector]) -> bool:
        """Return True if this connector has the flow and servers of `others`, but another class."""
        return all(
            (self.flow, self._servers) == (other.flow, other._servers) and self.name != other.name
            for other in others
        )

    @property
    def _servers(self) -> dict[str, str]:
        return {
            key: trimmed(setting.value)
            for key, setting in self.keys.items()
            if key.startswith(_ADDRESSES)
        }


def is_connector(keys: Iterable[str]) -> bool:
    """Return True if these are the keys of a connector, not of an mm2.properties."""
    names = set(keys)
    if any("->" in key for key in names):
        return False
    if CLASS in names:
        return True
    return "clusters" not in names and any(key.startswith(_ADDRESSES) for key in names)


def read_connector(settings: Mapping[str, Setting]) -> Connector:
    """Return a connector. Raises ConfigError if the class is missing, or not MirrorMaker 2's."""
    kind = settings.get(CLASS)
    if kind is None:
        raise refuse(
            next(setting for key, setting in settings.items() if key.startswith(_ADDRESSES)),
            f"this is the configuration of a connector on Kafka Connect without {CLASS}",
            f"add {CLASS} = {' or '.join(_SECTIONS)}",
        )
    name = class_name(kind.value).rpartition(".")[2]
    if name not in _SECTIONS:
        raise refuse(
            kind,
            f"{kind.shown} is not a connector of MirrorMaker 2",
            f"give the configuration of a {', '.join(_SECTIONS)}, or an mm2.properties file",
        )
    return Connector(name=name, flow=_flow(settings), keys=settings)


def flow_of_connectors(
    connectors: Sequence[Connector],
) -> tuple[dict[str, Setting], tuple[ConfigWarning, ...]]:
    """Return the settings of the flow that the connectors form, and warnings."""
    running = sorted(connectors, key=lambda connector: list(_SECTIONS).index(connector.name))
    leading, flow = running[0], running[0].flow
    names = {connector.name for connector in running}
    values = {"clusters": f"{flow.source}, {flow.target}", f"{flow}.enabled": "true"}
    values |= _OFF[_HEARTBEAT]
    for name, keys in _OFF.items():
        if name not in names:
            values |= {f"{flow}.{key}": value for key, value in keys.items()}
    if _HEARTBEAT in names:
        values[f"{flow}.emit.heartbeats.enabled"] = "true"
    kind = leading.keys[CLASS]
    settings = {key: replace(kind, key=key, value=value) for key, value in values.items()}
    warnings = [_read_as(connector, names) for connector in running]
    for connector in running:
        for setting in connector.keys.values():
            message = _why_unused(setting, connector, leading)
            if message:
                warnings.append(warning(WarningCode.DEAD_KEY, setting, message))
            elif message is None:
                for key in _keys(setting, flow):
                    settings[key] = replace(setting, key=key, field=setting.key)
    return settings, tuple(warnings)


def _why_unused(setting: Setting, connector: Connector, leading: Connector) -> str | None:
    """Return why a key is not used. Return None if it is used, and an empty text if it is not used
    but needs no warning.
    """
    preferred = connector.keys.get(f"source.{setting.key}")
    if preferred is not None and setting.key.startswith(_CONSUMER):
        return f"{preferred.key} ({preferred.location}) takes precedence"
    owner = section_of(setting.key)
    if owner is None:
        return _why_shared_is_unused(setting, connector, leading)
    if owner == _SECTIONS[connector.name]:
        return None
    used = None if connector is leading else leading.keys.get(setting.key)
    if used is not None and setting.value == used.value:
        return ""
    if connector.name == _CHECKPOINT and setting.key.startswith("topics"):
        return "group offsets are translated for all topics of the flow"
    return f"has no effect in a {connector.name}"


def _why_shared_is_unused(setting: Setting, connector: Connector, leading: Connector) -> str | None:
    """Return what `_why_unused` returns, for a key that all connectors share."""
    used = leading.keys.get(setting.key)
    if connector is leading or (used is None and provider_key(setting.key)):
        return None
    if setting.key in _OWN or (used is not None and setting.value == used.value):
        return ""
    if used is None:
        return f"the connectors of a flow share this key; write it in {leading.keys[CLASS].file}"
    return (
        f"the connectors of a flow share this key, and the value of the {leading.name} "
        f"({used.location}) is used"
    )


def names_of_connectors(flow: Flow) -> Names:
    """Return the names that the keys of a flow have in the files of its connectors."""
    return names_by_prefix(
        (flow.source, flow.target),
        {
            f"{flow}.source.consumer.": "consumer.",
            f"{flow}.": "",
            f"{flow.source}.consumer.": "consumer.",
            f"{flow.source}.admin.": "source.admin.",
            f"{flow.source}.": "source.cluster.",
            f"{flow.target}.producer.": "producer.override.",
            f"{flow.target}.consumer.": "target.consumer.",
            f"{flow.target}.admin.": "target.admin.",
            f"{flow.target}.": "target.cluster.",
        },
    )


def _read_as(connector: Connector, names: Collection[str]) -> ConfigWarning:
    message = (
        f"a connector on Kafka Connect, read as the flow {connector.flow}; `twinlog convert` "
        "writes it as an mm2.properties"
    )
    if _SOURCE not in names:
        message += f"; give the file of the {_SOURCE} too, because this one copies no topic"
    return warning(WarningCode.READ_AS, connector.keys[CLASS], message)


def _flow(settings: Mapping[str, Setting]) -> Flow:
    """Return the flow between the aliases, or `source` to `target` if they are not valid names."""
    given = ((side, settings.get(f"{side}.cluster.alias")) for side in _SIDES)
    aliases = [(trimmed(setting.value) if setting else "") or side for side, setting in given]
    named = all(map(_ALIAS.fullmatch, aliases)) and len(set(aliases)) == len(aliases)
    return Flow(*(aliases if named else _SIDES))


def _keys(setting: Setting, flow: Flow) -> Iterator[str]:
    """Yield the key in an mm2.properties for a connector's key, if such a key is needed."""
    side, _, rest = setting.key.partition(".cluster.")
    if side in _SIDES and rest:
        alias = flow.source if side == "source" else flow.target
        if rest != "alias":
            yield f"{alias}.{rest}"
        elif trimmed(setting.value) != alias:
            yield f"{flow}.{setting.key}"
    elif setting.key.startswith(_CONSUMER) and not setting.key.startswith("consumer.override."):
        yield f"{flow}.source.{setting.key}"
    elif setting.key != CLASS:
        yield f"{flow}.{setting.key}"
