"""Selects the topics that a flow mirrors, and the configs that a new remote topic gets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self, cast

from twinlog.config.flow.custom_classes import custom_instance
from twinlog.config.flow.schema import FlowConfig, OffsetSyncsConfig, PolicyConfig, PolicyKind
from twinlog.config.regex.patterns import NamePattern
from twinlog.mirror.names.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    is_own_topic,
)
from twinlog.wire.topic_settings import ConfigEntry, ConfigSource


def policy_from(config: PolicyConfig, source_alias: str | None) -> DefaultReplicationPolicy:
    """Return the replication policy. `source_alias`: the cluster from which every topic is assumed
    to come if topics keep their names, or None.
    """
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


def policy_of(flow: FlowConfig) -> DefaultReplicationPolicy:
    """Return the replication policy of a flow's configuration."""
    return policy_from(flow.policy, flow.source_alias)


def offset_syncs_topic(flow: FlowConfig, syncs: OffsetSyncsConfig) -> str:
    """Return the name of MirrorMaker 2's offset syncs topic. The topic is on one of the flow's
    clusters, and its name contains the alias of the other one.
    """
    other = flow.source_alias if syncs.on_target else flow.target_alias
    return policy_of(flow).offset_syncs_topic(other)


class Verdict(StrEnum):
    """The reason why a source topic is mirrored or not."""

    SELECTED = "selected"
    NOT_INCLUDED = "not in `topics`"
    EXCLUDED = "in `topics.exclude`"
    INTERNAL = "internal"
    CYCLE = "came from the target"
    RELEASED = "released from the flow"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelector:
    """Selects source topics by the flow's filters, and heartbeats topics. Internal topics and
    topics that came from the target are never selected.
    """

    topics: NamePattern
    topics_exclude: NamePattern
    heartbeats: bool
    """Whether heartbeats topics are mirrored even if the filters do not select them."""
    policy: DefaultReplicationPolicy
    target_alias: str
    released: frozenset[str] = frozenset()

    @classmethod
    def of(cls, flow: FlowConfig) -> Self:
        return cls(
            topics=flow.topics,
            topics_exclude=flow.topics_exclude,
            heartbeats=flow.heartbeats_replication_enabled,
            policy=policy_of(flow),
            target_alias=flow.target_alias,
            released=flow.released,
        )

    def selects(self, topic: str) -> bool:
        return self.verdict(topic) is Verdict.SELECTED

    def verdict(self, topic: str) -> Verdict:
        if self.policy.is_internal_topic(topic) or is_own_topic(topic):
            return Verdict.INTERNAL
        by_heartbeat = self.heartbeats and self.policy.is_heartbeats_topic(topic)
        if not by_heartbeat and not self.topics.matches(topic):
            return Verdict.NOT_INCLUDED
        if not by_heartbeat and self.topics_exclude.matches(topic):
            return Verdict.EXCLUDED
        if topic in self.released:
            return Verdict.RELEASED
        return Verdict.CYCLE if self.is_cycle(topic) else Verdict.SELECTED

    def is_cycle(self, topic: str) -> bool:
        """Return True if a cluster alias in the topic's name shows that the topic came from the
        target. Under the identity policy, names do not show an origin.
        """
        if self._holds_alias(topic):
            return True
        name: str | None = topic
        while name is not None:
            source = self.policy.topic_source(name)
            if source is None or source == self.target_alias:
                return source is not None
            upstream = self.policy.upstream_topic(name)
            name = None if upstream == name else upstream
        return False

    def _holds_alias(self, topic: str) -> bool:
        """Return True if the target's alias contains the separator, and the topic's name contains
        that alias.

        Such an alias looks like several aliases if the name is split at the separator, so it is
        searched as a whole.
        """
        policy = self.policy
        if type(policy) is not DefaultReplicationPolicy or not policy.separator:
            return False
        separator = policy.separator
        if separator not in self.target_alias:
            return False
        mark = f"{self.target_alias}{separator}"
        _, separator_part, rest = f"{separator}{topic}".partition(f"{separator}{mark}")
        return bool(separator_part) and bool(rest.replace(separator, ""))


def is_remote_topic_of(policy: DefaultReplicationPolicy, source_alias: str, topic: str) -> bool:
    """Return True if the name of `topic`, a topic on the target, shows that it is a copy from this
    source.
    """
    return policy.topic_source(topic) == source_alias and topic != policy.checkpoints_topic(
        source_alias
    )


SINGLE_BROKER_SOURCES: Final = (ConfigSource.STATIC_BROKER, ConfigSource.DYNAMIC_BROKER)
"""`ConfigEntry.source` of config values that are set for one broker only. Another broker may report
other values.
"""


TIMESTAMP_LIMITS: Final = frozenset(
    {"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"}
)
OTHER_NAMES_OF_LIMITS: Final = (
    "message.timestamp.difference.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
)
"""Names of the timestamp limits before Kafka 3.6, and in a broker's configuration file. MirrorMaker
2's default list of excluded configs has these three instead of today's topic configs, so it copies
the limits.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPropertyFilter:
    """Selects the configs of a source topic that its remote topic gets.

    If the list of exclusions has the timestamp limits under any of their names, they are excluded
    under all names. A remote topic with its source's limits would reject records that became too
    old while they waited to be copied, so a copy that lagged once would stop permanently.
    """

    exclude: NamePattern
    copies_defaults: bool
    """Whether the source's defaults become values on the target (`use.defaults.from=source`)."""

    @classmethod
    def of(cls, flow: FlowConfig) -> Self:
        return cls(
            exclude=flow.config_sync.exclude,
            # MM2 compares with "source" and treats everything else as the target
            copies_defaults=flow.config_sync.use_defaults_from == "source",
        )

    def may_be_copied(self, entry: ConfigEntry) -> bool:
        """Return True if a config may be mirrored, regardless of its value."""
        return (
            not entry.is_read_only
            and not entry.is_sensitive
            and entry.source not in SINGLE_BROKER_SOURCES
            and not self._excludes(entry.name)
        )

    def _excludes(self, name: str) -> bool:
        meant = OTHER_NAMES_OF_LIMITS if name in TIMESTAMP_LIMITS else ()
        return any(map(self.exclude.matches, (name, *meant)))
