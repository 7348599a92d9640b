"""What our user may do with topics, as far as the brokers tell (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, Operation
from twinlog.errors import Unauthorized
from twinlog.quantities import first_few, plural


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


def unseen_configs(
    metadata: ClusterMetadata, alias: str, topics: Iterable[str], so: str
) -> list[str]:
    """A note on topics whose configs may not be read, or none."""
    unseen = [name for name in topics if not may(metadata, name, Operation.DESCRIBE_CONFIGS)]
    if not unseen:
        return []
    return [
        f"{so} for {plural(len(unseen), 'topic')} of {alias} ({first_few(unseen)}): grant "
        f"DESCRIBE_CONFIGS on topic {unseen[0]}"
    ]
