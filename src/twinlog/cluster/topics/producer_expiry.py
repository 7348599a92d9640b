"""How long a cluster's brokers remember a producer ID after its last record, and the maximum
duration of transactions.
"""

from __future__ import annotations

from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.configs import describe_broker_configs

EXPIRY_CONFIG: Final = "producer.id.expiration.ms"
OLD_EXPIRY_CONFIG: Final = "transactional.id.expiration.ms"
"""Used before Kafka 3.4."""
TRANSACTION_CONFIG: Final = "transaction.max.timeout.ms"


def producer_expiry(client: ClusterClient) -> int | None:
    """Return the smallest value of all brokers, in ms, or None if none reports it.

    It may be changed while brokers run. Raises Unauthorized if Twinlog's user may not read their
    configs.
    """
    values = []
    for configs in describe_broker_configs(client, [EXPIRY_CONFIG, OLD_EXPIRY_CONFIG]).values():
        entry = configs.get(EXPIRY_CONFIG) or configs.get(OLD_EXPIRY_CONFIG)
        if entry is not None and entry.value:
            values.append(int(entry.value))
    return min(values) if values else None


def longest_transaction(client: ClusterClient) -> int | None:
    """Return the greatest transaction timeout that any broker allows, in ms, or None if none
    reports it.

    Raises Unauthorized if Twinlog's user may not read their configs.
    """
    found = describe_broker_configs(client, [TRANSACTION_CONFIG]).values()
    values = [
        configs[TRANSACTION_CONFIG].value for configs in found if TRANSACTION_CONFIG in configs
    ]
    return max((int(value) for value in values if value), default=None)
