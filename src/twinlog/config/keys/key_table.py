"""All configuration keys by name."""

from __future__ import annotations

from twinlog.config.keys.client_keys import SECURITY_KEYS
from twinlog.config.keys.flow_keys import FLOW_KEYS
from twinlog.config.keys.key_types import KeyDefinition, KeyScope
from twinlog.config.keys.own_keys import OWN_KEYS

DEFINITIONS: dict[str, KeyDefinition] = {
    definition.name: definition for definition in FLOW_KEYS + OWN_KEYS
}

RENAMED: dict[str, str] = {
    old: definition.name for definition in FLOW_KEYS + OWN_KEYS for old in definition.replaces
}
"""Deprecated name to current name."""

CONNECTOR_NAMES = frozenset(
    {definition.name for definition in FLOW_KEYS} | set(RENAMED) | SECURITY_KEYS
)
"""Names that reach every flow as top-level keys."""

OWN_FLOW_NAMES = frozenset(definition.name for definition in OWN_KEYS)
OWN_TARGET_NAMES = frozenset(
    definition.name for definition in FLOW_KEYS + OWN_KEYS if definition.scope is KeyScope.TARGET
)
"""Keys that are also read as `B.key`: Twinlog's own target keys, and one key of Connect's workers.
"""
