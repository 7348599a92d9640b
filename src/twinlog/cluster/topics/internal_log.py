"""Creates, reads and appends to the compacted topics that contain Twinlog's own state.

The state topic and the offset map are tables. The last record of a key is the row of this key, and
a null value deletes the row. So a repeated append is harmless unless another row of the same key is
between the two copies. `append` and `append_rows` may repeat an append; `append_once` does not.

The topic's cleanup.policy must be exactly `compact`. With `delete`, the cluster would remove rows
after the retention time, and with these rows the knowledge of which records were copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, list_offsets, offset_at
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.cluster.logs.raw_log import fetch_records, produce_batch, shorter_log_error
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
from twinlog.model import Isolation, TopicPartition, batched
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from twinlog.wire.record_batch import Codec, read_headers, verify_crc
from twinlog.wire.records import Record, decode_batch, encode_batch

POLICY: Final = "cleanup.policy"
SEGMENT_BYTES: Final = 50 * 1024 * 1024
"""Segment size of these topics. The log cleaner never cleans the active segment, which has up to 1
GB by default. Kafka services that limit this config accept no smaller value.
"""
READ_BYTES: Final = 4 * 1024 * 1024
ROWS_AT_ONCE: Final = 500
"""Maximum number of rows in one batch. The batch is far below the default max.message.bytes."""


def ensure_compacted_topic(
    client: ClusterClient,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    on_unseen: Callable[[Unauthorized], None] | None = None,
) -> int:
    """Return the topic's partition count, creating the topic if it does not exist.

    An existing topic may have another count than `partitions`. Raises ConfigError if an existing
    topic does not have `cleanup.policy=compact`, because the cluster would delete state. If the
    user is not permitted to read the policy, `on_unseen` is called, or Unauthorized is raised if
    `on_unseen` is None.
    """
    # read metadata before trying to create the topic: this needs no permission to create it, and no
    # controller
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
    # do not wait for the leaders of an existing topic: if one partition has no leader, flows that
    # use other partitions must not wait for it
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
    """Raise ConfigError (INTERNAL_TOPIC_NOT_COMPACTED) unless cleanup.policy is `compact`."""
    configs = or_raise(describe_topic_configs(client, [name])[name])
    policy = next((entry.value for entry in configs if entry.name == POLICY), None)
    if policy != "compact":
        raise ConfigError(
            f"cluster {client.alias}: topic {name} has {POLICY}={policy}, so the cluster deletes "
            f"Twinlog's state, or has already begun to: set {POLICY}=compact on this topic",
            code="INTERNAL_TOPIC_NOT_COMPACTED",
        )


def compact_again(client: ClusterClient, name: str) -> None:
    """Set cleanup.policy of an internal topic to `compact` again. Raises the cluster's error."""
    refused = alter_topic_configs(client, {name: [ConfigChange(POLICY, "compact")]})
    if name in refused:
        raise refused[name]


def append(client: ClusterClient, tp: TopicPartition, records: Sequence[Record]) -> int:
    """Append the records as one batch (acks=all), and return its base offset.

    The request is repeated until it is acknowledged, so a lost response may duplicate the records.
    """
    batch = encode_batch(records, codec=Codec.NONE)
    return client.retrying(lambda: produce_batch(client, tp, batch))


def append_rows(
    client: ClusterClient,
    tp: TopicPartition,
    rows: Sequence[tuple[bytes, bytes | None]],
    at_ms: int | None = None,
) -> None:
    """Append rows (key, value). On return they are durable. A value of None is a tombstone.
    `at_ms`: their timestamp, or None for the current time.

    A lost response may duplicate rows. So this function must not be used if readers rely on which
    row of a key was first. If another process's row were between the two copies, the log cleaner
    would remove the first copy, and the other process's row would become the first.
    """
    for records in _batches(rows, at_ms):
        append(client, tp, records)


def append_once(
    client: ClusterClient, tp: TopicPartition, rows: Sequence[tuple[bytes, bytes]]
) -> None:
    """Append rows like `append_rows`, but never twice: a new producer ID lets the partition's
    leader recognize a repeated batch.
    """
    producer = init_producer_id(client)
    sequence = 0
    for records in _batches(rows, None):
        batch = encode_batch(
            records,
            codec=Codec.NONE,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
        )
        client.retrying(partial(produce_batch, client, tp, batch))
        sequence += len(records)


def _batches(
    rows: Sequence[tuple[bytes, bytes | None]], at_ms: int | None
) -> Iterator[list[Record]]:
    at_ms = int(time.time() * 1000) if at_ms is None else at_ms
    for portion in batched(rows, ROWS_AT_ONCE):
        yield [
            Record(offset=index, timestamp=at_ms, key=key, value=value)
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
    """Yield the records from `from_offset`, or from the log start if it is later, to `end`. None
    means the high watermark when reading begins.

    Later records are not waited for, but are also yielded if the last response contains them.
    """
    tp = TopicPartition(topic, partition)
    position = from_offset
    if end is None:
        (end,) = readable_ends(client, [tp]).values()
        if position > end:
            end = position + 1  # so that a fetch is sent, which fails with OFFSET_OUT_OF_RANGE
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
            if answer.high_watermark < end:  # a new leader does not know the high watermark yet
                raise shorter_log_error(client, tp, position)
            raise CorruptData(
                f"cluster {client.alias}: {tp} returns no batch at offset {position}, although its "
                f"high watermark is {end}: check the log files on the partition's leader"
            )


def readable_ends(
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Return the end of each log as consumers see it: the high watermark, or the last stable offset
    with READ_COMMITTED. Raises the error of the first log that cannot be queried.

    Every acknowledged record is below the high watermark. A new leader may at first know only an
    older high watermark. Its Fetch responses contain the old one, but it rejects ListOffsets
    (OFFSET_NOT_AVAILABLE), so the request is repeated.
    """
    offsets = list_offsets(client, tps, LATEST, isolation=isolation)
    return {tp: or_raise(result).offset for tp, result in offsets.items()}


def _log_start_above(
    client: ClusterClient, tp: TopicPartition, position: int, refusal: TwinlogError
) -> int:
    """Return the log start if the record at `position` was deleted. Raise `refusal` if not, because
    then `position` is after the end of the log.
    """
    start = offset_at(client, tp, EARLIEST)
    if start <= position:
        raise refusal
    return start
