"""The flows that lead to one cluster, according to the names of its heartbeats topics and the
records in these topics.

A topic `B.A.heartbeats` on C was mirrored A->B and B->C. A record in this topic was written to A's
topic `heartbeats` by a flow with target A, and names that flow and the time. MirrorMaker 2 also
runs flows that only emit heartbeats, to show that the cluster they would read from is alive. Such a
flow has records in heartbeats topics, but no topic name shows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import read_to_end, readable_ends
from twinlog.errors import CorruptData, Unauthorized
from twinlog.mirror.names.naming import DefaultReplicationPolicy
from twinlog.model import Flow, TopicPartition
from twinlog.wire.mm2_records import Heartbeat

# The chain of clusters in a topic's name: `c.b.a.heartbeats` came from a, over b and c.

UNREACHABLE: Final = -1


def chain(policy: DefaultReplicationPolicy, topic: str) -> Iterator[str]:
    """Yield the clusters in a topic's name, from the nearest to the farthest, each once.

    Under the identity policy the chain would never end, so it ends before the first cluster that
    repeats.
    """
    seen: set[str] = set()
    upstream: str | None = topic
    while upstream is not None:
        source = policy.topic_source(upstream)
        if source is None or source in seen:
            return
        seen.add(source)
        yield source
        upstream = policy.upstream_topic(upstream)


def fewest_hops(policy: DefaultReplicationPolicy, topics: Iterable[str], alias: str) -> int:
    """Return the lowest number of flows over which one of these topics came from cluster `alias`,
    or UNREACHABLE if none came from there.
    """
    ways = ([*chain(policy, topic)] for topic in topics)
    return min((way.index(alias) + 1 for way in ways if alias in way), default=UNREACHABLE)


NEWEST_RECORDS: Final = 20_000
"""Maximum number of records to read per partition. With one heartbeat per second and flow, these
are the heartbeats of a few flows in some hours.
"""


class KnownFlow(Struct, frozen=True, kw_only=True):
    """A flow that heartbeats records or names of heartbeats topics show."""

    flow: str
    source: str
    target: str
    hops: int | None
    """Number of flows from its source to the queried cluster, or None if no path is known."""
    copies: bool
    """True if the flow mirrored a heartbeats topic. False if only heartbeats that the flow itself
    has emitted are known.
    """
    last_heartbeat_ms: int | None = None
    """Time of the flow's newest heartbeat in ms since 1970, or None if none is among the records
    that were read.
    """


class KnownCluster(Struct, frozen=True, kw_only=True):
    """An upstream cluster, and the shortest path from there to the queried cluster."""

    alias: str
    hops: int
    way: tuple[str, ...]
    """Aliases of the clusters on the path, including both ends."""


class Topology(Struct, frozen=True, kw_only=True):
    """The flows and clusters that the heartbeats topics of one cluster show."""

    cluster: str
    clusters: tuple[KnownCluster, ...]
    """The known clusters, the nearest first."""
    flows: tuple[KnownFlow, ...]
    unread: tuple[str, ...]
    """Heartbeats topics that the user is not permitted to read. Only their names are used."""


def read_topology(client: ClusterClient, policy: DefaultReplicationPolicy, alias: str) -> Topology:
    """Read the heartbeats topics of the cluster with this alias, and return what they show. Raises
    ClusterError.
    """
    metadata = client.metadata().topics
    topics = sorted(name for name in metadata if policy.is_heartbeats_topic(name))
    beats: dict[Flow, int] = {}
    unread: list[str] = []
    for topic in topics:
        try:
            for beat in _beats(client, metadata[topic].tps):
                flow = Flow(beat.source_alias, beat.target_alias)
                beats[flow] = max(beat.timestamp_ms, beats.get(flow, 0))
        except Unauthorized:
            unread.append(topic)
    return topology(policy, alias, topics, beats, unread)


def _beats(client: ClusterClient, tps: Iterable[TopicPartition]) -> Iterator[Heartbeat]:
    for tp, end in readable_ends(client, tps).items():
        first = max(0, end - NEWEST_RECORDS)
        for record in read_to_end(client, tp.topic, tp.partition, first, end=end):
            try:
                yield Heartbeat.decode(record.key, record.value)
            except CorruptData:
                continue  # the record is not a heartbeat


def topology(
    policy: DefaultReplicationPolicy,
    alias: str,
    topics: Iterable[str],
    beats: Mapping[Flow, int],
    unread: Iterable[str] = (),
) -> Topology:
    """Return the topology. `topics`: names of heartbeats topics. `beats`: time of the newest
    heartbeat by flow. `unread`: topics that cannot be read.
    """
    copying: set[Flow] = set()
    for topic in topics:
        target = alias
        for source in chain(policy, topic):
            copying.add(Flow(source, target))
            target = source
    ways = _shortest_paths(alias, copying)
    flows = [
        KnownFlow(
            flow=str(flow),
            source=flow.source,
            target=flow.target,
            # a flow that only emits heartbeats mirrors nothing, so its source has no path here
            hops=len(ways[flow.target]) if flow in copying and flow.target in ways else None,
            copies=flow in copying,
            last_heartbeat_ms=beats.get(flow),
        )
        for flow in {*copying, *beats}
    ]
    clusters = [
        KnownCluster(alias=source, hops=len(way) - 1, way=way)
        for source, way in ways.items()
        if source != alias
    ]
    return Topology(
        cluster=alias,
        clusters=tuple(sorted(clusters, key=lambda cluster: (cluster.hops, cluster.alias))),
        flows=tuple(
            sorted(
                flows, key=lambda flow: (not flow.copies, flow.hops or -1, flow.source, flow.target)
            )
        ),
        unread=tuple(unread),
    )


def _shortest_paths(alias: str, flows: Iterable[Flow]) -> dict[str, tuple[str, ...]]:
    """Return the shortest path to `alias` from each cluster that has one."""
    ways: dict[str, tuple[str, ...]] = {alias: (alias,)}
    waiting = deque([alias])
    sorted_flows = sorted(flows)
    while waiting:
        cluster = waiting.popleft()
        for flow in sorted_flows:
            if flow.target == cluster and flow.source not in ways:
                ways[flow.source] = (flow.source, *ways[cluster])
                waiting.append(flow.source)
    return ways
