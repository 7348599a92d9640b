"""How topics are named: MirrorMaker 2's two replication policies, and the names of our own topics.

Exactly as `org.apache.kafka.connect.mirror.{Default,Identity}ReplicationPolicy` of Kafka 4.3 name them; the names
of ours are chosen so that MM2 3.x and 4.x take them for internal topics of its own and leave them alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

HEARTBEATS: Final = "heartbeats"
DEFAULT_SEPARATOR: Final = "."

STATE_TOPIC: Final = "mm2-twinlog-state.internal"
PROBE_TOPIC: Final = "mm2-twinlog-probe.internal"


def offset_map_topic(source_alias: str) -> str:
    """The topic on the target that holds the offset maps of everything copied from this source."""
    return f"mm2-twinlog-offset-map.{source_alias}.internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationPolicy(ABC):
    """Names remote topics, and reads names back."""

    separator: str = DEFAULT_SEPARATOR
    internal_separator: str = DEFAULT_SEPARATOR
    """What stands in the names of internal topics (KIP-949)."""

    @abstractmethod
    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """The name on the target of a topic of that source."""

    @abstractmethod
    def topic_source(self, topic: str) -> str | None:
        """The alias that a topic came from; None for a topic that was made here."""

    @abstractmethod
    def upstream_topic(self, topic: str) -> str | None:
        """The topic's name at its source; None where there is no source."""

    def original_topic(self, topic: str) -> str:
        """The name at the first cluster of a chain."""
        upstream = self.upstream_topic(topic)
        while upstream is not None and upstream != topic:
            topic, upstream = upstream, self.upstream_topic(upstream)
        return topic

    def offset_syncs_topic(self, alias: str) -> str:
        return f"mm2-offset-syncs{self.internal_separator}{alias}{self.internal_separator}internal"

    def checkpoints_topic(self, alias: str) -> str:
        return f"{alias}{self.internal_separator}checkpoints{self.internal_separator}internal"

    def heartbeats_topic(self) -> str:
        return HEARTBEATS

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.original_topic(topic) == HEARTBEATS

    def is_checkpoints_topic(self, topic: str) -> bool:
        separator = self.internal_separator
        return topic.endswith(f"{separator}checkpoints{separator}internal")

    def is_mm2_internal_topic(self, topic: str) -> bool:
        own = topic.startswith("mm2") and topic.endswith(f"{self.internal_separator}internal")
        return own or self.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        """Never mirrored (KIP-1074): MM2's own and ours, Kafka's (`__`), and hidden ones (`.`)."""
        hidden = topic.startswith(("__", "."))
        ours = topic.startswith("mm2-twinlog") and topic.endswith(".internal")
        return hidden or ours or self.is_mm2_internal_topic(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultReplicationPolicy(ReplicationPolicy):
    """`source.topic`: the source's alias in front of the name."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        alias, found, _ = topic.partition(self.separator)
        return alias if found else None

    def upstream_topic(self, topic: str) -> str | None:
        _, found, name = topic.partition(self.separator)
        return name if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Names stay as they are; only heartbeats are prefixed, or they could not be told apart."""

    source_alias: str | None = None

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        if topic.endswith(HEARTBEATS):
            return DefaultReplicationPolicy.format_remote_topic(self, source_alias, topic)
        return topic

    def topic_source(self, topic: str) -> str | None:
        if topic.endswith(HEARTBEATS):
            return DefaultReplicationPolicy.topic_source(self, topic)
        return self.source_alias

    def upstream_topic(self, topic: str) -> str | None:
        if topic.endswith(HEARTBEATS):
            return DefaultReplicationPolicy.upstream_topic(self, topic)
        return topic
