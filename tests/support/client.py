"""An independent Kafka client (librdkafka). It checks the mirror's results, so that they are not
checked with the mirror's own code.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.eventually import PATIENCE_S, eventually
from twinlog.sandbox import LocalCluster

__all__ = [
    "Outgoing",
    "Seen",
    "connection_of",
    "consumer",
    "eventually",
    "produce",
    "produce_transaction",
    "producer",
    "read_all",
]

Headers = tuple[tuple[str, bytes | None], ...]

CREATE_TIME, LOG_APPEND_TIME = 1, 2


class Outgoing(NamedTuple):
    """A record to produce. If `timestamp` is 0, it is the current time. If `partition` is -1, the
    key's hash determines it.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp: int = 0
    partition: int = -1


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    timestamp_type: int


def connection_of(cluster: LocalCluster | str) -> dict[str, Any]:
    """Return librdkafka's connection keys for a cluster. A secured cluster is reached by its
    internal listener.
    """
    if isinstance(cluster, str):
        return {"bootstrap.servers": cluster}
    if cluster.listeners.credentials is None:
        return {"bootstrap.servers": cluster.bootstrap}
    user, password = cluster.listeners.credentials
    return {
        "bootstrap.servers": cluster.bootstrap_for(cluster.listeners.internal),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def producer(
    cluster: LocalCluster | str,
    *,
    codec: str = "none",
    linger_ms: int = 5,
    config: Mapping[str, Any] | None = None,
) -> Producer:
    """Return an idempotent producer. Keys in `config` are librdkafka's, and override the others."""
    return Producer(
        {
            **connection_of(cluster),
            "enable.idempotence": True,
            "compression.codec": codec,
            "linger.ms": linger_ms,
            "log_level": 2,  # some tests kill brokers, so errors of connections are not logged
            **(config or {}),
        }
    )


def produce(
    cluster: LocalCluster | str,
    topic: str,
    records: Iterable[Outgoing],
    *,
    codec: str = "none",
    linger_ms: int = 5,
    config: Mapping[str, Any] | None = None,
) -> int:
    """Produce records in order, wait until all are acknowledged, and return their number."""
    return _send(producer(cluster, codec=codec, linger_ms=linger_ms, config=config), topic, records)


def produce_transaction(
    cluster: LocalCluster | str,
    topic: str,
    records: Iterable[Outgoing],
    *,
    commit: bool,
    before: Callable[[], None] = lambda: None,
) -> int:
    """Produce records in one transaction with a new transactional ID, and return their number.
    `before` is called before the transaction ends.
    """
    transactional_id = f"test-{uuid.uuid4()}"
    client = producer(cluster, config={"transactional.id": transactional_id})
    client.init_transactions(PATIENCE_S)
    client.begin_transaction()
    count = _send(client, topic, records)
    before()
    if commit:
        client.commit_transaction(PATIENCE_S)
    else:
        client.abort_transaction(PATIENCE_S)
    await_markers(cluster, transactional_id)
    return count


def await_markers(cluster: LocalCluster | str, transactional_id: str) -> None:
    """Wait until the markers of the last transaction with this ID are in the logs. The coordinator
    responds before that. This fences the producer of the transaction.
    """
    successor = producer(cluster, config={"transactional.id": transactional_id})
    successor.init_transactions(PATIENCE_S)


def _send(client: Producer, topic: str, records: Iterable[Outgoing]) -> int:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    count = 0
    for record in records:
        while True:
            try:
                client.produce(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    timestamp=record.timestamp,
                    headers=list(record.headers),
                    on_delivery=delivered,
                )
            except BufferError:
                client.poll(0.1)  # the queue is full, so let it drain
            else:
                break
        count += 1
        client.poll(0)
    unsent = client.flush(PATIENCE_S)
    if failures or unsent:
        raise KafkaException(failures[0] if failures else KafkaError(KafkaError._TIMED_OUT))
    return count


def consumer(
    cluster: LocalCluster | str,
    *,
    isolation: str = "read_uncommitted",
    config: Mapping[str, Any] | None = None,
) -> Consumer:
    """Return a consumer with its own group. It commits no offsets, and reports the end of a
    partition.
    """
    return Consumer(
        {
            **connection_of(cluster),
            "group.id": f"test-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "log_level": 2,
            **(config or {}),
        }
    )


def read_all(
    cluster: LocalCluster | str,
    topic: str,
    *,
    isolation: str = "read_uncommitted",
    within: float = PATIENCE_S,
    config: Mapping[str, Any] | None = None,
) -> list[Seen]:
    """Return every record of the topic, ordered by partition and offset.

    A partition is read up to its high watermark, or with `read_committed` up to its last stable
    offset.
    """
    client = consumer(cluster, isolation=isolation, config=config)
    try:
        partitions = client.list_topics(topic, timeout=within).topics[topic].partitions
        unread = set(partitions)
        client.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        seen: list[Seen] = []

        def all_read() -> bool:
            # waits at most 0.02 s, and returns at most this many messages
            for message in client.consume(10_000, 0.02):
                _take(message, seen, unread)
            return not unread

        eventually(all_read, within=within, what=f"end of every partition of {topic}")
        return sorted(seen, key=lambda record: (record.partition, record.offset))
    finally:
        client.close()


def _take(message: Message, seen: list[Seen], unread: set[int]) -> None:
    partition, offset = message.partition(), message.offset()
    if (error := message.error()) is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        unread.discard(-1 if partition is None else partition)
        return
    assert partition is not None
    assert offset is not None
    timestamp_type, timestamp = message.timestamp()
    headers = tuple((name, _as_bytes(value)) for name, value in _pairs(message.headers()))
    seen.append(
        Seen(
            partition=partition,
            offset=offset,
            key=message.key(),
            value=message.value(),
            headers=headers,
            timestamp=timestamp,
            timestamp_type=timestamp_type,
        )
    )


def _pairs(headers: Any) -> list[tuple[str, str | bytes | None]]:
    return list(headers or ())


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
