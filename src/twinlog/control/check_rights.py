"""What our user may do with topics, as far as the brokers tell (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.metadata import ClusterMetadata, Operation
from twinlog.errors import Unauthorized


def denied(alias: str, right: str, topic: str) -> Unauthorized:
    """The error for a right that is missing."""
    return Unauthorized(
        f"cluster {alias}: our user may not {right} topic {topic}: grant {right} on topic {topic}",
        code="TOPIC_UNAUTHORIZED",
    )


def seen_by(
    lane: ClusterClient, usual: ClusterClient, known: ClusterMetadata, topics: Iterable[str]
) -> ClusterMetadata:
    """The topics as the lanes' user sees them."""
    if lane is usual:
        return known
    names = sorted(topics)
    return lane.metadata(names) if names else known


def may(metadata: ClusterMetadata, topic: str, right: Operation) -> bool:
    """False only where the brokers say that it is denied; old ones do not say."""
    found = metadata.topics.get(topic)
    if found is None or found.error:
        return False
    return found.operations is None or right in found.operations
