"""Client quotas of a cluster (KIP-546, brokers since 2.6).

Twinlog reads all quotas for reports (`doctor`, `diff`). It sets only the default producer quota of
users, to throttle producers while the recovery point is too old (`twinlog.rpo.enforce`).
`net.read_size` explains how brokers enforce quotas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from twinlog.cluster.client import ClusterClient

Entity = tuple[tuple[str, str | None], ...]
"""The users or clients of a quota: pairs of type and name like `("client-id", "shop")`, sorted by
type. With None as name, the pair matches each user or client without a quota of its own.
"""

DEFAULT_USER: Final[Entity] = (("user", None),)
"""The entity of all users without a quota of their own."""
EXACT: Final = 0
DEFAULT: Final = 1
CLIENT_ID: Final = "client-id"
PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
REQUESTS: Final = "request_percentage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    entity: Entity
    key: str
    """`producer_byte_rate` or `consumer_byte_rate` (bytes per second and broker), or
    `request_percentage` (percent of a thread).
    """
    value: float

    @property
    def whose(self) -> str:
        """The entity as text like `client-id shop, user (default)`."""
        return ", ".join(f"{kind} {name or '(default)'}" for kind, name in self.entity)

    def may_apply_to(self, client_id: str) -> bool:
        """Return True if the quota might apply to this client ID. Quotas of any user count, because
        only the brokers know the name of the client's user.
        """
        return all(kind != CLIENT_ID or name in (client_id, None) for kind, name in self.entity)


def client_quotas(client: ClusterClient, entity: Entity = ()) -> list[Quota]:
    """Return all quotas, or only the quotas of `entity`, sorted by entity and key.

    Raises Unauthorized without DESCRIBE_CONFIGS on the cluster, and Unsupported before Kafka 2.6.
    """
    component = DescribeClientQuotasRequest.ComponentData
    request = DescribeClientQuotasRequest(
        components=[
            component(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
            for kind, name in entity
        ],
        strict=bool(entity),
    )

    def ask() -> list[Quota]:
        answer = client.attempt(None, request)
        client.check(answer, "reading quotas", acl="DESCRIBE_CONFIGS on the cluster")
        quotas = [
            Quota(
                entity=tuple(
                    sorted(
                        ((str(part.entity_type), part.entity_name) for part in entry.entity),
                        key=lambda pair: pair[0],
                    )
                ),
                key=str(value.key),
                value=float(value.value),
            )
            for entry in answer.entries or ()
            for value in entry.values
        ]
        return sorted(quotas, key=lambda quota: (quota.whose, quota.key))

    return client.retrying(ask)


def set_quotas(client: ClusterClient, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Set the quotas of one entity, by key. A value of None removes the quota. Idempotent.

    Raises Unauthorized without ALTER_CONFIGS on the cluster.
    """
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[
                    entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                ops=[
                    entry.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in values.items()
                ],
            )
        ],
        validate_only=False,
    )

    def ask() -> None:
        for entry in client.attempt(None, request).entries:
            client.check(entry, "setting quotas", acl="ALTER_CONFIGS on the cluster")

    client.retrying(ask)


def producer_quota(client: ClusterClient) -> float | None:
    """Return DEFAULT_USER's producer quota in bytes per second and broker, or None if not set."""
    quotas = client_quotas(client, DEFAULT_USER)
    return next((quota.value for quota in quotas if quota.key == PRODUCER), None)


def set_producer_quota(client: ClusterClient, rate: float | None) -> None:
    """Set the producer quota of DEFAULT_USER, or remove it (None)."""
    set_quotas(client, DEFAULT_USER, {PRODUCER: rate})
