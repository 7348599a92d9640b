"""Two limits of a cluster's brokers: how long they remember a producer ID after its last record,
and how long a transaction may take.

A copy is exactly once only while the target remembers its producer ID, so old records need care
(`lane.late_requests`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.configs import describe_broker_configs

EXPIRY_CONFIG: Final = "producer.id.expiration.ms"
OLD_EXPIRY_CONFIG: Final = "transactional.id.expiration.ms"
"""The config with this meaning before Kafka 3.4."""
TRANSACTION_CONFIG: Final = "transaction.max.timeout.ms"


def producer_expiry(client: ClusterClient) -> int | None:
    """Return the shortest expiry of any broker in ms, or None if no broker reports it.

    It can be changed while brokers run. Raises Unauthorized without DESCRIBE_CONFIGS on the
    cluster.
    """
    return min(_values(client, EXPIRY_CONFIG, OLD_EXPIRY_CONFIG), default=None)


def longest_transaction(client: ClusterClient) -> int | None:
    """Return the longest transaction timeout that any broker allows in ms, or None if no broker
    reports it. Raises Unauthorized without DESCRIBE_CONFIGS on the cluster.
    """
    return max(_values(client, TRANSACTION_CONFIG), default=None)


def _values(client: ClusterClient, *names: str) -> Iterator[int]:
    """Yield a value per broker: that of the first of these configs that the broker knows."""
    for configs in describe_broker_configs(client, names).values():
        entry = next((configs[name] for name in names if name in configs), None)
        if entry is not None and entry.value:
            yield int(entry.value)
