"""Compacted topics with Twinlog's own state: created once, appended to, read to their end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, list_offsets, offset_at
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_records, produce_batch
from twinlog.cluster.topics.alter_configs import ConfigChange, alter_topic_configs
from twinlog.cluster.topics.configs import describe_topic_configs
from twinlog.cluster.topics.topic_admin import create_topic, wait_for_topic
from twinlog.errors import (
    BrokerRefused,
    ConfigError,
    CorruptData,
    TwinlogError,
    Unauthorized,
    or_raise,
)
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from twinlog.wire.record_batch import Codec, read_headers, verify_crc
from twinlog.wire.records import Record, decode_batch, encode_batch

__all__ = [
    "FetchedRecords",
    "append",
    "append_once",
    "append_rows",
    "check_policy",
    "compact_again",
    "ends_of_logs",
    "ensure_compacted_topic",
    "fetch_records",
    "produce_batch",
    "read_to_end",
]

POLICY: Final = "cleanup.policy"
SEGMENT_BYTES: Final = 50 * 1024 * 1024
"""The cleaner does not touch the newest segment, which by default has 1 GB. Services that limit
this setting accept no smaller value.
"""
READ_BYTES: Final = 4 * 1024 * 1024
ROWS_AT_ONCE: Final = 500
"""In one batch, far below the default limit of a topic."""


def ensure_compacted_topic(
    client: ClusterClient,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    on_unseen: Callable[[Unauthorized], None] | None = None,
) -> int:
    """Create the topic if it is missing. Returns its partition count, which may differ.

    A topic that exists without `cleanup.policy=compact` is an error, because the cluster would
    delete state. If Twinlog's user may not read the policy, `on_unseen` is called, or else the
    error is raised.
    """
    # queried first: a user without the right to create may find it, and it can be found while the
    # controller is down
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
    # an existing topic may have partitions without a leader: others must not wait for them
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
    """Raise ConfigError (`INTERNAL_TOPIC_NOT_COMPACTED`) if the cluster may delete rows."""
    configs = or_raise(describe_topic_configs(client, [name])[name])
    policy = next((entry.value for entry in configs if entry.name == POLICY), None)
    if policy != "compact":
        raise ConfigError(
            f"cluster {client.alias}: topic {name} has {POLICY}={policy}, so the cluster deletes "
            f"Twinlog's state in it, and may have begun to: set {POLICY}=compact on it",
            code="INTERNAL_TOPIC_NOT_COMPACTED",
        )


def compact_again(client: ClusterClient, name: str) -> None:
    """Set the policy of an internal topic. Raises the cluster's error."""
    refused = alter_topic_configs(client, {name: [ConfigChange(POLICY, "compact")]})
    if name in refused:
        raise refused[name]


def append(client: ClusterClient, tp: TopicPartition, records: Sequence[Record]) -> int:
    """Append the records as one batch, acknowledged by all in-sync replicas, and return its base
    offset.

    Repeated until it is acknowledged: after a lost response the records may be duplicated.
    """
    batch = encode_batch(records, codec=Codec.NONE)
    return client.retrying(lambda: produce_batch(client, tp, batch))


def append_rows(
    client: ClusterClient,
    tp: TopicPartition,
    rows: Sequence[tuple[bytes, bytes | None]],
    now_ms: int,
) -> None:
    """Append (key, value) in batches that every broker accepts. They are durable on return. A value
    of None is a tombstone.

    After a lost response rows may be duplicated. So it must not be used for rows of which the first
    one counts: if another process's row is between the two, the log cleaner leaves that one as the
    first.
    """
    for records in _batches(rows, now_ms):
        append(client, tp, records)


def append_once(
    client: ClusterClient,
    tp: TopicPartition,
    rows: Sequence[tuple[bytes, bytes]],
    now_ms: int,
) -> None:
    """Like `append_rows`, but without duplicates: with a separate producer ID, the leader
    recognizes a repeat, whichever of the two arrives first.
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
        some = rows[begin : begin + ROWS_AT_ONCE]
        yield [
            Record(offset=at, timestamp=now_ms, key=key, value=value)
            for at, (key, value) in enumerate(some)
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
    """Yield records from that offset (or the log start, if later) to the high watermark.

    The end is the high watermark at the start. Later records are not waited for.
    """
    tp = TopicPartition(topic, partition)
    position = from_offset
    if end is None:
        (end,) = ends_of_logs(client, [tp]).values()
        if position > end:
            end = position + 1  # let the broker reject it
    while position < end:
        answer = fetch_records(client, {tp: (position, READ_BYTES)}, timeout_s=timeout_s)[tp]
        if isinstance(answer, BrokerRefused) and answer.code == "OFFSET_OUT_OF_RANGE":
            position = _log_start_above(client, tp, position, answer)
            continue
        if isinstance(answer, TwinlogError):
            raise answer
        before = position
        for header, at in read_headers(answer.records):
            verify_crc(answer.records, at, header)
            if header.next_offset > position and not header.is_control:
                batch = answer.records[at : at + header.length]
                yield from (r for r in decode_batch(batch) if before <= r.offset)
            position = max(position, header.next_offset)
        if position == before < end:
            raise CorruptData(
                f"cluster {client.alias}: {tp} has no batch at offset {position}, below its high "
                f"watermark {end}: check the log files of its leader"
            )


def ends_of_logs(client: ClusterClient, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return high watermarks that include everything ever acknowledged.

    ListOffsets waits for that. The watermark in a Fetch response of a new leader may be older.
    """
    found = list_offsets(client, tps, LATEST)
    return {tp: or_raise(one).offset for tp, one in found.items()}


def _log_start_above(
    client: ClusterClient, tp: TopicPartition, position: int, refusal: TwinlogError
) -> int:
    """Return the log start if records were deleted. Raises if the end moved back."""
    start = offset_at(client, tp, EARLIEST)
    if start <= position:
        raise refusal
    return start
