"""Creates a replication policy from its configuration."""

from __future__ import annotations

from typing import cast

from twinlog.config.flow.custom_classes import custom_instance
from twinlog.config.flow.schema import PolicyConfig, PolicyKind
from twinlog.mirror.names.naming import DefaultReplicationPolicy, IdentityReplicationPolicy


def policy_from(config: PolicyConfig, source_alias: str | None) -> DefaultReplicationPolicy:
    """Return the policy. `source_alias`: the assumed origin of topics if names are kept."""
    if config.custom:
        made = custom_instance(
            config.custom,
            separator=config.separator,
            internal_separator=config.internal_separator,
            source_alias=source_alias,
        )
        return cast("DefaultReplicationPolicy", made)
    if config.kind is PolicyKind.IDENTITY:
        return IdentityReplicationPolicy(
            separator=config.separator,
            internal_separator=config.internal_separator,
            source_alias=source_alias,
            renames=config.renames,
        )
    return DefaultReplicationPolicy(
        separator=config.separator,
        internal_separator=config.internal_separator,
        renames=config.renames,
    )
