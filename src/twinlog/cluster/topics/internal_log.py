"""Compacted topics with Twinlog's own state: created once, appended to, read to their end.

The state topic and the offset map are tables: the last record of a key is its row, and a null value
deletes it. So a repeated append is harmless as long as no other row of the same key is between the
two. `append` and `append_rows` rely on that, and `append_once` does not.

The topic's policy must be exactly `compact`. With `delete`, the cluster would remove rows after a
time, and with them the knowledge of which records were copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, list_offsets, offset_at
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.cluster.logs.raw_log import fetch_records, produce_batch
from twinlog.cluster.topics.configs import ConfigChange, alter_topic_configs, describe_topic_configs
from twinlog.cluster.topics.topic_admin import create_topic, wait_for_topic
from twinlog.errors import (
    BrokerRefused,
    ConfigError,
    CorruptData,
    TwinlogError,
    Unauthorized,
    or_raise,
)
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from twinlog.wire.record_batch import Codec, read_headers, verify_crc
from twinlog.wire.records import Record, decode_batch, encode_batch

POLICY: Final = "cleanup.policy"
SEGMENT_BYTES: Final = 50 * 1024 * 1024
"""Segment size of these topics. The log cleaner never cleans the newest segment, which has up to
1 GB by default. Services that limit this setting accept no smaller value.
"""
READ_BYTES: Final = 4 * 1024 * 1024
ROWS_AT_ONCE: Final = 500
"""Rows in one batch, which is far below the default size limit of a topic."""


def ensure_compacted_topic(
    client: ClusterClient,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    on_unseen: Callable[[Unauthorized], None] | None = None,
) -> int:
    """Return the topic's partition count, creating the topic if it does not exist.

    An existing topic may have another count than `partitions`. Raises ConfigError if it does not
    have `cleanup.policy=compact`, because the cluster would delete state. If the user may not read
    the policy, `on_unseen` is called; if that is None, Unauthorized is raised.
    """
    # metadata first: it needs no permission to create the topic, and no controller
    error = client.metadata([name]).topics[name].error
    exists = error not in (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED)
    if not exists:
        created = create_topic(
            client,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs={POLICY: "compact", "segment.bytes": str(SEGMENT_BYTES)},
        )
        exists = not created.is_new
    # partitions of an existing topic may have no leader, and users of the others must not wait
    topic = client.metadata([name]).topics[name] if exists else wait_for_topic(client, name)
    if topic.error:
        topic = wait_for_topic(client, name)
    if exists:
        try:
            check_policy(client, name)
        except Unauthorized as error:
            if on_unseen is None:
                raise
            on_unseen(error)
    return len(topic.partitions)


def check_policy(client: ClusterClient, name: str) -> None:
    """Raise ConfigError (INTERNAL_TOPIC_NOT_COMPACTED) unless the policy is `compact`."""
    configs = or_raise(describe_topic_configs(client, [name])[name])
    policy = next((entry.value for entry in configs if entry.name == POLICY), None)
    if policy != "compact":
        raise ConfigError(
            f"cluster {client.alias}: topic {name} has {POLICY}={policy}, so the cluster deletes "
            f"Twinlog's state in it, or has already begun to: set {POLICY}=compact on it",
            code="INTERNAL_TOPIC_NOT_COMPACTED",
        )


def compact_again(client: ClusterClient, name: str) -> None:
    """Set the policy of an internal topic to `compact` again. Raises the cluster's error."""
    refused = alter_topic_configs(client, {name: [ConfigChange(POLICY, "compact")]})
    if name in refused:
        raise refused[name]


def append(client: ClusterClient, tp: TopicPartition, records: Sequence[Record]) -> int:
    """Append the records as one batch (acks=all), and return its base offset.

    Retried until it is acknowledged, so a lost response may duplicate the records.
    """
    batch = encode_batch(records, codec=Codec.NONE)
    return client.retrying(lambda: produce_batch(client, tp, batch))


def append_rows(
    client: ClusterClient,
    tp: TopicPartition,
    rows: Sequence[tuple[bytes, bytes | None]],
    now_ms: int,
) -> None:
    """Append rows of (key, value), durably on return. A value of None is a tombstone.

    A lost response may duplicate rows. So this must not be used if the first row of a key counts:
    if another process's row is between the two, the log cleaner removes the first one, and leaves
    the other process's row as the first.
    """
    for records in _batches(rows, now_ms):
        append(client, tp, records)


def append_once(
    client: ClusterClient,
    tp: TopicPartition,
    rows: Sequence[tuple[bytes, bytes]],
    now_ms: int,
) -> None:
    """Like `append_rows`, but without duplicates. It uses a new producer ID, so that the leader
    recognizes a repeated batch.
    """
    producer = init_producer_id(client)
    sequence = 0
    for records in _batches(rows, now_ms):
        batch = encode_batch(
            records,
            codec=Codec.NONE,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
        )
        client.retrying(partial(produce_batch, client, tp, batch))
        sequence += len(records)


def _batches(rows: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> Iterator[list[Record]]:
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        portion = rows[begin : begin + ROWS_AT_ONCE]
        yield [
            Record(offset=index, timestamp=now_ms, key=key, value=value)
            for index, (key, value) in enumerate(portion)
        ]


def read_to_end(
    client: ClusterClient,
    topic: str,
    partition: int,
    from_offset: int = 0,
    *,
    end: int | None = None,
    timeout_s: float | None = None,
) -> Iterator[Record]:
    """Yield records from that offset, or from the log start if that is later, to `end`.

    `end` None is the high watermark when reading begins. Later records are not waited for.
    """
    tp = TopicPartition(topic, partition)
    position = from_offset
    if end is None:
        (end,) = readable_ends(client, [tp]).values()
        if position > end:
            end = position + 1  # the broker then rejects the offset
    while position < end:
        answer = fetch_records(client, {tp: (position, READ_BYTES)}, timeout_s=timeout_s)[tp]
        if isinstance(answer, BrokerRefused) and answer.code == "OFFSET_OUT_OF_RANGE":
            position = _log_start_above(client, tp, position, answer)
            continue
        if isinstance(answer, TwinlogError):
            raise answer
        before = position
        for header, start in read_headers(answer.records):
            verify_crc(answer.records, start, header)
            if header.next_offset > position and not header.is_control:
                batch = answer.records[start : start + header.length]
                yield from (r for r in decode_batch(batch) if before <= r.offset)
            position = max(position, header.next_offset)
        if position == before < end:
            raise CorruptData(
                f"cluster {client.alias}: {tp} returns no batch at offset {position}, although its "
                f"high watermark is {end}: check the log files of its leader"
            )


def readable_ends(
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Return where consumers find the end of each log: its high watermark, or under read_committed
    its last stable offset. Raises the error of the first log that cannot be queried.

    The high watermark includes every acknowledged record. A new leader may only know an older one
    at first: Fetch responses have it, but ListOffsets is rejected (OFFSET_NOT_AVAILABLE).
    """
    offsets = list_offsets(client, tps, LATEST, isolation=isolation)
    return {tp: or_raise(result).offset for tp, result in offsets.items()}


def _log_start_above(
    client: ClusterClient, tp: TopicPartition, position: int, refusal: TwinlogError
) -> int:
    """Return the log start if `position` was deleted. Otherwise the log's end has moved back: raise
    `refusal`.
    """
    start = offset_at(client, tp, EARLIEST)
    if start <= position:
        raise refusal
    return start
