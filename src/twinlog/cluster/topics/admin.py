"""The administrative side of one cluster: every call that a control loop makes, under one name.

Functions take a ClusterClient. Those that ask about many topics or partitions answer each by
itself, with a value or an error; only a cluster that cannot be reached at all is raised.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka.protocol.admin import DescribeClusterRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    EpochEnd,
    OffsetResult,
    leader_epoch_ends,
    list_offsets,
    log_ends,
)
from twinlog.cluster.logs.producers import (
    ProducerIdentity,
    ProducerState,
    describe_producers,
    init_producer_id,
)
from twinlog.cluster.net.metadata import Broker, Operation, operations
from twinlog.cluster.topics.acls import create_topic_acls, delete_topic_acls, topic_acls
from twinlog.cluster.topics.alter_configs import ConfigChange, alter_topic_configs
from twinlog.cluster.topics.configs import (
    describe_broker_configs,
    describe_topic_configs,
)
from twinlog.cluster.topics.topic_admin import (
    DEFAULT,
    TopicCreation,
    create_partitions,
    create_topic,
    delete_topic,
    validate_topic,
    wait_for_topic,
)
from twinlog.wire.error_codes import error_for

__all__ = [
    "DEFAULT",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "ClusterInfo",
    "ConfigChange",
    "EpochEnd",
    "OffsetResult",
    "ProducerIdentity",
    "ProducerState",
    "TopicCreation",
    "alter_topic_configs",
    "create_partitions",
    "create_topic",
    "create_topic_acls",
    "delete_topic",
    "delete_topic_acls",
    "describe_broker_configs",
    "describe_cluster",
    "describe_producers",
    "describe_topic_configs",
    "init_producer_id",
    "leader_epoch_ends",
    "list_offsets",
    "log_ends",
    "topic_acls",
    "validate_topic",
    "wait_for_topic",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """A cluster and what our user may do to it as a whole."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    operations: frozenset[Operation] | None
    """None where the brokers do not say."""


def describe_cluster(client: ClusterClient) -> ClusterInfo:
    """Id, live brokers and our rights (KIP-700, brokers since 2.8)."""

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
