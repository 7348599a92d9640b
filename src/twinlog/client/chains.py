"""The chain of clusters in a topic's name: `c.b.a.heartbeats` came from a, over b and c."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from twinlog.mirror.names.naming import ReplicationPolicy

UNREACHABLE: Final = -1


def chain(policy: ReplicationPolicy, topic: str) -> Iterator[str]:
    """Yield aliases from the nearest cluster to the farthest, each once.

    Under the identity policy the chain never ends, so it stops at the first repeated cluster.
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
    """Return the number of flows that the topic passed from a cluster, or UNREACHABLE."""
    for count, source in enumerate(chain(policy, topic), start=1):
        if source == alias:
            return count
    return UNREACHABLE


def fewest_hops(policy: ReplicationPolicy, topics: Iterable[str], alias: str) -> int:
    """Return the smallest number of hops of any of the topics."""
    counts = (hops(policy, topic, alias) for topic in topics)
    return min((count for count in counts if count != UNREACHABLE), default=UNREACHABLE)
