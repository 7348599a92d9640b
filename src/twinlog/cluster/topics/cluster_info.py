"""A cluster as a whole: its ID, its live brokers, and the user's permissions on it."""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.admin import DescribeClusterRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import Broker, Operation, operations


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """A cluster, and the operations that Twinlog's user may perform on it."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    operations: frozenset[Operation] | None
    """The permitted operations, or None if the brokers do not report them."""


def describe_cluster(client: ClusterClient) -> ClusterInfo:
    """Return the cluster's ID, live brokers and permissions (KIP-700, brokers since 2.8)."""

    def ask() -> ClusterInfo:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = client.attempt(None, request, maximum=1)
        client.check(answer, "describing the cluster")
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
