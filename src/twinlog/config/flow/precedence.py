"""Prefixes and precedence: which line applies to a cluster, a flow and each of its clients.

This module follows MirrorMaker 2's dedicated mode step by step, including its pitfalls (`audit`
warns of them):

- `A->B.producer.x` does not apply to the producer that writes to B, because MirrorMaker 2 creates
  that producer like a Connect worker's, from `B.producer.x` and `A->B.producer.override.x`;
- `A.consumer.x` takes precedence over `A->B.consumer.x`;
- keys such as `A.metadata.max.age.ms` apply to no client, because a cluster passes only connection
  settings to its clients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from twinlog.config.keys.client_keys import Role, is_connection_key
from twinlog.config.keys.key_table import (
    CONNECTOR_NAMES,
    DEFINITIONS,
    OWN_FLOW_NAMES,
    OWN_TARGET_NAMES,
    RENAMED,
    TRANSFORMS,
)
from twinlog.config.values.origin import ClientProperties, Setting, Settings
from twinlog.config.values.types import parse_boolean, trimmed
from twinlog.model import Flow

_EVERY_FLOW_PREFIXES = ("config.providers", "replication.policy", f"{TRANSFORMS}.")
_ROLE_NAMES = tuple(role.value for role in Role)


def cluster_settings(raw: Settings, alias: str) -> Settings:
    """Return the settings of one cluster: the lines with its alias as prefix, and top-level
    connection settings for keys without such a line.
    """
    settings = raw.stripped(f"{alias}.")
    own, general = _connection_settings(settings), _connection_settings(raw)
    for name, setting in (*own.items(), *general.items()):
        for role in Role:
            settings.setdefault(f"{role}.{name}", setting)
        settings.setdefault(name, setting)
    return Settings(settings)


def flow_settings(raw: Settings, flow: Flow) -> Settings:
    """Return the settings of a flow's connectors, with MirrorMaker 2's order of precedence."""
    settings = {
        name: setting
        for name, setting in raw.items()
        if name in CONNECTOR_NAMES | OWN_FLOW_NAMES or name.startswith(_EVERY_FLOW_PREFIXES)
    }
    target = cluster_settings(raw, flow.target)
    settings |= _cluster_settings("source", cluster_settings(raw, flow.source))
    settings |= _cluster_settings("target", target)
    # a step that MirrorMaker 2 does not have: Twinlog's own keys with the target's prefix
    settings |= {name: target[name] for name in target if name in OWN_TARGET_NAMES}
    settings |= raw.stripped(f"{flow}.")
    for old, new in RENAMED.items():
        if old in settings:
            settings.setdefault(new, settings[old])
    return Settings(settings)


def _cluster_settings(side: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    # MirrorMaker 2 tests for `^(consumer|producer|admin).*`, without a dot, so `adminx` matches too
    return {
        (f"{side}.{name}" if name.startswith(_ROLE_NAMES) else f"{side}.cluster.{name}"): setting
        for name, setting in settings.items()
    }


def cluster_client(settings: Settings, role: Role) -> ClientProperties:
    """Return the properties of a client that belongs to a cluster and to no flow."""
    return ClientProperties(_connection_settings(settings) | settings.stripped(f"{role}."))


def connector_client(flow: Settings, side: str, role: Role) -> ClientProperties:
    """Return the properties of a client that a flow's connectors open to the cluster `side`: source
    or target. For the producer of the copied records, see `data_producer`.
    """
    return ClientProperties(
        _connection_settings(flow.stripped(f"{side}.cluster."))
        | flow.stripped(f"{role}.")
        | flow.stripped(f"{side}.{role}.")
    )


def data_producer(target: Settings, flow: Settings) -> ClientProperties:
    """Return the properties of the producer of the copied records: those of a Connect worker of the
    target, overridden by the flow's `producer.override.` settings.
    """
    return ClientProperties(
        _connection_settings(target)
        | target.stripped(f"{Role.PRODUCER}.")
        | flow.stripped(f"{Role.PRODUCER}.override.")
    )


def _connection_settings(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    return {name: setting for name, setting in settings.items() if is_connection_key(name)}


def setting_of(settings: Mapping[str, Setting], name: str) -> Setting:
    """Return a setting with its line, or the key's default if no line sets it."""
    default = DEFINITIONS[name].default or ""
    return settings.get(name) or Setting(key=name, value=default, file="<default>")


def prefixes(key: str, aliases: Collection[str]) -> list[str]:
    """Return each flow and cluster prefix with which a key begins, and the empty prefix."""
    scopes = (*map(str, candidate_flows(aliases)), *aliases)
    return [*(f"{scope}." for scope in scopes if key.startswith(f"{scope}.")), ""]


def prefix_of(key: str, aliases: Collection[str]) -> str:
    """Return a key's prefix: `A.`, `A->B.`, or an empty string if it has none. The longest match is
    returned, because `A.B` may also be the alias of a cluster.
    """
    return max(prefixes(key, aliases), key=len)


def candidate_flows(aliases: Iterable[str]) -> tuple[Flow, ...]:
    """Return every ordered pair of two different clusters."""
    names = tuple(dict.fromkeys(aliases))
    return tuple(Flow(a, b) for a in names for b in names if a != b)


_EMIT_HEARTBEATS = "emit.heartbeats.enabled"


def enabled_or_why_not(raw: Settings, flow: Flow) -> tuple[bool, str]:
    """Return True if MirrorMaker 2 would run the flow. Else return False, with the reason if a line
    seems to enable the flow, or an empty text.

    MirrorMaker 2 reads `enabled` twice, and a flow runs only if both results are true. The herder
    of a pair of clusters exists if Boolean.parseBoolean (not trimmed) returns true, or if the pair
    emits heartbeats (the default). The herder's connectors run if ConfigDef (trimmed, only true and
    false are valid) returns true, with a top-level `enabled` as default.
    """
    own = raw.get(f"{flow}.enabled")
    setting = own or raw.get("enabled")
    if setting is None:
        return False, ""
    text = trimmed(setting.value).lower()
    if text == "false":
        return False, ""
    if text != "true":
        what = f"{setting.shown} is not exactly true, so the flow is disabled{setting.hint}"
        meant = "false" if text.split()[:1] == ["false"] else "true"  # such as `false # comment`
        return False, f"{what}; write: {flow}.enabled = {meant}"
    heartbeats = raw.get(f"{flow}.{_EMIT_HEARTBEATS}") or raw.get(_EMIT_HEARTBEATS)
    herder = (own is not None and parse_boolean(own.value)) or (
        heartbeats is None or parse_boolean(heartbeats.value)
    )
    if not herder:
        blank = (
            "a blank at the end of the value"
            if own
            else "if emit.heartbeats.enabled is false, `enabled` without a prefix"
        )
        return False, f"{blank} does not enable the flow; write: {flow}.enabled = true"
    return True, ""
