"""Reads and appends whole batches by single requests, for everything except the copy loop.

A read has three difficulties, which `_Reading` hides from callers:

- *Size.* A broker returns at least one whole batch, but only for the first partition of a response
  (KIP-74). For later partitions, the response may contain only a part of a batch. Such a partition
  is read again with more bytes.
- *Quotas.* A throttled response has no topics at all, although the requested partitions exist and
  may have records. They are requested again after the mute, with fewer bytes per request, and the
  responses are combined into one result (`net.read_size`).
- *Stuck batches.* A batch that is larger than the quota allows is never returned. The read fails
  only if no data was returned for the time limit of a call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import CONSUMER
from twinlog.cluster.logs.per_leader import (
    LedPartition,
    by_topic,
    partition_error,
    send_to_leaders,
    topics_of,
)
from twinlog.cluster.net.metadata import NO_EPOCH
from twinlog.cluster.net.protocol import Message, throttle_ms
from twinlog.cluster.net.read_size import ReadSize
from twinlog.errors import (
    BrokerRefused,
    ClusterError,
    CorruptData,
    Disconnected,
    TwinlogError,
    Unreachable,
    or_raise,
)
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.error_codes import (
    OFFSET_NOT_AVAILABLE,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_for,
)
from twinlog.wire.fetch import AbortedTransaction
from twinlog.wire.record_batch import BatchHeader, Buffer, read_headers

MAX_ANSWER_BYTES: Final = 50 * 1024 * 1024
"""Maximum bytes per Fetch: Java's default fetch.max.bytes."""

ACKS_ALL: Final = -1
BY_NAME: Final = 12
"""The last version of Fetch and Produce that identifies topics by name."""

PARTITIONS_ADDED_BEFORE: Final = 11
"""The last version of Produce that does not add its partition to the transaction (KIP-890)."""

NO_TIME: Final = -1
"""Log append time in the response to a new batch if the topic has CreateTime."""

WITH_EPOCH: Final = 9
"""The first version of Fetch with leader epochs (Kafka 2.1), so that only the leader responds."""

V2_BATCHES: Final = 3
"""The first version of Produce with batches of magic 2 (Kafka 0.11)."""

NO_SESSION: Final = -1
"""The session epoch of a Fetch without a session (KIP-227)."""

STUCK_ANSWERS: Final = 5
"""Number of consecutive empty responses because of a quota after which a read may fail. It fails
only if they have also lasted for longer than the time limit of a call.
"""

FIRST_BYTES: Final = 4096
"""Number of bytes to request if one batch is needed. Brokers return a longer batch whole."""

GROWTH: Final = 16
"""Factor by which a partition's requested bytes grow if its first batch was not complete."""

LENGTH_END: Final = 12
_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRecords:
    """Records of one partition, beginning with the batch that has the requested offset. The last
    batch may be incomplete.
    """

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: tuple[AbortedTransaction, ...]
    """The aborted transactions. Empty unless READ_COMMITTED was requested."""


FetchFrom = tuple[int, int]
"""The first offset to read, and the approximate number of bytes."""


def fetch_records(
    client: ClusterClient,
    positions: Mapping[TopicPartition, FetchFrom],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    timeout_s: float | None = None,
) -> dict[TopicPartition, FetchedRecords | TwinlogError]:
    """Return the records that each log has now at or after an offset. This is at least one whole
    batch, unless the offset is the end of the log.

    The call does not wait for new records, but for data that a quota delays. An offset outside the
    log is an error with code OFFSET_OUT_OF_RANGE. If a quota permits no data at all for the time of
    a call, the code is THROTTLING_QUOTA_EXCEEDED.
    """

    def ask(
        node: int, partitions: Sequence[LedPartition]
    ) -> dict[TopicPartition, FetchedRecords | TwinlogError]:
        return _Reading(client, node, positions, isolation).read(partitions)

    return send_to_leaders(client, positions, ask, doing="reading", timeout_s=timeout_s)


def fetch_partition(
    client: ClusterClient,
    tp: TopicPartition,
    offset: int,
    most_bytes: int,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> FetchedRecords:
    """Return the records of one partition like `fetch_records`. Raises the partition's error."""
    return or_raise(fetch_records(client, {tp: (offset, most_bytes)}, isolation=isolation)[tp])


Answers = dict[TopicPartition, FetchedRecords | TwinlogError]
Read = Callable[[TopicPartition, int, int], FetchedRecords | TwinlogError]
"""A function (partition, offset, bytes) that reads about this many bytes from the offset on."""


def shorter_log_error(
    client: ClusterClient, tp: TopicPartition, offset: int, detail: str | None = None
) -> ClusterError:
    """Return the retriable error for a log that ends earlier than it did in an earlier response. A
    new leader returns fewer records until it knows the high watermark.
    """
    doing = f"reading {tp} at offset {offset}"
    return error_for(OFFSET_NOT_AVAILABLE, cluster=client.alias, doing=doing, detail=detail)


def batch_from(read: Read, tp: TopicPartition, offset: int, end: int) -> BatchHeader | None:
    """Return the batch that has `offset`, or else the first batch after `offset`. Return None if
    that batch begins at or after `end`.
    """
    if offset >= end:
        return None
    answer = or_raise(read(tp, offset, FIRST_BYTES))
    headers = (header for header, _ in read_headers(answer.records) if header.next_offset > offset)
    header = next(headers, None)
    return None if header is None or header.base_offset >= end else header


class _Reading:
    """Fetches from one broker until each partition has a result (perhaps empty) or an error."""

    def __init__(
        self,
        client: ClusterClient,
        node: int,
        positions: Mapping[TopicPartition, FetchFrom],
        isolation: Isolation,
    ) -> None:
        self._client = client
        self._node = node
        self._first_wanted = positions
        self._wanted = dict(positions)
        self._most = 0
        self._isolation = isolation
        self._size = client.read_sizes.setdefault(
            node, ReadSize(MAX_ANSWER_BYTES, MAX_ANSWER_BYTES)
        )
        self._parts: dict[TopicPartition, FetchedRecords] = {}
        self._growth: dict[TopicPartition, int] = {}
        self._held_since = 0.0
        self._held = 0

    def read(self, partitions: Sequence[LedPartition]) -> Answers:
        out: Answers = {}
        left = list(partitions)
        while left:
            try:
                answers, is_throttled = self._ask(left)
            except (Unreachable, Disconnected) as error:
                if not out and not self._parts:
                    raise
                answers, is_throttled = {led.tp: error for led in left}, False
            for index, led in enumerate(left):
                answer = answers.get(led.tp)
                if answer is None and is_throttled:
                    continue
                if answer is None:
                    answer = self._error(UNKNOWN_TOPIC_OR_PARTITION, led.tp)
                # brokers guarantee a whole batch only for the first partition of a response
                # (KIP-74)
                if index == 0 or not self._is_cut(answer, led.tp):
                    self._store(led.tp, answer, out)
                else:  # request more bytes, to avoid a request per long batch
                    self._growth[led.tp] = GROWTH * self._growth.get(led.tp, 1)
            if self._is_stuck(is_held=is_throttled and not answers):
                # if the quota permits it, a response has at least one batch of the first partition,
                # so the next batch of this partition must be larger than the quota
                self._store(left[0].tp, self._nothing_passes_error(left[0].tp), out)
                self._held = 0
            left = [led for led in left if led.tp not in out]
        return out

    def _store(
        self, tp: TopicPartition, answer: FetchedRecords | TwinlogError, answers: Answers
    ) -> None:
        """Store a response for a partition. The partition is done after an error, or when about as
        many bytes as requested were read.
        """
        before = self._parts.get(tp)
        if isinstance(answer, TwinlogError):
            answers[tp] = answer if before is None else before
            return
        offset, wanted_bytes = self._wanted[tp]
        joined = answer if before is None else _join_responses(before, answer)
        if self._most < wanted_bytes:
            size, next_offset = _whole_batches(answer.records)
            left_bytes = wanted_bytes - size
            if (
                offset < next_offset < self._end(answer)
                and 2 * left_bytes > self._first_wanted[tp][1]
            ):
                self._parts[tp] = joined
                self._wanted[tp] = next_offset, left_bytes
                return
        answers[tp] = joined

    def _end(self, answer: FetchedRecords) -> int:
        is_committed = self._isolation is Isolation.READ_COMMITTED
        return answer.last_stable_offset if is_committed else answer.high_watermark

    def _is_cut(self, answer: FetchedRecords | TwinlogError, tp: TopicPartition) -> bool:
        if isinstance(answer, TwinlogError):
            return False
        records = answer.records
        if len(records) < LENGTH_END:
            return self._wanted[tp][0] < self._end(answer)
        (length,) = _LENGTH.unpack_from(records, 8)
        return len(records) < LENGTH_END + int(length)

    def _is_stuck(self, *, is_held: bool) -> bool:
        """Return True if a quota has caused empty responses for longer than a call may last."""
        if not is_held:
            self._held = 0
            return False
        now = self._client.patience.clock()
        if not self._held:
            self._held_since = now
        self._held += 1
        is_long = now - self._held_since > self._client.api_timeout_s
        return is_long and self._held > STUCK_ANSWERS

    def _ask(self, partitions: Sequence[LedPartition]) -> tuple[Answers, bool]:
        """Return (results, is_throttled): the results of some or all partitions, and True if the
        broker has throttled the response.
        """
        self._most = self._size.most_bytes
        answer = self._client.attempt(
            self._node, self._request(partitions, self._most), minimum=WITH_EPOCH, maximum=BY_NAME
        )
        out: Answers = {}
        for topic in answer.responses:
            for partition in topic.partitions:
                tp = TopicPartition(str(topic.topic), int(partition.partition_index))
                code = int(partition.error_code)
                out[tp] = self._error(code, tp) if code else _fetched(partition)
        # a throttled response has no topics (FetchContext.getThrottledResponse in Kafka)
        is_throttled = throttle_ms(answer) > 0
        if is_throttled:
            asked_bytes = sum(self._wanted[led.tp][1] for led in partitions)
            self._size.most_bytes = min(self._most, asked_bytes)
        self._size.adapt(is_throttled=is_throttled)
        return out, is_throttled

    def _request(self, partitions: Sequence[LedPartition], most_bytes: int) -> FetchRequest:
        topic_of = FetchRequest.FetchTopic
        return FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=most_bytes,
            isolation_level=self._isolation.number,
            session_id=0,
            session_epoch=NO_SESSION,
            topics=[
                topic_of(
                    topic=name,
                    partitions=[
                        topic_of.FetchPartition(
                            partition=led.tp.partition,
                            current_leader_epoch=led.leader_epoch,
                            fetch_offset=self._wanted[led.tp][0],
                            last_fetched_epoch=NO_EPOCH,
                            log_start_offset=-1,
                            partition_max_bytes=min(
                                most_bytes, self._wanted[led.tp][1] * self._growth.get(led.tp, 1)
                            ),
                        )
                        for led in inside
                    ],
                )
                for name, inside in by_topic(partitions).items()
            ],
            forgotten_topics_data=[],
            rack_id="",
        )

    def _error(self, number: int, tp: TopicPartition) -> TwinlogError:
        return partition_error(self._client, number, "reading", tp, "READ")

    def _nothing_passes_error(self, tp: TopicPartition) -> TwinlogError:
        settings = self._client.settings
        held_s = self._client.patience.clock() - self._held_since
        return BrokerRefused(
            f"cluster {settings.alias}: {tp} cannot be read, because a quota has blocked every "
            f"fetch for {held_s:.0f} s: raise consumer_byte_rate of client ID "
            f"{settings.client_id} (brokers never return a batch that is larger than what this "
            "quota allows in ten seconds)",
            kafka_error=THROTTLING_QUOTA_EXCEEDED,
            code="THROTTLING_QUOTA_EXCEEDED",
        )


def _whole_batches(records: memoryview) -> tuple[int, int]:
    """Return (size of all whole batches in bytes, offset after them). An unknown offset is -1."""
    size, next_offset = 0, -1
    try:
        for header, start in read_headers(records):
            size, next_offset = start + header.length, header.next_offset
    except CorruptData:
        return size, -1  # callers report the corrupt batch when they decode it
    return size, next_offset


def _join_responses(before: FetchedRecords, answer: FetchedRecords) -> FetchedRecords:
    """Combine two consecutive responses for one partition."""
    whole, _ = _whole_batches(before.records)
    return replace(
        answer,
        records=memoryview(b"".join((before.records[:whole], answer.records))),
        aborted=tuple(dict.fromkeys((*before.aborted, *answer.aborted))),
    )


def _fetched(partition: Message) -> FetchedRecords:
    return FetchedRecords(
        records=memoryview(partition.records or b""),
        high_watermark=int(partition.high_watermark),
        last_stable_offset=int(partition.last_stable_offset),
        log_start=int(partition.log_start_offset),
        aborted=tuple(
            AbortedTransaction(int(a.producer_id), int(a.first_offset))
            for a in partition.aborted_transactions or ()
        ),
    )


def produce_batch(
    client: ClusterClient,
    tp: TopicPartition,
    batch: bytes | bytearray | memoryview,
    *,
    transactional_id: str | None = None,
) -> int:
    """Append one encoded batch with acks=all in one attempt, and return the batch's base offset.

    A transaction must already include the partition (`groups.transactions`). Raises the leader's
    error. After Disconnected, the batch may or may not be in the log.
    """
    metadata = client.metadata([tp.topic], allow_missing=False)
    partition = metadata.partition(tp)
    if partition is None or partition.leader < 0:
        number = UNKNOWN_TOPIC_OR_PARTITION if partition is None else partition.error
        raise partition_error(client, number, "appending to", tp, "WRITE")
    return or_raise(
        _produce(client, partition.leader, {tp: batch}, transactional_id)[tp]
    ).base_offset


class Appended(NamedTuple):
    """The leader's response to an appended batch."""

    base_offset: int
    is_new: bool
    """False if the log already had a batch of the producer with these sequence numbers, whatever
    its content. Also False if the topic has LogAppendTime, because its responses do not show
    duplicates.
    """


def append_batches(
    client: ClusterClient,
    batches: Mapping[TopicPartition, Buffer],
    *,
    transactional_id: str,
) -> dict[TopicPartition, Appended | TwinlogError]:
    """Append a batch to each partition with acks=all. A batch is sent again if a leader moves or a
    connection breaks. This is safe because the leader recognizes a repeated batch by its sequence
    numbers.

    A transaction must already include the partitions (`groups.transactions`).
    """

    def ask(
        node: int, partitions: Sequence[LedPartition]
    ) -> dict[TopicPartition, Appended | TwinlogError]:
        batch_of = {led.tp: batches[led.tp] for led in partitions}
        return _produce(client, node, batch_of, transactional_id)

    return send_to_leaders(client, batches, ask, doing="appending to")


def _produce(
    client: ClusterClient,
    node: int,
    batches: Mapping[TopicPartition, Buffer],
    transactional_id: str | None,
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
        timeout_s=client.settings.request_timeout_ms / 1000,
        minimum=V2_BATCHES,
        maximum=BY_NAME if transactional_id is None else PARTITIONS_ADDED_BEFORE,
    )
    out: dict[TopicPartition, Appended | TwinlogError] = {}
    for topic in answer.responses:
        for partition in topic.partition_responses:
            tp = TopicPartition(str(topic.name), int(partition.index))
            out[tp] = Appended(
                int(partition.base_offset), int(partition.log_append_time_ms) == NO_TIME
            )
            if partition.error_code:
                out[tp] = partition_error(
                    client, partition.error_code, "appending to", tp, "WRITE", _detail(partition)
                )
    return out


def _detail(partition: Message) -> str | None:
    for record in partition.record_errors or ():
        if record.batch_index_error_message:
            return f"record {record.batch_index}: {record.batch_index_error_message}"
    return partition.error_message if isinstance(partition.error_message, str) else None
