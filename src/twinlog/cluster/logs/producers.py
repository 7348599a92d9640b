"""Producer IDs: obtains new ones, and reads the state that partition leaders store for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.producer import InitProducerIdRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.per_leader import (
    LedPartition,
    by_topic,
    partition_error,
    send_to_leaders,
)
from twinlog.errors import TwinlogError, Unsupported
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import COORDINATOR_LOAD_IN_PROGRESS, error_for

NO_PRODUCER_ID: Final = -1
NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1
"""The transaction timeout that an idempotent producer without transactions sends, as in Java."""

WITHOUT_TWO_PHASE_COMMIT: Final = 5
"""The last version of InitProducerId without flags for two-phase commit (KIP-939)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """A producer ID that the cluster has assigned to this client only, and its epoch."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """The state that a partition's leader stores for a producer ID.

    `last_timestamp` is the timestamp of the producer's last record, not the time of its append.
    `current_transaction_start_offset` is -1 outside a transaction.
    """

    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    current_transaction_start_offset: int


def init_producer_id(client: ClusterClient) -> ProducerIdentity:
    """Obtain a new producer ID for an idempotent producer from any broker.

    A broker that has just started may return COORDINATOR_LOAD_IN_PROGRESS, or the ID -1 without an
    error. The request is retried in both cases.
    """
    request = InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
    )

    def ask() -> ProducerIdentity:
        answer = client.attempt(None, request, maximum=WITHOUT_TWO_PHASE_COMMIT)
        code = int(answer.error_code)
        if not code and answer.producer_id == NO_PRODUCER_ID:
            code = COORDINATOR_LOAD_IN_PROGRESS
        if code:
            raise error_for(
                code,
                cluster=client.alias,
                doing="obtaining a producer ID",
                acl="WRITE on a topic (or IDEMPOTENT_WRITE on the cluster)",
            )
        return ProducerIdentity(
            producer_id=int(answer.producer_id), producer_epoch=int(answer.producer_epoch)
        )

    return client.retrying(ask)


Producers = dict[int, ProducerState]
"""The states of producers, by producer ID."""


def describe_producers(
    client: ClusterClient, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, Producers | TwinlogError]:
    """Return the state of all producer IDs that the leader of each partition remembers (KIP-664).
    Raises Unsupported if a broker is older than 2.8.
    """
    topic_of, doing = DescribeProducersRequest.TopicRequest, "describing the producers of"

    def ask(
        node: int, partitions: Sequence[LedPartition]
    ) -> dict[TopicPartition, Producers | TwinlogError]:
        request = DescribeProducersRequest(
            topics=[
                topic_of(name=name, partition_indexes=[led.tp.partition for led in inside])
                for name, inside in by_topic(partitions).items()
            ]
        )
        out: dict[TopicPartition, Producers | TwinlogError] = {}
        for topic in client.attempt(node, request).topics:
            for partition in topic.partitions:
                tp = TopicPartition(str(topic.name), int(partition.partition_index))
                out[tp] = {
                    int(p.producer_id): ProducerState(
                        producer_epoch=int(p.producer_epoch),
                        last_sequence=int(p.last_sequence),
                        last_timestamp=int(p.last_timestamp),
                        current_transaction_start_offset=int(p.current_txn_start_offset),
                    )
                    for p in partition.active_producers
                }
                if number := partition.error_code:
                    detail = partition.error_message
                    out[tp] = partition_error(client, number, doing, tp, "READ", detail)
        return out

    return send_to_leaders(client, tps, ask, doing=doing)


def known_producers(
    client: ClusterClient, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, Producers]:
    """Return the producers of partitions, like `describe_producers`, but leave out partitions with
    an error. The result is empty if a broker is older than 2.8.
    """
    try:
        described = describe_producers(client, tps)
    except Unsupported:
        return {}
    return {
        tp: producers
        for tp, producers in described.items()
        if not isinstance(producers, TwinlogError)
    }


def transaction_starts(
    client: ClusterClient, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, dict[int, int]]:
    """Return the open transactions of each partition whose leader reports them: for each producer
    ID, the offset of its first record in the partition.
    """
    return {
        tp: {
            producer_id: state.current_transaction_start_offset
            for producer_id, state in producers.items()
            if state.current_transaction_start_offset >= 0
        }
        for tp, producers in known_producers(client, tps).items()
    }
