"""Where logs begin and end: as consumers may see it (ListOffsets), and truly (leader epochs).

ListOffsets' latest is the high watermark (or the last stable offset): records above it are in the
log already and would be appended to. Only the end of the current leader epoch says where the next
append goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.per_leader import Led, ask_leaders, by_topic
from twinlog.errors import TwinlogError, or_raise
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.error_codes import error_for

LATEST: Final = -1
EARLIEST: Final = -2
"""The log start."""
MAX_TIMESTAMP: Final = -3
"""The record with the highest timestamp (KIP-734, brokers since 3.0)."""

CONSUMER: Final = -1
"""The replica id of those that are no replicas."""

WITH_LEADER_EPOCH: Final = 4
"""ListOffsets since Kafka 2.1 takes and tells leader epochs."""

UP_TO_THE_TIER: Final = 7
"""Later versions add timestamps of tiered logs and a timeout; nothing here asks for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetResult:
    """One offset, -1 where no record is so new; `timestamp` is -1 unless one was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """The end of the highest leader epoch that is not above the one asked for."""

    leader_epoch: int
    end_offset: int


def list_offsets(
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    at: int,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    timeout_s: float | None = None,
) -> dict[TopicPartition, OffsetResult | TwinlogError]:
    """Offsets at LATEST, EARLIEST, MAX_TIMESTAMP or of the first record not before a time (ms)."""
    topic_of = ListOffsetsRequest.ListOffsetsTopic

    def ask(node: int, leds: Sequence[Led]) -> dict[TopicPartition, OffsetResult | TwinlogError]:
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
                            timestamp=at,
                        )
                        for led in inside
                    ],
                )
                for name, inside in by_topic(leds).items()
            ],
        )
        answer = client.attempt(
            node,
            request,
            minimum=WITH_LEADER_EPOCH,
            maximum=UP_TO_THE_TIER,
        )
        out: dict[TopicPartition, OffsetResult | TwinlogError] = {}
        for topic in answer.topics:
            for found in topic.partitions:
                tp = TopicPartition(str(topic.name), int(found.partition_index))
                out[tp] = OffsetResult(
                    offset=int(found.offset),
                    timestamp=int(found.timestamp),
                    leader_epoch=int(found.leader_epoch),
                )
                if found.error_code:
                    out[tp] = _error(client, found.error_code, "listing offsets of", tp)
        return out

    return ask_leaders(client, tps, ask, doing="listing offsets of", timeout_s=timeout_s)


def offset_at(
    client: ClusterClient,
    tp: TopicPartition,
    at: int,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> int:
    """That of one partition; raises what its leader refused."""
    return or_raise(list_offsets(client, [tp], at, isolation=isolation)[tp]).offset


def empty_logs(client: ClusterClient, tps: Sequence[TopicPartition]) -> set[TopicPartition]:
    """Those that surely hold no record: one whose leader does not answer may hold some."""
    starts, ends = (list_offsets(client, tps, at) if tps else {} for at in (EARLIEST, LATEST))
    known = {tp: (starts[tp], ends[tp]) for tp in tps}
    return {
        tp
        for tp, (start, end) in known.items()
        if isinstance(start, OffsetResult)
        and isinstance(end, OffsetResult)
        and start.offset == end.offset
    }


def log_ends(
    client: ClusterClient, tps: Iterable[TopicPartition], *, timeout_s: float | None = None
) -> dict[TopicPartition, EpochEnd | TwinlogError]:
    """Where the next append would go: the end of the current leader epoch, with that epoch."""
    return _epoch_ends(client, tps, lambda led: led.leader_epoch, timeout_s)


def leader_epoch_ends(
    client: ClusterClient,
    epochs: Mapping[TopicPartition, int],
    *,
    timeout_s: float | None = None,
) -> dict[TopicPartition, EpochEnd | TwinlogError]:
    """Where these leader epochs end in the current log: below what we hold, it was truncated."""
    return _epoch_ends(client, epochs, lambda led: epochs[led.tp], timeout_s)


def _epoch_ends(
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    epoch_of: Callable[[Led], int],
    timeout_s: float | None,
) -> dict[TopicPartition, EpochEnd | TwinlogError]:
    topic_of = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

    def ask(node: int, leds: Sequence[Led]) -> dict[TopicPartition, EpochEnd | TwinlogError]:
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER,
            topics=[
                topic_of(
                    topic=name,
                    partitions=[
                        topic_of.OffsetForLeaderPartition(
                            partition=led.tp.partition,
                            # a broker that leads no more, or does not know yet, must not answer
                            current_leader_epoch=led.leader_epoch,
                            leader_epoch=epoch_of(led),
                        )
                        for led in inside
                    ],
                )
                for name, inside in by_topic(leds).items()
            ],
        )
        out: dict[TopicPartition, EpochEnd | TwinlogError] = {}
        for topic in client.attempt(node, request).topics:
            for found in topic.partitions:
                tp = TopicPartition(str(topic.topic), int(found.partition))
                out[tp] = EpochEnd(
                    leader_epoch=int(found.leader_epoch), end_offset=int(found.end_offset)
                )
                if found.error_code:
                    out[tp] = _error(client, found.error_code, "asking for the log end of", tp)
        return out

    return ask_leaders(client, tps, ask, doing="asking for the log end of", timeout_s=timeout_s)


def _error(client: ClusterClient, code: int, doing: str, tp: TopicPartition) -> TwinlogError:
    return error_for(
        code, cluster=client.alias, doing=f"{doing} {tp}", acl=f"DESCRIBE on topic {tp.topic}"
    )
