"""Names of topics on the target, and the origin that a topic's name shows.

The names are exactly those of MirrorMaker 2's replication policies: the same remote topics, and the
same internal ones. Twinlog's own topics have names that MirrorMaker 2 considers as internal, so it
ignores these topics.

The policies know a topic's origin only from its name. So under the default policy, any topic
`foo.bar` looks like a copy of topic `bar` from a cluster `foo`. Under the identity policy, names
show no origin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.config.flow.transforms import OnError, TransformsConfig
from twinlog.config.values.renames import NO_RENAMES, Renames, is_topic_name, routed
from twinlog.model import Flow

HEARTBEATS_TOPIC: Final = "heartbeats"

_OWN_PREFIX = "mm2-twinlog-"
_OWN_SUFFIX = ".internal"

STATE_TOPIC: Final = f"{_OWN_PREFIX}state{_OWN_SUFFIX}"
STATUS_TOPIC: Final = f"{_OWN_PREFIX}status{_OWN_SUFFIX}"
PROBE_TOPIC: Final = f"{_OWN_PREFIX}probe{_OWN_SUFFIX}"


def map_topic_of(flow: Flow) -> str:
    """Return the name of the flow's offset map topic, which is on the flow's target.

    The name contains the source's name in the configuration file. That may differ from
    `source.cluster.alias`, which the names of remote topics and checkpoints contain.
    """
    return f"{_OWN_PREFIX}offset-map.{flow.source}{_OWN_SUFFIX}"


def quarantine_topic(flow: Flow) -> str:
    """Return the name of the topic for the flow's skipped records, which is on its target."""
    return f"{_OWN_PREFIX}quarantine.{flow.source}{_OWN_SUFFIX}"


def dead_letter_topic(flow: Flow, transforms: TransformsConfig) -> str:
    """Return the name of the flow's dead-letter topic, which is on its target, or an empty string
    if records on which a transform fails are not quarantined.
    """
    if not transforms.entries or transforms.on_error is not OnError.QUARANTINE:
        return ""
    return transforms.quarantine_topic or f"{_OWN_PREFIX}dead-letters.{flow.source}{_OWN_SUFFIX}"


def is_own_topic(topic: str) -> bool:
    """Return True if the name is that of one of Twinlog's own topics."""
    return topic.startswith(_OWN_PREFIX) and topic.endswith(_OWN_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultReplicationPolicy:
    """Names a remote topic by the source's alias, a separator and the source topic's name.

    Only `format_remote_topic` applies `twinlog.rename` and the routers. A renamed topic cannot be
    mapped back by its name: under `(.*)-v[12]:$1` it could have several origins. Instead, a remote
    topic's name on the source is found from what was copied (`control.cutover.copies`,
    `survey.exact_map`).
    """

    separator: str = "."
    internal_separator: str = "."
    """Separator in names of MirrorMaker 2's own topics: `separator`, or a dot (KIP-949)."""
    renames: Renames = NO_RENAMES
    """Renames of one flow, from its source to its target."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the name of a source topic on the target."""
        return self.routed(topic, f"{source_alias}{self.separator}{self.renamed(topic)}")

    def renamed(self, topic: str) -> str:
        """Return a source topic's name as changed by `twinlog.rename`, without the alias of the
        source.

        Heartbeats topics are not renamed, because all clients find them by their name.
        """
        if not self.renames or self.is_heartbeats_topic(topic):
            return topic
        return self.renames.name(topic)

    def routed(self, topic: str, remote: str) -> str:
        """Return the name `remote` of source topic `topic`, as changed by the routers of Kafka
        Connect.

        Heartbeats topics are not changed, nor are names in ACLs that are no topics, such as `*`.
        """
        if not self.renames.routers or self.is_heartbeats_topic(topic) or not is_topic_name(topic):
            return remote
        return routed(self.renames.routers, remote)

    def topic_source(self, topic: str) -> str | None:
        """Return the alias of the cluster from which a topic was mirrored, or None if its name
        contains none.
        """
        source, _, rest = topic.partition(self.separator)
        # Java's split drops empty parts at the end: `a.` and `a..` are not remote topics, but `.a`
        # is one
        return source if rest.replace(self.separator, "") else None

    def upstream_topic(self, topic: str) -> str | None:
        """Return a remote topic's name on its source, or None if the name shows no remote topic."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        """Return a topic's name on the cluster where its records were first written."""
        upstream = self.upstream_topic(topic)
        while upstream is not None and upstream != topic:
            topic, upstream = upstream, self.upstream_topic(upstream)
        return topic

    def offset_syncs_topic(self, alias: str) -> str:
        return f"mm2-offset-syncs{self.internal_separator}{alias}{self._internal_suffix}"

    def checkpoints_topic(self, alias: str) -> str:
        return f"{alias}{self._checkpoints_suffix}"

    def heartbeats_topic(self) -> str:
        return HEARTBEATS_TOPIC

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Return True if a topic is a heartbeats topic, or was mirrored from one."""
        return self.original_topic(topic) == HEARTBEATS_TOPIC

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(self._checkpoints_suffix)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        by_name = topic.startswith("mm2") and topic.endswith(self._internal_suffix)
        return by_name or self.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        """Return True if a topic is internal, so that it is never mirrored."""
        return self.is_mm2_internal_topic(topic) or topic.startswith(("__", "."))

    @property
    def _internal_suffix(self) -> str:
        return f"{self.internal_separator}internal"

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self.internal_separator}checkpoints{self._internal_suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Gives remote topics the names of their source topics. Heartbeats topics are named as by the
    default policy.
    """

    source_alias: str | None
    """Alias that is assumed as the origin of every topic, because names do not show the origin, or
    None if no alias is configured.
    """

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        if _is_heartbeats(topic):
            return DefaultReplicationPolicy.format_remote_topic(self, source_alias, topic)
        return self.routed(topic, self.renamed(topic))

    def topic_source(self, topic: str) -> str | None:
        if _is_heartbeats(topic):
            return DefaultReplicationPolicy.topic_source(self, topic)
        return self.source_alias

    def upstream_topic(self, topic: str) -> str | None:
        if _is_heartbeats(topic):
            return DefaultReplicationPolicy.upstream_topic(self, topic)
        return topic


def _is_heartbeats(topic: str) -> bool:
    return topic.endswith(HEARTBEATS_TOPIC)
