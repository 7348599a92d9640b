"""The begin and end of logs: as consumers see them (ListOffsets), and the real end (leader epochs).

    log start     last stable offset     high watermark     end of the leader epoch
    |             |                      |                  |
    v             v                      v                  v
    [.............|......................|..................|   next append
                  open transactions      not on all in-sync replicas

ListOffsets returns the log start. As latest offset it returns the high watermark, or the last
stable offset with READ_COMMITTED. The log may already have records above the latest offset, and the
next append is placed after these records. Only the end of the current leader epoch (`log_ends`) is
the offset of the next append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.per_leader import (
    LedPartition,
    by_topic,
    partition_error,
    send_to_leaders,
)
from twinlog.errors import TwinlogError, or_raise
from twinlog.model import Isolation, TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
"""Pseudo-timestamp for ListOffsets: the log start."""
MAX_TIMESTAMP: Final = -3
"""Pseudo-timestamp: the record with the greatest timestamp (KIP-734, brokers since 3.0)."""

CONSUMER: Final = -1
"""The replica ID of clients that are not replicas."""

WITH_LEADER_EPOCH: Final = 4
"""The first version of ListOffsets with leader epochs (Kafka 2.1)."""

BEFORE_TIER_TIMESTAMPS: Final = 7
"""The last version of ListOffsets without timestamps for tiered storage and without a timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetResult:
    """A result of ListOffsets. `offset` is -1 if no record has the requested timestamp or a later
    one. `timestamp` is -1 for LATEST and EARLIEST.
    """

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """The highest leader epoch that is not above the requested one, and the epoch's end offset."""

    leader_epoch: int
    end_offset: int


def list_offsets(
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    timestamp: int,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    timeout_s: float | None = None,
) -> dict[TopicPartition, OffsetResult | TwinlogError]:
    """Return each partition's offset at LATEST, EARLIEST or MAX_TIMESTAMP, or of its first record
    with at least this timestamp in ms.
    """
    topic_of = ListOffsetsRequest.ListOffsetsTopic

    def ask(
        node: int, partitions: Sequence[LedPartition]
    ) -> dict[TopicPartition, OffsetResult | TwinlogError]:
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=isolation.number,
            topics=[
                topic_of(
                    name=name,
                    partitions=[
                        topic_of.ListOffsetsPartition(
                            partition_index=led.tp.partition,
                            current_leader_epoch=led.leader_epoch,
                            timestamp=timestamp,
                        )
                        for led in inside
                    ],
                )
                for name, inside in by_topic(partitions).items()
            ],
        )
        answer = client.attempt(
            node,
            request,
            minimum=WITH_LEADER_EPOCH,
            maximum=BEFORE_TIER_TIMESTAMPS,
        )
        out: dict[TopicPartition, OffsetResult | TwinlogError] = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                tp = TopicPartition(str(topic.name), int(partition.partition_index))
                out[tp] = OffsetResult(
                    offset=int(partition.offset),
                    timestamp=int(partition.timestamp),
                    leader_epoch=int(partition.leader_epoch),
                )
                if number := partition.error_code:
                    out[tp] = partition_error(client, number, "listing offsets of", tp)
        return out

    return send_to_leaders(client, tps, ask, doing="listing offsets of", timeout_s=timeout_s)


def offset_at(client: ClusterClient, tp: TopicPartition, timestamp: int) -> int:
    """Return the offset of one partition like `list_offsets`. Raises the error of its leader."""
    return or_raise(list_offsets(client, [tp], timestamp)[tp]).offset


def log_ends(
    client: ClusterClient, tps: Iterable[TopicPartition], *, timeout_s: float | None = None
) -> dict[TopicPartition, EpochEnd | TwinlogError]:
    """Return the current leader epoch of each log, and its end: the offset of the next append."""
    return _epoch_ends(client, tps, lambda led: led.leader_epoch, timeout_s)


def leader_epoch_ends(
    client: ClusterClient,
    epochs: Mapping[TopicPartition, int],
    *,
    timeout_s: float | None = None,
) -> dict[TopicPartition, EpochEnd | TwinlogError]:
    """Return the offset at which each of these leader epochs ends in the current log. If a record
    of the epoch was once read above this offset, the log was truncated.
    """
    return _epoch_ends(client, epochs, lambda led: epochs[led.tp], timeout_s)


def _epoch_ends(
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    epoch_of: Callable[[LedPartition], int],
    timeout_s: float | None,
) -> dict[TopicPartition, EpochEnd | TwinlogError]:
    topic_of = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

    def ask(
        node: int, partitions: Sequence[LedPartition]
    ) -> dict[TopicPartition, EpochEnd | TwinlogError]:
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER,
            topics=[
                topic_of(
                    topic=name,
                    partitions=[
                        topic_of.OffsetForLeaderPartition(
                            partition=led.tp.partition,
                            # makes a broker that is not the leader return an error
                            current_leader_epoch=led.leader_epoch,
                            leader_epoch=epoch_of(led),
                        )
                        for led in inside
                    ],
                )
                for name, inside in by_topic(partitions).items()
            ],
        )
        out: dict[TopicPartition, EpochEnd | TwinlogError] = {}
        for topic in client.attempt(node, request).topics:
            for partition in topic.partitions:
                tp = TopicPartition(str(topic.topic), int(partition.partition))
                out[tp] = EpochEnd(
                    leader_epoch=int(partition.leader_epoch), end_offset=int(partition.end_offset)
                )
                if number := partition.error_code:
                    out[tp] = partition_error(client, number, "reading the log end of", tp)
        return out

    return send_to_leaders(client, tps, ask, doing="reading the log end of", timeout_s=timeout_s)
