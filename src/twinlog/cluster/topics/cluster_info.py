"""A cluster as a whole: its ID, its brokers, and the permissions of Twinlog's user on it."""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.admin import DescribeClusterRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import Broker, Operation, operations
from twinlog.wire.error_codes import error_for


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """A cluster, and the operations that Twinlog's user may perform on it as a whole."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    operations: frozenset[Operation] | None
    """None if the brokers do not report it."""


def describe_cluster(client: ClusterClient) -> ClusterInfo:
    """Return ID, live brokers and permissions (KIP-700, brokers since 2.8)."""

    def ask() -> ClusterInfo:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = client.attempt(None, request, maximum=1)
        if answer.error_code:
            raise error_for(
                answer.error_code,
                cluster=client.alias,
                doing="describing the cluster",
                detail=answer.error_message,
            )
        brokers = sorted(answer.brokers, key=lambda broker: int(broker.broker_id))
        return ClusterInfo(
            cluster_id=str(answer.cluster_id),
            brokers=tuple(
                Broker(node=int(b.broker_id), host=str(b.host), port=int(b.port), rack=b.rack)
                for b in brokers
            ),
            operations=operations(answer.authorized_operations),
        )

    return client.retrying(ask)
