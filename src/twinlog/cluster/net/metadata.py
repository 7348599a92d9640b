"""Cluster metadata as values: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from twinlog.cluster.net.protocol import Message
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

NO_EPOCH: Final = -1
NO_NODE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A live broker's ID, rack, and advertised address."""

    node: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """A partition. `leader` is -1 if it has none. `leader_epoch` is -1 if brokers report none."""

    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic. `partitions` is empty if `error` is not 0 (3: missing, 29: not authorized)."""

    name: str
    topic_id: TopicId
    is_internal: bool
    error: int
    partitions: tuple[PartitionMetadata, ...]
    operations: frozenset[Operation] | None = None
    """The operations on the topic that Twinlog's user is permitted, or None if not reported."""

    @property
    def is_led(self) -> bool:
        """True if the topic exists and all its partitions have a leader."""
        return not self.error and all(partition.leader >= 0 for partition in self.partitions)

    @property
    def tps(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition.number) for partition in self.partitions]

    def partition(self, number: int) -> PartitionMetadata | None:
        """Return the partition, or None if the response lacks it."""
        if number < len(self.partitions) and self.partitions[number].number == number:
            return self.partitions[number]
        return next(
            (partition for partition in self.partitions if partition.number == number), None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """One Metadata response, with all brokers and the requested topics."""

    cluster_id: str | None
    controller: int
    brokers: Mapping[int, Broker]
    topics: Mapping[str, TopicMetadata]

    def has(self, topic: str, topic_id: TopicId) -> bool:
        """Return True if a topic with this name exists and has this ID."""
        known = self.topics.get(topic)
        return known is not None and not known.error and known.topic_id == topic_id

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        """Return the partition, or None if the response lacks it."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partition(tp.partition)


class Operation(IntEnum):
    """An operation of Kafka's authorizer, by its protocol number."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def decode_metadata(answer: Message) -> ClusterMetadata:
    """Convert a Metadata response of the client library."""
    brokers = {
        int(b.node_id): Broker(node=int(b.node_id), host=str(b.host), port=int(b.port), rack=b.rack)
        for b in answer.brokers
    }
    topics = [_topic(topic) for topic in answer.topics]
    return ClusterMetadata(
        cluster_id=answer.cluster_id,
        controller=int(answer.controller_id),
        brokers=brokers,
        topics={topic.name: topic for topic in topics},
    )


def _topic(topic: Message) -> TopicMetadata:
    partitions = sorted(topic.partitions, key=lambda p: int(p.partition_index))
    raw_id = topic.topic_id
    return TopicMetadata(
        name=str(topic.name),
        topic_id=TopicId(raw_id.hex) if raw_id is not None else NO_TOPIC_ID,
        is_internal=bool(topic.is_internal),
        error=int(topic.error_code),
        partitions=tuple(
            PartitionMetadata(
                number=int(p.partition_index),
                leader=int(p.leader_id),
                leader_epoch=NO_EPOCH if p.leader_epoch is None else int(p.leader_epoch),
                replicas=tuple(map(int, p.replica_nodes)),
                isr=tuple(map(int, p.isr_nodes)),
                error=int(p.error_code),
            )
            for p in partitions
        ),
        operations=operations(topic.authorized_operations),
    )


def operations(numbers: Collection[int] | None) -> frozenset[Operation] | None:
    """Return the operations with these protocol numbers, or None if `numbers` is None."""
    if numbers is None:
        return None
    return frozenset(operation for operation in Operation if operation in numbers)
