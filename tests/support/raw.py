"""Sends single requests without checks, as a simpler mirror would."""

from __future__ import annotations

import struct
import time
from typing import NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import fetch_records
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.protocol import is_flexible
from twinlog.errors import TwinlogError
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.wire.produce import (
    PRODUCE,
    VERSION_BY_ID,
    VERSION_BY_NAME,
    produce_answer,
    produce_request,
)
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, decode_batch, encode_batch

OUT_OF_ORDER_SEQUENCE = 45
UNKNOWN_TOPIC_ID = 100
NO_LEADER_YET = (3, 5, 6)


class Answer(NamedTuple):
    """The broker's response to one batch."""

    error: int
    base_offset: int
    log_append_time_ms: int
    """Time of the append, or -1 if the topic's timestamps are of type CreateTime."""

    def expect_ok(self) -> int:
        assert self.error == 0, self
        return self.base_offset


def send(
    client: ClusterClient,
    tp: TopicPartition,
    batch: bytes | bytearray,
    topic_id: TopicId = NO_TOPIC_ID,
) -> Answer:
    """Append one encoded batch. With a topic ID, append only to the topic that has it. While the
    leader does not know yet that it leads, retry.
    """
    for _ in range(100):
        answer = _send(client, tp, batch, topic_id)
        if answer.error not in NO_LEADER_YET:
            break
        time.sleep(0.05)  # until the leader knows that it leads
    return answer


def _send(
    client: ClusterClient, tp: TopicPartition, batch: bytes | bytearray, topic_id: TopicId
) -> Answer:
    found = client.metadata([tp.topic], allow_missing=False).partition(tp)
    assert found is not None
    version = VERSION_BY_NAME if topic_id == NO_TOPIC_ID else VERSION_BY_ID
    body = b"".join(produce_request(version, {tp: batch}, {tp.topic: topic_id}, 10_000))
    view = request(client.connection_to(found.leader), PRODUCE, version, body)
    _, (answer,) = produce_answer(version, view, {topic_id.raw: tp.topic})
    return Answer(answer.error, answer.base_offset, answer.log_append_time_ms)


def request(connection: Connection, key: int, version: int, body: bytes) -> memoryview:
    """Send a request with an encoded body. Return the undecoded response in its own buffer."""
    connection._correlation_id += 1
    number, name = connection._correlation_id, connection.settings.client_id.encode()
    tail = struct.pack(">h", len(name)) + name + b"\x00" * is_flexible(key, version)
    size = 8 + len(tail) + len(body)
    head = struct.pack(">ihhi", size, key, version, number) + tail
    connection._send(head + body, (key, version, number))
    return connection._receive_body(None)[2]


class Writer:
    """Sends batches of one producer ID with any sequence."""

    def __init__(self, client: ClusterClient, tp: TopicPartition, producer_id: int) -> None:
        self.client = client
        self.tp = tp
        self.producer_id = producer_id

    def batch(self, records: list[Record], sequence: int) -> bytearray:
        return encode_batch(
            records,
            codec=Codec.NONE,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )

    def send(self, records: list[Record], sequence: int, *, spoilt: bool = False) -> Answer:
        """Append the records. If `spoilt`, the batch has a wrong CRC, so the broker rejects it."""
        batch = self.batch(records, sequence)
        if spoilt:
            batch[-1] ^= 1
        return send(self.client, self.tp, batch)


class LoggedBatch(NamedTuple):
    """A batch as stored in a log."""

    base_offset: int
    last_offset: int
    records: int
    producer_id: int
    sequence: int
    is_control: bool


def batches(client: ClusterClient, tp: TopicPartition, offset: int = 0) -> list[LoggedBatch]:
    """Return the headers of all batches, beginning with the one that contains `offset`."""
    out: list[LoggedBatch] = []
    while True:
        answer = fetch_records(client, {tp: (offset, 1 << 20)})[tp]
        if isinstance(answer, TwinlogError):
            raise answer
        before = offset
        for header, _ in read_headers(answer.records):
            if header.next_offset > offset:
                out.append(
                    LoggedBatch(
                        header.base_offset,
                        header.last_offset,
                        header.count,
                        header.producer_id,
                        header.base_sequence,
                        header.is_control,
                    )
                )
                offset = header.next_offset
        if offset == before:
            return out


def values(client: ClusterClient, tp: TopicPartition, offset: int) -> list[bytes | None]:
    """Return the values from `offset` on, as one plain Fetch by topic name returns them."""
    answer = fetch_records(client, {tp: (offset, 1 << 20)})[tp]
    if isinstance(answer, TwinlogError):
        raise answer
    return [
        record.value
        for header, at in read_headers(answer.records)
        for record in decode_batch(answer.records[at : at + header.length])
        if record.offset >= offset
    ]
