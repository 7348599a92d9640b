"""Creates, grows and deletes topics, and waits until the leaders of a new topic respond.

Requests are sent to the controller, and are repeated if their outcome is unknown. So a request
succeeds if the topic already exists, or already has the requested number of partitions. As an
exception, `delete_topic` raises an error for a missing topic, because callers need to know if they
have deleted it.

MirrorMaker 2's internal topics are created as by MirrorMaker 2, compacted and with one partition
(`ensure_mm2_topic`).
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
"""Time limit that requests to the controller contain. It is below the request timeout, so that the
controller can respond before the client gives up.
"""

DEFAULT: Final = -1
"""Value in a request that means the brokers' default number of partitions or replicas."""

WITH_DEFAULTS: Final = 4
"""The first version of CreateTopics that accepts DEFAULT (KIP-464, Kafka 2.4)."""

BY_NAME: Final = 5
"""The last version of DeleteTopics that identifies topics by name only."""

PERMANENT_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(100 << 20),  # Kafka's socket.request.max.bytes
    "message.timestamp.type": "CreateTime",
}
"""Configs of a topic into which records are saved permanently, unchanged and of any size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreation:
    """The result of creating a topic. `is_new` is False if a topic with this name already existed,
    whatever its configs are.
    """

    is_new: bool
    partitions: int
    """Partition count of a new topic. It is -1 if the topic already existed, or if the broker does
    not report the count (before 2.4, or without DESCRIBE_CONFIGS on the topic).
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
    """Create a topic, unless it already exists (`is_new` of the result is False). DEFAULT means the
    brokers' default number of partitions or replicas. With `is_trial`, the cluster only checks if
    it could create the topic.
    """
    config = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[config(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(
        topics=[topic], timeout_ms=CONTROLLER_WAIT_MS, validate_only=is_trial
    )

    def check(answer: Message) -> None:
        created = answer.topics[0]
        if created.error_code == INVALID_REPLICATION_FACTOR:
            live = len(client.metadata([]).brokers)
            raise error_for(
                INVALID_REPLICATION_FACTOR,
                cluster=client.alias,
                doing=f"creating topic {name} with replication factor {replication_factor}",
                advice=f"live brokers: {live}; set replication.factor to at most {live}, or start "
                "more",
            )
        if created.error_code != TOPIC_ALREADY_EXISTS:
            acl = f"CREATE on topic {name} (or on the cluster)"
            client.check(created, f"creating topic {name}", acl=acl)

    minimum = WITH_DEFAULTS if DEFAULT in {partitions, replication_factor} else None
    created = client.to_controller(request, check, minimum=minimum).topics[0]
    is_new = created.error_code == 0
    count = created.num_partitions if partitions == DEFAULT else partitions
    return TopicCreation(
        is_new=is_new, partitions=int(count) if is_new and count is not None else -1
    )


validate_topic: Final = partial(create_topic, is_trial=True)


def ensure_permanent_topic(client: ClusterClient, name: str, *, replication_factor: int) -> None:
    """Create a topic that never deletes records, with one partition, unless it exists."""
    if client.metadata([name]).topics[name].error == UNKNOWN_TOPIC_OR_PARTITION:
        create_topic(
            client,
            name,
            partitions=1,
            replication_factor=replication_factor,
            configs=PERMANENT_CONFIGS,
        )
    wait_for_topic(client, name)


def wait_for_topic(
    client: ClusterClient,
    name: str,
    *,
    partitions: int = 1,
    first: int = 0,
) -> TopicMetadata:
    """Wait until the topic has at least `partitions` partitions, and the leaders of the partitions
    from number `first` on respond. Return the topic's metadata.

    Leaders of partitions below `first` are not waited for, because they may be down. A leader in
    the metadata is not sufficient, because the broker rejects writes until it knows that it is the
    leader.
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
    """Increase a topic's partition count to `total`. Has no effect if it already has this count."""
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
    """Return True if a topic has exactly `total` partitions. The metadata of a broker may be stale
    for a moment, so a lower count is checked again for up to MISSING_GRACE_S.
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
    """Create an internal topic of MirrorMaker 2 if it does not exist. An existing one is not
    changed.

    With `replicas` None, the replication factor is 3 as in MirrorMaker 2, or the brokers' default
    if there are fewer than 3 brokers. Raises Unauthorized if the user is permitted neither to see
    nor to create the topic, and other ClusterErrors.
    """
    error = client.metadata([name]).topics[name].error
    if error not in (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED):
        return
    configs = {"cleanup.policy": "compact"}
    create = partial(create_topic, client, name, partitions=1, configs=configs)
    try:
        create(replication_factor=DEFAULT_REPLICAS if replicas is None else replicas)
    except Unauthorized:
        if error != TOPIC_AUTHORIZATION_FAILED:
            raise
        raise hidden_topic_error(client, name, may_create=False) from None
    except ClusterError as refused:
        if replicas is not None or refused.code != "REPLICATION_FACTOR":
            raise
        create(replication_factor=DEFAULT)
    try:
        wait_for_topic(client, name)
    except Unauthorized:
        raise hidden_topic_error(client, name, may_create=True) from None


def hidden_topic_error(client: ClusterClient, name: str, *, may_create: bool) -> ClusterError:
    """Return the error for a topic that Twinlog's user is not permitted to see, so that it is
    unknown if the topic exists. The message names the permission WRITE, which is needed anyway and
    includes DESCRIBE.
    """
    also = "" if may_create else " (and CREATE, if the topic does not exist)"
    return error_for(
        TOPIC_AUTHORIZATION_FAILED,
        cluster=client.alias,
        doing=f"looking for topic {name}",
        acl=f"WRITE on topic {name}{also}",
    )
