"""Prefixes and precedence: which line decides, for a cluster, a flow and each of its clients.

This is MirrorMaker 2's dedicated mode, step by step, traps included (they are reported by `audit`,
not repaired):

- `A->B.producer.x` does not reach the producer that writes to B: that is built like a Connect
  worker's, from `B.producer.x` and `A->B.producer.override.x`;
- `A->B.consumer.x` loses to `A.consumer.x`;
- `A.metadata.max.age.ms` and the like stay with the cluster and reach no client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twinlog.config.keys.client_keys import Role, is_connection_key
from twinlog.config.keys.key_table import CONNECTOR_NAMES, OWN_FLOW_NAMES, OWN_TARGET_NAMES, RENAMED
from twinlog.config.values.origin import ClientProperties, Setting, Settings
from twinlog.model import Flow

_EVERY_FLOW_PREFIXES = ("config.providers", "replication.policy")
_ROLE_NAMES = tuple(role.value for role in Role)


def cluster_settings(raw: Settings, alias: str) -> Settings:
    """What is set for one cluster: its own lines, top-level connection settings in the gaps."""
    found = raw.stripped(f"{alias}.")
    connection = {name: found[name] for name in found if is_connection_key(name)}
    general = {name: raw[name] for name in raw if is_connection_key(name)}
    for name, setting in connection.items():
        _fill_roles(found, name, setting)
    for name, setting in general.items():
        _fill_roles(found, name, setting)
        found.setdefault(name, setting)
    return Settings(found)


def _fill_roles(found: dict[str, Setting], name: str, setting: Setting) -> None:
    for role in Role:
        found.setdefault(f"{role}.{name}", setting)


def flow_settings(raw: Settings, flow: Flow) -> Settings:
    """What the connectors of a flow are configured with; later steps override earlier ones."""
    found = {
        name: setting
        for name, setting in raw.items()
        if name in CONNECTOR_NAMES | OWN_FLOW_NAMES or name.startswith(_EVERY_FLOW_PREFIXES)
    }
    target = cluster_settings(raw, flow.target)
    found |= _of_cluster("source", cluster_settings(raw, flow.source))
    found |= _of_cluster("target", target)
    # our own per-target keys: MM2 has none such, so this step is ours
    found |= {name: target[name] for name in target if name in OWN_TARGET_NAMES}
    found |= raw.stripped(f"{flow}.")
    for old, new in RENAMED.items():
        if old in found:
            found.setdefault(new, found[old])
    return Settings(found)


def _of_cluster(side: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    # MM2's test is `^(consumer|producer|admin).*`, without a dot: `adminx` would be treated the
    # same
    return {
        (f"{side}.{name}" if name.startswith(_ROLE_NAMES) else f"{side}.cluster.{name}"): setting
        for name, setting in settings.items()
    }


def cluster_client(settings: Settings, role: Role) -> ClientProperties:
    """A client of a cluster for no flow in particular."""
    return ClientProperties(_connection_settings(settings) | settings.stripped(f"{role}."))


def source_client(flow: Settings, role: Role) -> ClientProperties:
    """A client that a flow's connectors open to the source."""
    return _connector_client(flow, "source", role)


def target_client(flow: Settings, role: Role) -> ClientProperties:
    """A client that a flow's connectors open to the target; records go by `data_producer`."""
    return _connector_client(flow, "target", role)


def _connector_client(flow: Settings, side: str, role: Role) -> ClientProperties:
    return ClientProperties(
        _connection_settings(flow.stripped(f"{side}.cluster."))
        | flow.stripped(f"{role}.")
        | flow.stripped(f"{side}.{role}.")
    )


def data_producer(target: Settings, flow: Settings) -> ClientProperties:
    """The producer of the copied records: the target worker's, overridden per flow."""
    return ClientProperties(
        _connection_settings(target)
        | target.stripped(f"{Role.PRODUCER}.")
        | flow.stripped(f"{Role.PRODUCER}.override.")
    )


def _connection_settings(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    return {name: setting for name, setting in settings.items() if is_connection_key(name)}


def candidate_flows(aliases: Iterable[str]) -> tuple[Flow, ...]:
    """Every ordered pair of two different clusters."""
    names = tuple(dict.fromkeys(aliases))
    return tuple(Flow(a, b) for a in names for b in names if a != b)
