"""Checks the permissions of Twinlog's user on topics, as far as brokers report them (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, Operation
from twinlog.errors import Unauthorized
from twinlog.quantities import first_few, plural


def denied_error(alias: str, right: str, topic: str) -> Unauthorized:
    """Return the error for a missing permission."""
    return Unauthorized(
        f"cluster {alias}: Twinlog's user may not {right} topic {topic}: "
        f"grant {right} on topic {topic}",
        code="TOPIC_UNAUTHORIZED",
    )


def visible_topics(
    lane: ClusterClient, usual: ClusterClient, metadata: ClusterMetadata, topics: Iterable[str]
) -> ClusterMetadata:
    """Return the metadata of these topics as the lanes' user sees them."""
    if lane is usual:
        return metadata
    names = sorted(topics)
    return lane.metadata(names) if names else metadata


def is_permitted(metadata: ClusterMetadata, topic: str, right: Operation) -> bool:
    """Return False if the topic is missing or hidden, or if brokers deny the right. Older brokers
    report no rights, so the result is True.
    """
    described = metadata.topics.get(topic)
    if described is None or described.error:
        return False
    return described.operations is None or right in described.operations


def hidden_configs(
    metadata: ClusterMetadata, alias: str, topics: Iterable[str], so: str
) -> list[str]:
    """Return one note on all topics whose configs this user is not permitted to read, or an empty
    list if there are none. The note begins with `so`, the consequence.
    """
    unseen = [
        name for name in topics if not is_permitted(metadata, name, Operation.DESCRIBE_CONFIGS)
    ]
    if not unseen:
        return []
    return [
        f"{so} for {plural(len(unseen), 'topic')} of {alias} ({first_few(unseen)}): grant "
        f"DESCRIBE_CONFIGS on topic {unseen[0]}"
    ]
