"""`MirrorClient`: information about the mirrors of one cluster, from the topics that mirrors write
there.

The methods and results are those of Java's class `MirrorClient`, for mirrors of Twinlog and of
MirrorMaker 2. One thing differs: after the timeout, Java's class returns the offsets that it has
read so far. This class raises an error, because incomplete offsets of a group look complete.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Self, overload

from twinlog.client.topology import chain, fewest_hops
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings, parse_bootstrap
from twinlog.cluster.security.security_keys import load_security
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.config.flow.policies import policy_config
from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS, Role, is_connection_key
from twinlog.config.values.origin import ClientProperties, Setting, Settings
from twinlog.errors import ClusterError, ConfigError, Fate
from twinlog.mirror.map.translation import Translation
from twinlog.mirror.names.filters import policy_from
from twinlog.mirror.names.naming import DefaultReplicationPolicy
from twinlog.model import Flow, TopicPartition, is_own_group
from twinlog.survey.cluster_state import find_upstream
from twinlog.survey.exact_map import ExactMap
from twinlog.wire.mm2_records import Checkpoint
from twinlog.wire.records import Record

CHECKPOINTS_PARTITION: Final = 0
DEFAULT_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """The offset at which a group of another cluster resumes in one partition of this cluster."""

    offset: int
    upstream_offset: int
    """The group's committed offset on the other cluster."""
    metadata: str = ""


GroupOffsets = dict[TopicPartition, GroupOffset]


class MirrorClient:
    """A client of one cluster, not thread-safe. Use it with `with MirrorClient({...}) as client`.

    `config` has the keys of Java's clients: `bootstrap.servers`, `security.protocol`, `ssl.*`,
    `sasl.*` (also with the prefixes `admin.` and `consumer.`), and `replication.policy.class`,
    `replication.policy.separator`, `replication.policy.internal.topic.separator.enabled`. Raises
    ConfigError for an invalid value. The cluster is first queried when a method is called. Every
    method raises ClusterError if the cluster does not respond or denies the request.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        settings = Settings(
            {key: Setting(key=key, value=value, file=_WHERE) for key, value in config.items()}
        )
        source = settings.get(_SOURCE_ALIAS)
        alias = None if source is None else source.value
        self._policy = policy_from(policy_config(settings), alias)
        admin, consumer = (_cluster(settings, role) for role in (Role.ADMIN, Role.CONSUMER))
        self._admin, self._consumer = ClusterClient(admin), ClusterClient(consumer)
        self._maps: dict[str, tuple[ExactMap, str]] = {}

    @property
    def replication_policy(self) -> DefaultReplicationPolicy:
        """Return the policy that names remote topics."""
        return self._policy

    def replication_hops(self, upstream_alias: str) -> int:
        """Return the least number of flows from a cluster to this one, or -1 if there is no path.

        With flows A->B and B->C, the result for A on C is 2.
        """
        return fewest_hops(self._policy, self.heartbeat_topics(), upstream_alias)

    def heartbeat_topics(self) -> set[str]:
        """Return the names of this cluster's heartbeats topic and of the heartbeats topics that
        were mirrored here.
        """
        return {topic for topic in self._topics() if self._policy.is_heartbeats_topic(topic)}

    def checkpoint_topics(self) -> set[str]:
        """Return the names of the checkpoints topics, one for each cluster from which topics are
        mirrored here.
        """
        return {topic for topic in self._topics() if self._policy.is_checkpoints_topic(topic)}

    def upstream_clusters(self) -> set[str]:
        """Return the aliases of all clusters whose heartbeats arrive here, over any path."""
        return {alias for topic in self.heartbeat_topics() for alias in chain(self._policy, topic)}

    def remote_topics(self, source_alias: str | None = None) -> set[str]:
        """Return the topics that were mirrored here from `source_alias`, or from any cluster,
        according to their names.

        Under the identity policy, these are all topics that are not internal.
        """
        return {
            topic
            for topic in self._topics()
            if not self._policy.is_internal_topic(topic)
            and (source := self._policy.topic_source(topic)) is not None
            and source_alias in (None, source)
        }

    @overload
    def remote_consumer_offsets(
        self, group: str, remote_alias: str, *, timeout_s: float = ...
    ) -> GroupOffsets: ...

    @overload
    def remote_consumer_offsets(
        self, group: re.Pattern[str], remote_alias: str, *, timeout_s: float = ...
    ) -> dict[str, GroupOffsets]: ...

    def remote_consumer_offsets(
        self,
        group: str | re.Pattern[str],
        remote_alias: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> GroupOffsets | dict[str, GroupOffsets]:
        """Return the offsets at which a group of another cluster resumes here, from its newest
        checkpoints. The result is {} if there are no checkpoints.

        If `group` is a compiled pattern, return such offsets by group, for each group whose whole
        name matches. The checkpoints are read once for all groups.
        """
        if isinstance(group, re.Pattern):
            return self._checkpoints(remote_alias, group, timeout_s)
        checkpoints = self._checkpoints(remote_alias, re.compile(re.escape(group)), timeout_s)
        return checkpoints.get(group, {})

    def exact_consumer_offsets(
        self, group: str, remote_alias: str, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> GroupOffsets:
        """Return the same as `remote_consumer_offsets`, but with offsets translated by Twinlog's
        offset map, not those in the checkpoints.

        The results differ if MirrorMaker 2 wrote the checkpoint, because the offset in such a
        checkpoint is before the exact one by up to the group's lag. Partitions that Twinlog did not
        copy are left out.
        """
        with _within(self._consumer, timeout_s):
            exact, alias = self._exact_map(remote_alias)
            known = self.remote_consumer_offsets(group, alias, timeout_s=timeout_s)
            translations = exact.downstream(
                {tp: offset.upstream_offset for tp, offset in known.items()}
            )
        return {
            tp: replace(known[tp], offset=translation.offset)
            for tp, translation in translations.items()
        }

    def to_downstream(
        self, remote_alias: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Translation]:
        """Translate offsets of another cluster, however old, to offsets at which to resume here.

        `offsets` has partitions of the other cluster, and the result has partitions of this
        cluster. A translation has `is_exact=False` in two cases. If the offset was not copied yet,
        the result is the end of the copy. If MirrorMaker 2 copied the record, the result is
        somewhat before the exact offset. Partitions that Twinlog did not copy are left out.
        """
        exact, alias = self._exact_map(remote_alias)
        format_remote = self._policy.format_remote_topic
        plain = {tp.topic: format_remote(alias, tp.topic) for tp in offsets}
        names = exact.local_names(plain)  # with the flow's renames
        remote = {
            TopicPartition(names[tp.topic], tp.partition): offset
            for tp, offset in offsets.items()
            if tp.topic in names
        }
        return exact.downstream(remote)

    def to_upstream(
        self, remote_alias: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Translation]:
        """Translate offsets of this cluster to offsets at which to resume on another cluster.

        `offsets` has partitions of this cluster, and the result has partitions of the other
        cluster.
        """
        exact, _ = self._exact_map(remote_alias)
        translations = exact.upstream(offsets)
        names = exact.names_at_source({tp.topic for tp in translations})
        upstream = self._policy.upstream_topic
        return {
            TopicPartition(
                names.get(tp.topic) or upstream(tp.topic) or tp.topic, tp.partition
            ): translation
            for tp, translation in translations.items()
        }

    def _exact_map(self, remote_alias: str) -> tuple[ExactMap, str]:
        """Return (offset map, alias) of the flow from the cluster `remote_alias`. `alias`: the one
        that the names of remote topics contain.
        """
        known = self._maps.get(remote_alias)
        if known is not None:
            return known
        upstream = find_upstream(self._consumer, remote_alias)
        flow, alias = upstream or (Flow(remote_alias, self._consumer.alias), remote_alias)
        known = ExactMap(self._consumer, self._policy, flow), alias
        # an unknown flow is not stored, because it may be created later
        if upstream is not None:
            self._maps[remote_alias] = known
        return known

    def _topics(self) -> Iterator[str]:
        # like Java, without topics that are internal to the brokers
        topics = self._admin.metadata().topics.values()
        return (topic.name for topic in topics if not topic.is_internal)

    def _checkpoints(
        self, remote_alias: str, groups: re.Pattern[str], timeout_s: float
    ) -> dict[str, GroupOffsets]:
        topic = self._policy.checkpoints_topic(remote_alias)
        out: dict[str, GroupOffsets] = {}
        with _within(self._consumer, timeout_s):
            for checkpoint in Checkpoint.decode_all(self._read(topic, timeout_s)):
                # without Twinlog's own groups, whose offsets MirrorMaker 2 may have translated
                if groups.fullmatch(checkpoint.group) and not is_own_group(checkpoint.group):
                    out.setdefault(checkpoint.group, {})[checkpoint.topic_partition] = GroupOffset(
                        offset=checkpoint.downstream_offset,
                        upstream_offset=checkpoint.upstream_offset,
                        metadata=checkpoint.metadata,
                    )
        return out

    def _read(self, topic: str, timeout_s: float) -> Iterator[Record]:
        until = time.monotonic() + timeout_s
        for record in read_to_end(self._consumer, topic, CHECKPOINTS_PARTITION):
            if time.monotonic() > until:
                raise ClusterError(
                    f"topic {topic} was not read to its end within {timeout_s:g} s, only to offset "
                    f"{record.offset}: raise the timeout",
                    code="TIMED_OUT",
                    fate=Fate.RETRIABLE,
                )
            yield record

    def close(self) -> None:
        """Close all connections."""
        self._admin.close()
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _within(client: ClusterClient, timeout_s: float) -> Iterator[None]:
    """Let each call of the client time out after at most `timeout_s` within the block."""
    usual_s = client.api_timeout_s
    client.api_timeout_s = min(timeout_s, usual_s)
    try:
        yield
    finally:
        client.api_timeout_s = usual_s


# Java's MirrorClientConfig: one cluster's properties become a policy and client settings.
# Connection keys (`bootstrap.servers`, `security.protocol`, `ssl.*`, `sasl.*`) are read. The same
# keys with the prefix `admin.` or `consumer.` override them. Other keys are not read.

_WHERE: Final = "MirrorClient"
_SOURCE_ALIAS: Final = "source.cluster.alias"


def _cluster(settings: Settings, role: Role) -> ClusterSettings:
    own = settings.stripped(f"{role}.")
    client_settings = {
        name: setting for name, setting in {**settings, **own}.items() if is_connection_key(name)
    }
    if BOOTSTRAP_SERVERS not in client_settings:
        raise ConfigError(
            f"{_WHERE}: {BOOTSTRAP_SERVERS}: missing; add it, for example kafka1:9092"
        )
    client = ClientProperties(client_settings)
    return ClusterSettings(
        alias=_WHERE,
        bootstrap=parse_bootstrap(client[BOOTSTRAP_SERVERS]),
        security=load_security(client, where=_WHERE),
        client_id="twinlog-client",
    )


# Java's `RemoteClusterUtils`: functions that each use a temporary MirrorClient.


def replication_hops(config: Mapping[str, str], upstream_alias: str) -> int:
    """Return the result of `MirrorClient.replication_hops`."""
    with MirrorClient(config) as client:
        return client.replication_hops(upstream_alias)


def heartbeat_topics(config: Mapping[str, str]) -> set[str]:
    """Return the result of `MirrorClient.heartbeat_topics`."""
    with MirrorClient(config) as client:
        return client.heartbeat_topics()


def checkpoint_topics(config: Mapping[str, str]) -> set[str]:
    """Return the result of `MirrorClient.checkpoint_topics`."""
    with MirrorClient(config) as client:
        return client.checkpoint_topics()


def upstream_clusters(config: Mapping[str, str]) -> set[str]:
    """Return the result of `MirrorClient.upstream_clusters`."""
    with MirrorClient(config) as client:
        return client.upstream_clusters()


@overload
def translate_offsets(
    config: Mapping[str, str], remote_alias: str, group: str, *, timeout_s: float = ...
) -> GroupOffsets: ...


@overload
def translate_offsets(
    config: Mapping[str, str], remote_alias: str, group: re.Pattern[str], *, timeout_s: float = ...
) -> dict[str, GroupOffsets]: ...


def translate_offsets(
    config: Mapping[str, str],
    remote_alias: str,
    group: str | re.Pattern[str],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> GroupOffsets | dict[str, GroupOffsets]:
    """Return the result of `MirrorClient.remote_consumer_offsets`."""
    with MirrorClient(config) as client:
        return client.remote_consumer_offsets(group, remote_alias, timeout_s=timeout_s)
