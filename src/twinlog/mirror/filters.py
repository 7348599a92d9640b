"""Which topics a flow mirrors, and which of their configs a new remote topic gets: MirrorMaker 2's rules.

From `MirrorSourceConnector` and `DefaultConfigPropertyFilter` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from twinlog.config.schema import FlowConfig, PolicyKind
from twinlog.mirror.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
)

STATIC_BROKER_CONFIG: Final = 4
"""ConfigSource of a value from the broker's own file: it says nothing of the topic."""

USE_SOURCE_DEFAULTS: Final = "source"


def policy_of(flow: FlowConfig) -> ReplicationPolicy:
    """The naming policy of a flow."""
    policy = flow.policy
    if policy.kind is PolicyKind.IDENTITY:
        return IdentityReplicationPolicy(
            separator=policy.separator,
            internal_separator=policy.internal_separator,
            source_alias=flow.source_alias,
        )
    return DefaultReplicationPolicy(
        separator=policy.separator, internal_separator=policy.internal_separator
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelector:
    """Whether a source topic is mirrored by a flow."""

    flow: FlowConfig
    policy: ReplicationPolicy

    @classmethod
    def of(cls, flow: FlowConfig) -> Self:
        return cls(flow=flow, policy=policy_of(flow))

    def selects(self, topic: str) -> bool:
        """The filter wants it (or it is a heartbeats topic), it is not internal, and it does not go in a circle."""
        return (
            (self._wanted(topic) or self._is_heartbeats(topic))
            and not self.policy.is_internal_topic(topic)
            and not self.is_cycle(topic)
        )

    def _wanted(self, topic: str) -> bool:
        return self.flow.topics.matches(topic) and not self.flow.topics_exclude.matches(topic)

    def _is_heartbeats(self, topic: str) -> bool:
        return self.flow.heartbeats_replication_enabled and self.policy.is_heartbeats_topic(topic)

    def is_cycle(self, topic: str) -> bool:
        """True when the topic has passed the target already; the identity policy cannot tell, but for heartbeats."""
        source = self.policy.topic_source(topic)
        if source is None:
            return False
        if source == self.flow.target_alias:
            return True
        upstream = self.policy.upstream_topic(topic)
        if upstream is None or upstream == topic:
            return False
        return self.is_cycle(upstream)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigEntry:
    """One config of a source topic, as the cluster describes it."""

    name: str
    value: str | None
    source: int
    """ConfigSource of Kafka's protocol."""
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPropertyFilter:
    """Which configs of a source topic a new remote topic gets."""

    flow: FlowConfig

    @classmethod
    def of(cls, flow: FlowConfig) -> Self:
        return cls(flow=flow)

    def for_new_topic(self, entries: Iterable[TopicConfigEntry]) -> dict[str, str]:
        """Names and values that pass."""
        return {
            entry.name: entry.value
            for entry in entries
            if entry.value is not None and self._passes(entry)
        }

    def _passes(self, entry: TopicConfigEntry) -> bool:
        if entry.is_default and self.flow.use_defaults_from != USE_SOURCE_DEFAULTS:
            return False
        if entry.is_read_only or entry.is_sensitive or entry.source == STATIC_BROKER_CONFIG:
            return False
        return not self.flow.config_properties_exclude.matches(entry.name)
