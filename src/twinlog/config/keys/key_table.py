"""Every key there is, by name."""

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
"""Old name to new name."""

CONNECTOR_NAMES = frozenset(
    {definition.name for definition in FLOW_KEYS} | set(RENAMED) | SECURITY_KEYS
)
"""Exact names that a top-level key must have to reach every flow."""

OWN_FLOW_NAMES = frozenset(definition.name for definition in OWN_KEYS)
OWN_TARGET_NAMES = frozenset(
    definition.name for definition in FLOW_KEYS + OWN_KEYS if definition.scope is KeyScope.TARGET
)
"""Read from the target's lines too: our own keys, and one of Connect's workers."""
