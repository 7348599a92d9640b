"""How topics are named on the target, and what a topic's name says about where it came from.

MirrorMaker 2's replication policies, exactly: the same remote topics, the same internal ones.
Twinlog's own topics are MM2-internal by name, so that MirrorMaker 2 leaves them alone too.

A name is all the evidence there is: under the default policy a plain topic `foo.bar` looks like
topic `bar` of a cluster `foo`, and under the identity policy nothing can be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from twinlog.config.values.renames import NO_RENAMES, Renames
from twinlog.model import Flow

HEARTBEATS_TOPIC: Final = "heartbeats"

_OWN_PREFIX = "mm2-twinlog-"
_OWN_SUFFIX = ".internal"

STATE_TOPIC: Final = f"{_OWN_PREFIX}state{_OWN_SUFFIX}"
STATUS_TOPIC: Final = f"{_OWN_PREFIX}status{_OWN_SUFFIX}"
PROBE_TOPIC: Final = f"{_OWN_PREFIX}probe{_OWN_SUFFIX}"


def map_topic_of(flow: Flow) -> str:
    """Return the name of the flow's offset map topic, which is on the flow's target.

    It contains the source's name in the configuration file. Remote topics and checkpoints contain
    `source.cluster.alias`, which may differ: so this function takes a flow, not a string.
    """
    return f"{_OWN_PREFIX}offset-map.{flow.source}{_OWN_SUFFIX}"


def quarantine_topic(flow: Flow) -> str:
    """Return the name of the topic for the flow's skipped records, which is on its target."""
    return f"{_OWN_PREFIX}quarantine.{flow.source}{_OWN_SUFFIX}"


def is_own_topic(topic: str) -> bool:
    """Whether Twinlog itself made a topic."""
    return topic.startswith(_OWN_PREFIX) and topic.endswith(_OWN_SUFFIX)


class ReplicationPolicy(Protocol):
    """Names of remote and internal topics.

    Only `format_remote_topic` goes by `twinlog.rename`. The way back is not in a name: under
    `(.*)-v[12]:$1` it could be one of many. Who asks for the source's name of a remote topic asks
    what was copied (`control.cutover.upstreams`, `survey.exact_map`).
    """

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """The name on the target of a source's topic."""

    def topic_source(self, topic: str) -> str | None:
        """The alias of the cluster a topic was mirrored from; None when its name has none."""

    def upstream_topic(self, topic: str) -> str | None:
        """The name that a remote topic has on its source; None when it is not remote."""

    def original_topic(self, topic: str) -> str:
        """The name on the cluster where the records were first written."""

    def is_internal_topic(self, topic: str) -> bool:
        """Whether a topic is never mirrored."""

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Whether a topic is, or was mirrored from, a heartbeats topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultReplicationPolicy:
    """The remote topic is the source's alias, a separator and the topic."""

    separator: str = "."
    internal_separator: str = "."
    """What MM2's own topics are written with: the separator, or a dot (KIP-949)."""
    renames: Renames = NO_RENAMES
    """Of one flow, from its source to its target."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{self.renamed(topic)}"

    def renamed(self, topic: str) -> str:
        """A source topic's name before the alias is put in front. Heartbeats keep theirs: by it
        everybody finds them.
        """
        if not self.renames or self.is_heartbeats_topic(topic):
            return topic
        return self.renames.name(topic)

    def topic_source(self, topic: str) -> str | None:
        source, _, rest = topic.partition(self.separator)
        # Java's split drops empty parts at the end: `a.` and `a..` are no remote topics, `.a` is
        # one
        return source if rest.replace(self.separator, "") else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
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
        return self.original_topic(topic) == HEARTBEATS_TOPIC

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(self._checkpoints_suffix)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        by_name = topic.startswith("mm2") and topic.endswith(self._internal_suffix)
        return by_name or self.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        return self.is_mm2_internal_topic(topic) or topic.startswith(("__", "."))

    @property
    def _internal_suffix(self) -> str:
        return f"{self.internal_separator}internal"

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self.internal_separator}checkpoints{self._internal_suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """The remote topic has the source's name; only heartbeats are named by the default policy."""

    source_alias: str | None
    """What every topic is said to come from: names do not tell. None where nobody said it."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        if _is_heartbeats(topic):
            return DefaultReplicationPolicy.format_remote_topic(self, source_alias, topic)
        return self.renamed(topic)

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
