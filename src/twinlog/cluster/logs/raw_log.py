"""Whole record batches read and appended by request, for everything but the copy loop."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import CONSUMER, Isolation
from twinlog.cluster.logs.per_leader import Led, ask_leaders, by_topic, topics_of
from twinlog.cluster.net.metadata import NO_EPOCH
from twinlog.cluster.net.protocol import Message
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION, error_for
from twinlog.wire.requests.fetch import AbortedTransaction

MAX_ANSWER_BYTES: Final = 50 * 1024 * 1024
"""Java's fetch.max.bytes."""

ACKS_ALL: Final = -1
BY_NAME: Final = 12
"""Fetch and Produce name topics by id from version 13 on."""

PARTITIONS_ADDED_BEFORE: Final = 11
"""From version 12 on a Produce adds its partition to the transaction itself (KIP-890)."""

NO_TIME: Final = -1
"""The append time in an answer for a new batch of a CreateTime topic."""

WITH_EPOCH: Final = 9
"""Fetch since Kafka 2.1: a broker that does not lead any more does not answer."""

V2_BATCHES: Final = 3
"""Produce since Kafka 0.11 takes batches of format v2."""

NO_SESSION: Final = -1
"""The fetch session epoch of a request that stands for itself (KIP-227)."""

LENGTH_END: Final = 12
_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRecords:
    """One partition's answer; `records` may begin before the offset, and end within a batch."""

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: tuple[AbortedTransaction, ...]
    """Only where READ_COMMITTED was asked for."""
    throttle_ms: int = 0
    """A quota holds us back: such an answer may be without records that there are."""


FetchFrom = tuple[int, int]
"""First offset, and about how many bytes."""


def fetch_records(
    client: ClusterClient,
    wanted: Mapping[TopicPartition, FetchFrom],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    timeout_s: float | None = None,
) -> dict[TopicPartition, FetchedRecords | TwinlogError]:
    """What each log has at that offset now (nothing is waited for), at least one whole batch of it.

    An offset outside the log is an error with code OFFSET_OUT_OF_RANGE.
    """

    def ask(node: int, leds: Sequence[Led]) -> dict[TopicPartition, FetchedRecords | TwinlogError]:
        out: dict[TopicPartition, FetchedRecords | TwinlogError] = {}
        for some in _portions(leds, wanted):
            answers = _fetch(client, node, some, wanted, isolation)
            for led in some:
                answer = answers[led.tp]
                if len(some) > 1 and _is_cut(answer, wanted[led.tp][0]):
                    # only the first partition of an answer is sure to get a whole batch (KIP-74)
                    answer = _fetch(client, node, [led], wanted, isolation)[led.tp]
                out[led.tp] = answer
        return out

    return ask_leaders(client, wanted, ask, doing="reading", timeout_s=timeout_s)


def _portions(
    leds: Sequence[Led], wanted: Mapping[TopicPartition, FetchFrom]
) -> Iterable[list[Led]]:
    """Requests whose answers have room for all their partitions."""
    portion: list[Led] = []
    size = 0
    for led in leds:
        max_bytes = wanted[led.tp][1]
        if portion and size + max_bytes > MAX_ANSWER_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(led)
        size += max_bytes
    if portion:
        yield portion


def _is_cut(answer: FetchedRecords | TwinlogError, offset: int) -> bool:
    if isinstance(answer, TwinlogError):
        return False
    records = answer.records
    if len(records) < LENGTH_END:
        return offset < answer.high_watermark
    (length,) = _LENGTH.unpack_from(records, 8)
    return len(records) < LENGTH_END + int(length)


def _fetch(
    client: ClusterClient,
    node: int,
    leds: Sequence[Led],
    wanted: Mapping[TopicPartition, FetchFrom],
    isolation: Isolation,
) -> dict[TopicPartition, FetchedRecords | TwinlogError]:
    topic_of = FetchRequest.FetchTopic
    request = FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=MAX_ANSWER_BYTES,
        isolation_level=int(isolation),
        session_id=0,
        session_epoch=NO_SESSION,
        topics=[
            topic_of(
                topic=name,
                partitions=[
                    topic_of.FetchPartition(
                        partition=led.tp.partition,
                        current_leader_epoch=led.leader_epoch,
                        fetch_offset=wanted[led.tp][0],
                        last_fetched_epoch=NO_EPOCH,
                        log_start_offset=-1,
                        partition_max_bytes=wanted[led.tp][1],
                    )
                    for led in inside
                ],
            )
            for name, inside in by_topic(leds).items()
        ],
        forgotten_topics_data=[],
        rack_id="",
    )
    answer = client.attempt(node, request, minimum=WITH_EPOCH, maximum=BY_NAME)
    out: dict[TopicPartition, FetchedRecords | TwinlogError] = {
        led.tp: _error(client, UNKNOWN_TOPIC_OR_PARTITION, "reading", led.tp, "READ")
        for led in leds
    }
    for topic in answer.responses:
        for found in topic.partitions:
            tp = TopicPartition(str(topic.topic), int(found.partition_index))
            if found.error_code:
                out[tp] = _error(client, found.error_code, "reading", tp, "READ")
            else:
                out[tp] = _fetched(found, int(answer.throttle_time_ms))
    return out


def _fetched(found: Message, throttle_ms: int) -> FetchedRecords:
    return FetchedRecords(
        records=memoryview(found.records or b""),
        high_watermark=int(found.high_watermark),
        last_stable_offset=int(found.last_stable_offset),
        log_start=int(found.log_start_offset),
        aborted=tuple(
            AbortedTransaction(int(a.producer_id), int(a.first_offset))
            for a in found.aborted_transactions or ()
        ),
        throttle_ms=throttle_ms,
    )


def produce_batch(
    client: ClusterClient,
    tp: TopicPartition,
    batch: bytes | bytearray | memoryview,
    *,
    transactional_id: str | None = None,
    timeout_s: float | None = None,
) -> int:
    """Append one encoded batch with acks=all, asked once; its base offset.

    A transaction knows of the partition before (`groups.transactions`). Raises what the leader
    refused. After Disconnected the batch may be in the log or not.
    """
    metadata = client.metadata([tp.topic], allow_missing=False, timeout_s=timeout_s)
    partition = metadata.partition(tp)
    if partition is None or partition.leader < 0:
        number = UNKNOWN_TOPIC_OR_PARTITION if partition is None else partition.error
        raise _error(client, number, "appending to", tp, "WRITE")
    if timeout_s is None:
        timeout_s = client.settings.request_timeout_ms / 1000
    found = _produce(client, partition.leader, {tp: batch}, transactional_id, timeout_s)[tp]
    if isinstance(found, TwinlogError):
        raise found
    return found.base_offset


class Appended(NamedTuple):
    """What the leader answered for a batch."""

    base_offset: int
    is_new: bool
    """False: a batch of that producer with these sequences was in the log already, whatever is in
    it; or the topic has LogAppendTime, and the answer does not tell.
    """


Buffer = bytes | bytearray | memoryview


def append_batches(
    client: ClusterClient,
    batches: Mapping[TopicPartition, Buffer],
    *,
    transactional_id: str,
    timeout_s: float | None = None,
) -> dict[TopicPartition, Appended | TwinlogError]:
    """Append a batch to each partition with acks=all, again where a leader moves or a connection
    breaks: the sequences of a batch tell a leader that it has it.

    A transaction knows of the partitions before (`groups.transactions`).
    """

    def ask(node: int, leds: Sequence[Led]) -> dict[TopicPartition, Appended | TwinlogError]:
        within_s = client.settings.request_timeout_ms / 1000
        some = {led.tp: batches[led.tp] for led in leds}
        return _produce(client, node, some, transactional_id, within_s)

    return ask_leaders(client, batches, ask, doing="appending to", timeout_s=timeout_s)


def _produce(
    client: ClusterClient,
    node: int,
    batches: Mapping[TopicPartition, Buffer],
    transactional_id: str | None,
    timeout_s: float,
) -> dict[TopicPartition, Appended | TwinlogError]:
    topic_of = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=ACKS_ALL,
        timeout_ms=client.settings.request_timeout_ms,
        topic_data=[
            topic_of(
                name=name,
                partition_data=[
                    topic_of.PartitionProduceData(
                        index=number, records=bytes(batches[TopicPartition(name, number)])
                    )
                    for number in numbers
                ],
            )
            for name, numbers in topics_of(batches).items()
        ],
    )
    answer = client.attempt(
        node,
        request,
        timeout_s=timeout_s,
        minimum=V2_BATCHES,
        maximum=BY_NAME if transactional_id is None else PARTITIONS_ADDED_BEFORE,
    )
    out: dict[TopicPartition, Appended | TwinlogError] = {}
    for topic in answer.responses:
        for found in topic.partition_responses:
            tp = TopicPartition(str(topic.name), int(found.index))
            out[tp] = Appended(int(found.base_offset), int(found.log_append_time_ms) == NO_TIME)
            if found.error_code:
                out[tp] = _error(
                    client, found.error_code, "appending to", tp, "WRITE", _detail(found)
                )
    return out


def _detail(found: Message) -> str | None:
    for record in found.record_errors or ():
        if record.batch_index_error_message:
            return f"record {record.batch_index}: {record.batch_index_error_message}"
    return found.error_message if isinstance(found.error_message, str) else None


def _error(
    client: ClusterClient,
    number: int,
    doing: str,
    tp: TopicPartition,
    right: str,
    detail: str | None = None,
) -> TwinlogError:
    return error_for(
        number,
        cluster=client.alias,
        doing=f"{doing} {tp}",
        acl=f"{right} on topic {tp.topic}",
        detail=detail,
    )
