"""Client quotas of a cluster (KIP-546, brokers since 2.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from twinlog.cluster.client import ClusterClient
from twinlog.wire.error_codes import CLUSTER_AUTHORIZATION_FAILED, error_for

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs like `("client-id", "shop")`, sorted by type. A name of None is the
default.
"""

DEFAULT_USER: Final[Entity] = (("user", None),)
"""Every user without its own quota."""
EXACT: Final = 0
DEFAULT: Final = 1
CLIENT_ID: Final = "client-id"
PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
REQUESTS: Final = "request_percentage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One value of one entity."""

    entity: Entity
    key: str
    """`producer_byte_rate` and `consumer_byte_rate` in bytes per second per broker,
    `request_percentage` in percent of a thread.
    """
    value: float

    @property
    def whose(self) -> str:
        """Text like `client-id shop, user (default)`."""
        return ", ".join(f"{kind} {name or '(default)'}" for kind, name in self.entity)

    def may_bind(self, client_id: str) -> bool:
        """Return whether it may throttle this client. The client's user, as seen by brokers, is
        unknown.
        """
        return all(kind != CLIENT_ID or name in (client_id, None) for kind, name in self.entity)


def client_quotas(client: ClusterClient, entity: Entity = ()) -> list[Quota]:
    """Return all quotas, or those of one entity, sorted.

    Raises Unauthorized without DESCRIBE_CONFIGS on the cluster, and Unsupported for brokers that
    are too old.
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
        _check(client, answer, doing="reading quotas", right="DESCRIBE_CONFIGS")
        found = [
            Quota(
                entity=tuple(
                    sorted(
                        ((str(one.entity_type), one.entity_name) for one in entry.entity),
                        key=lambda pair: pair[0],
                    )
                ),
                key=str(value.key),
                value=float(value.value),
            )
            for entry in answer.entries or ()
            for value in entry.values
        ]
        return sorted(found, key=lambda one: (one.whose, one.key))

    return client.retrying(ask)


def set_quotas(client: ClusterClient, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Set values of one entity by key. None removes a value. Repeating it has no effect.

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
        for one in client.attempt(None, request).entries:
            _check(client, one, doing="setting quotas", right="ALTER_CONFIGS")

    client.retrying(ask)


def producer_quota(client: ClusterClient) -> float | None:
    """Return the quota of users without their own, in bytes per second per broker, or None."""
    found = client_quotas(client, DEFAULT_USER)
    return next((one.value for one in found if one.key == PRODUCER), None)


def set_producer_quota(client: ClusterClient, rate: float | None) -> None:
    """Set the quota of users without their own. None removes it."""
    set_quotas(client, DEFAULT_USER, {PRODUCER: rate})


def _check(client: ClusterClient, answer: Any, *, doing: str, right: str) -> None:
    if answer.error_code:
        is_denied = answer.error_code == CLUSTER_AUTHORIZATION_FAILED
        raise error_for(
            answer.error_code,
            cluster=client.alias,
            doing=doing,
            acl=f"{right} on the cluster",
            detail=None if is_denied else answer.error_message,
        )
