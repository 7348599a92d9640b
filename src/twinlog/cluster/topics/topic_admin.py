"""Creates, grows and deletes topics, and waits until they can be used.

Requests are sent to the controller, and are repeated if their outcome is unknown. So a topic that
already exists, or already has the requested number of partitions, is a success. `delete_topic` is
the exception: a missing topic is an error, because callers need to know whether they deleted it.

MirrorMaker 2's internal topics are created as MirrorMaker 2 does (`ensure_mm2_topic`): one
partition, compacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest

from twinlog.cluster.client import MISSING_GRACE_S, ClusterClient
from twinlog.cluster.logs.offsets import LATEST, list_offsets
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.cluster.net.protocol import Message
from twinlog.errors import ClusterError, Unauthorized, or_raise
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import (
    INVALID_REPLICATION_FACTOR,
    LEADER_NOT_AVAILABLE,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_for,
)

POLL_S: Final = 0.1

CONTROLLER_WAIT_MS: Final = 20_000
"""Time limit for the controller, below the request timeout, so that its response arrives."""

DEFAULT: Final = -1
"""The brokers' default number of partitions or replicas."""

WITH_DEFAULTS: Final = 4
"""The first version of CreateTopics that accepts DEFAULT (KIP-464, Kafka 2.4)."""

BY_NAME: Final = 5
"""Later versions of DeleteTopics also accept topic IDs."""

KEPT: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(100 << 20),  # Kafka's socket.request.max.bytes
    "message.timestamp.type": "CreateTime",
}
"""Configs of a topic that keeps every record of others, as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreation:
    """A topic that exists now. `is_new` is False if it existed before, with any settings."""

    is_new: bool
    partitions: int
    """Partition count of a new topic. -1 if it existed before, or if the broker does not report it
    (before 2.4, or without DESCRIBE_CONFIGS on the topic).
    """


def create_topic(
    client: ClusterClient,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str] | None = None,
    is_trial: bool = False,
) -> TopicCreation:
    """Create a topic. If it exists, `is_new` of the result is False. DEFAULT stands for the
    brokers' default number of partitions or replicas. `is_trial`: the cluster only checks this, and
    creates nothing.
    """
    config = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[config(name=key, value=value) for key, value in (configs or {}).items()],
    )
    return _create(
        client,
        CreateTopicsRequest(topics=[topic], timeout_ms=CONTROLLER_WAIT_MS, validate_only=is_trial),
    )


validate_topic: Final = partial(create_topic, is_trial=True)


def _create(client: ClusterClient, request: Message) -> TopicCreation:
    requested = request.topics[0]

    def check(answer: Message) -> None:
        created = answer.topics[0]
        if created.error_code in (0, TOPIC_ALREADY_EXISTS):
            return
        if created.error_code == INVALID_REPLICATION_FACTOR:
            raise _replication_error(client, requested)
        acl = f"CREATE on topic {requested.name} (or on the cluster)"
        client.check(created, f"creating topic {requested.name}", acl=acl)

    defaults = DEFAULT in {requested.num_partitions, requested.replication_factor}
    minimum = WITH_DEFAULTS if defaults else None
    created = client.to_controller(request, check, minimum=minimum).topics[0]
    is_new = created.error_code == 0
    partitions = (
        created.num_partitions if requested.num_partitions == DEFAULT else requested.num_partitions
    )
    return TopicCreation(
        is_new=is_new,
        partitions=int(partitions) if is_new and partitions is not None else -1,
    )


def _replication_error(client: ClusterClient, wanted: Message) -> ClusterError:
    live = len(client.metadata([]).brokers)
    return error_for(
        INVALID_REPLICATION_FACTOR,
        cluster=client.alias,
        doing=f"creating topic {wanted.name} with replication factor {wanted.replication_factor}",
        advice=f"live brokers: {live}; set replication.factor to at most {live}, or start more",
    )


def ensure_kept_topic(client: ClusterClient, name: str, *, replication_factor: int) -> None:
    """Create a topic of one partition for records that must not be lost, unless it exists."""
    if client.metadata([name]).topics[name].error == UNKNOWN_TOPIC_OR_PARTITION:
        create_topic(
            client, name, partitions=1, replication_factor=replication_factor, configs=KEPT
        )
    wait_for_topic(client, name)


def wait_for_topic(
    client: ClusterClient,
    name: str,
    *,
    partitions: int = 1,
    first: int = 0,
) -> TopicMetadata:
    """Return the topic's metadata, once it has that many partitions and the leaders of those from
    `first` on respond.

    Leaders of earlier partitions may be down, and are not waited for. It is not enough that
    metadata names a leader: until that broker itself knows, it rejects writes.
    """

    def attempt() -> TopicMetadata:
        topic = client.metadata([name], allow_missing=False).topics[name]
        if len(topic.partitions) < partitions or any(
            partition.leader < 0 for partition in topic.partitions if partition.number >= first
        ):
            raise error_for(
                LEADER_NOT_AVAILABLE, cluster=client.alias, doing=f"waiting for topic {name}"
            )
        return topic

    deadline = client.deadline()
    topic = client.retrying(attempt, timeout_s=deadline.left_s)
    new = [partition.number for partition in topic.partitions if partition.number >= first]
    tps = [TopicPartition(name, number) for number in new]
    for answer in list_offsets(client, tps, LATEST, timeout_s=deadline.left_s).values():
        or_raise(answer)
    return topic


def create_partitions(client: ClusterClient, name: str, total: int) -> None:
    """Grow a topic to `total` partitions. Has no effect if it already has that many."""
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=total, assignments=None)
    request = CreatePartitionsRequest(
        topics=[topic], timeout_ms=CONTROLLER_WAIT_MS, validate_only=False
    )

    def check(answer: Message) -> None:
        result = answer.results[0]
        if result.error_code and not _has_grown(client, name, total):
            doing = f"growing topic {name} to {total} partitions"
            client.check(result, doing, acl=f"ALTER on topic {name}")

    client.to_controller(request, check)


def _has_grown(client: ClusterClient, name: str, total: int) -> bool:
    """Return whether a topic has exactly this many partitions. A broker may show fewer for a
    moment, so it is queried repeatedly for MISSING_GRACE_S.
    """
    deadline = client.deadline(MISSING_GRACE_S)
    while True:
        topic = client.metadata([name]).topics.get(name)
        count = 0 if topic is None else len(topic.partitions)
        if count >= total or deadline.has_passed:
            return count == total
        client.patience.sleep(POLL_S)


def delete_topic(client: ClusterClient, name: str) -> None:
    """Delete a topic. Raises BrokerRefused with code TOPIC_MISSING if it does not exist."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=CONTROLLER_WAIT_MS)

    def check(answer: Message) -> None:
        client.check(answer.responses[0], f"deleting topic {name}", acl=f"DELETE on topic {name}")

    client.to_controller(request, check, maximum=BY_NAME)


DEFAULT_REPLICAS: Final = 3


def ensure_mm2_topic(client: ClusterClient, name: str, replicas: int | None) -> None:
    """Create the topic if it does not exist. An existing one is not changed.

    `replicas` None is MirrorMaker 2's default, or the brokers' default if there are fewer brokers.
    Raises Unauthorized if the user may neither see nor create the topic, and other ClusterErrors.
    """
    error = client.metadata([name]).topics[name].error
    if error not in (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED):
        return
    try:
        _create_mm2_topic(client, name, DEFAULT_REPLICAS if replicas is None else replicas)
    except Unauthorized:
        if error != TOPIC_AUTHORIZATION_FAILED:
            raise
        raise hidden_topic_error(client, name, may_create=False) from None
    except ClusterError as refused:
        if replicas is not None or refused.code != "REPLICATION_FACTOR":
            raise
        _create_mm2_topic(client, name, DEFAULT)
    try:
        wait_for_topic(client, name)
    except Unauthorized:
        raise hidden_topic_error(client, name, may_create=True) from None


def hidden_topic_error(client: ClusterClient, name: str, *, may_create: bool) -> ClusterError:
    """Return the error for a topic that Twinlog's user may not see, whether it exists or not.

    It names WRITE, which is needed anyway and includes DESCRIBE.
    """
    also = "" if may_create else ", and CREATE if it does not exist"
    return error_for(
        TOPIC_AUTHORIZATION_FAILED,
        cluster=client.alias,
        doing=f"looking for topic {name}",
        acl=f"WRITE on topic {name}{also}",
    )


def _create_mm2_topic(client: ClusterClient, name: str, replicas: int) -> None:
    configs = {"cleanup.policy": "compact"}
    create_topic(client, name, partitions=1, replication_factor=replicas, configs=configs)
