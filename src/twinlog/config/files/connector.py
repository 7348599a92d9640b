"""Reads a MirrorMaker 2 connector on Kafka Connect as an mm2.properties with one flow.

Kafka Connect runs the three connectors of a flow separately. Each has the addresses of both
clusters in `source.cluster.*` and `target.cluster.*`; its other keys belong to the flow. The
configuration of one connector becomes a flow that does only what this connector does, like a flow
with one section in a Strimzi resource.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from twinlog.config.files.file_names import REST, FileNames
from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS, class_name
from twinlog.config.keys.flow_keys import CONNECTOR_ONLY
from twinlog.config.values.origin import Setting, refuse
from twinlog.config.values.types import trimmed
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning
from twinlog.model import Flow

CLASS: Final = "connector.class"
_SIDES: Final = ("source", "target")
_ADDRESSES: Final = tuple(f"{side}.cluster.bootstrap." for side in _SIDES)
_OF_CLUSTERS: Final = tuple(f"{side}.cluster." for side in _SIDES)
_OF_A_CLUSTER: Final = (
    rf"(?:{re.escape(BOOTSTRAP_SERVERS)}|security\.protocol|"
    rf"(?:ssl|sasl|consumer|producer|admin)\.{REST})"
)
_ALIAS: Final = re.compile(r"[A-Za-z0-9._-]+")
_NO_COPY: Final = {"topics": "", "heartbeats.replication.enabled": "false"}
_NO_CHECKPOINTS: Final = {
    "emit.checkpoints.enabled": "false",
    "sync.group.offsets.enabled": "false",
}
_NO_HEARTBEATS: Final = {"emit.heartbeats.enabled": "false"}
_HEARTBEATS: Final = {"emit.heartbeats.enabled": "true"}
_KINDS: Final = {
    "MirrorSourceConnector": ("sourceConnector", _NO_CHECKPOINTS | _NO_HEARTBEATS),
    "MirrorCheckpointConnector": ("checkpointConnector", _NO_COPY | _NO_HEARTBEATS),
    "MirrorHeartbeatConnector": ("heartbeatConnector", _NO_COPY | _NO_CHECKPOINTS | _HEARTBEATS),
}
"""By class: the Strimzi section whose keys it reads, and the keys that disable all other work."""


def is_connector(keys: Iterable[str]) -> bool:
    """Return True if these are the keys of a connector, not of an mm2.properties."""
    found = set(keys)
    if "clusters" in found or any("->" in key for key in found):
        return False
    return CLASS in found or any(key.startswith(_ADDRESSES) for key in found)


def read_connector(
    given: Mapping[str, Setting],
) -> tuple[dict[str, Setting], tuple[ConfigWarning, ...], ConnectorNames]:
    """Return the flow's settings, warnings, and the names of keys in the file.

    Raises ConfigError if the class is missing, or is not a connector of MirrorMaker 2.
    """
    kind = given.get(CLASS)
    if kind is None:
        raise refuse(
            next(one for key, one in given.items() if key.startswith(_ADDRESSES)),
            f"this is the configuration of a connector on Kafka Connect without {CLASS}",
            f"add {CLASS} = {' or '.join(_KINDS)}",
        )
    name = class_name(kind.value).rpartition(".")[2]
    if name not in _KINDS:
        raise refuse(
            kind,
            f"{kind.shown} is not a connector of MirrorMaker 2",
            f"name a file with {' or '.join(_KINDS)}, or an mm2.properties file",
        )
    section, switches = _KINDS[name]
    flow = _flow(given)
    warnings = [
        warning(
            WarningCode.READ_AS,
            kind,
            f"a connector on Kafka Connect, read as the flow {flow}; `twinlog convert` writes it "
            "as an mm2.properties",
        )
    ]
    values = {"clusters": f"{flow.source}, {flow.target}", f"{flow}.enabled": "true"}
    values |= _NO_HEARTBEATS | {f"{flow}.{key}": value for key, value in switches.items()}
    found: dict[str, Setting] = {}
    for one in given.values():
        owner = next((owner for owner, keys in CONNECTOR_ONLY.items() if one.key in keys), section)
        if owner != section:
            warnings.append(warning(WarningCode.DEAD_KEY, one, f"has no effect in a {name}"))
        else:
            field = one.key if one.key.startswith(_OF_CLUSTERS) else ""
            found.update((key, replace(one, key=key, field=field)) for key in _keys(one, flow))
    switched = {key: replace(kind, key=key, value=value) for key, value in values.items()}
    return {**switched, **found}, tuple(warnings), ConnectorNames(flow)


def _flow(given: Mapping[str, Setting]) -> Flow:
    """Return the flow between the aliases, or from `source` to `target` if they are not valid
    names.
    """
    aliases = [_alias(given, side) or side for side in _SIDES]
    named = all(map(_ALIAS.fullmatch, aliases)) and len(set(aliases)) == len(aliases)
    return Flow(*(aliases if named else _SIDES))


def _alias(given: Mapping[str, Setting], side: str) -> str:
    one = given.get(f"{side}.cluster.alias")
    return "" if one is None else trimmed(one.value)


def _keys(one: Setting, flow: Flow) -> Iterator[str]:
    """Yield the key of an mm2.properties for a connector's key, if it needs one."""
    side, _, rest = one.key.partition(".cluster.")
    if side in _SIDES and rest:
        alias = flow.source if side == "source" else flow.target
        if rest != "alias":
            yield f"{alias}.{rest}"
        elif trimmed(one.value) != alias:
            yield f"{flow}.{one.key}"
    elif one.key.startswith("consumer.") and not one.key.startswith("consumer.override."):
        yield f"{flow}.source.{one.key}"
    elif one.key != CLASS:
        yield f"{flow}.{one.key}"


class ConnectorNames(FileNames):
    """Maps keys of the flow and its clusters to those of a connector's configuration."""

    def __init__(self, flow: Flow) -> None:
        self._flow = f"{flow}."
        self._sides = dict(zip((f"{flow.source}.", f"{flow.target}."), _SIDES, strict=True))
        of_clusters = (re.escape(alias) + _OF_A_CLUSTER for alias in self._sides)
        super().__init__([re.escape(self._flow) + REST, *of_clusters])

    def field(self, key: str) -> str:
        if key.startswith(self._flow):
            rest = key.removeprefix(self._flow)
            return rest.removeprefix("source.") if rest.startswith("source.consumer.") else rest
        alias = next((one for one in self._sides if key.startswith(one)), None)
        if alias is None or key.startswith(_OF_CLUSTERS):
            return key
        side, rest = self._sides[alias], key.removeprefix(alias)
        if side == "source" and rest.startswith("consumer."):
            return rest
        if side == "target" and rest.startswith("producer."):
            return rest.replace(".", ".override.", 1)
        return f"{side}.cluster.{rest}"
