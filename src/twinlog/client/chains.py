"""The chain of clusters that a topic's name tells of: `c.b.a.heartbeats` came from a by b and c."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from twinlog.mirror.names.naming import ReplicationPolicy

UNREACHABLE: Final = -1


def chain(policy: ReplicationPolicy, topic: str) -> Iterator[str]:
    """Aliases from the nearest cluster to the farthest, each once.

    Under the identity policy names never end: a cluster that comes again is the end.
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


def hops(policy: ReplicationPolicy, topic: str, alias: str) -> int:
    """How many flows brought the topic from that cluster; UNREACHABLE where none did."""
    for count, source in enumerate(chain(policy, topic), start=1):
        if source == alias:
            return count
    return UNREACHABLE


def fewest_hops(policy: ReplicationPolicy, topics: Iterable[str], alias: str) -> int:
    """The shortest way by which any of the topics came."""
    counts = (hops(policy, topic, alias) for topic in topics)
    return min((count for count in counts if count != UNREACHABLE), default=UNREACHABLE)
