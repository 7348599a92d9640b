"""Compacted topics that hold our own state: made once, appended to, read to their end."""

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
"""The cleaner leaves the newest segment alone, which by default is one of 1 GB; services that limit
this setting take no less.
"""
READ_BYTES: Final = 4 * 1024 * 1024
ROWS_AT_ONCE: Final = 500
"""In one batch, far below what a topic takes by default."""


def ensure_compacted_topic(
    client: ClusterClient,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    on_unseen: Callable[[Unauthorized], None] | None = None,
) -> int:
    """Create the topic where it is missing; its number of partitions, which may be another one.

    A topic that exists without `cleanup.policy=compact` is an error: the cluster would delete our
    state. Where our user may not see that, `on_unseen` hears it, or else it is raised.
    """
    # asked first: a user without the right to create may find it, and so may we while the
    # controller is away
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
    # one that was there may have partitions without a leader: others are not to wait for them
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
    """Raises ConfigError (`INTERNAL_TOPIC_NOT_COMPACTED`) where the cluster may delete rows."""
    configs = or_raise(describe_topic_configs(client, [name])[name])
    policy = next((entry.value for entry in configs if entry.name == POLICY), None)
    if policy != "compact":
        raise ConfigError(
            f"cluster {client.alias}: topic {name} has {POLICY}={policy}, so the cluster deletes "
            f"what Twinlog keeps there, and may have begun to: set {POLICY}=compact on it",
            code="INTERNAL_TOPIC_NOT_COMPACTED",
        )


def compact_again(client: ClusterClient, name: str) -> None:
    """Set the policy of a topic of ours. Raises what the cluster refuses it with."""
    refused = alter_topic_configs(client, {name: [ConfigChange(POLICY, "compact")]})
    if name in refused:
        raise refused[name]


def append(client: ClusterClient, tp: TopicPartition, records: Sequence[Record]) -> int:
    """Append the records as one batch, acknowledged by all in-sync replicas; its base offset.

    Repeated until it is acknowledged: after a lost answer the records may be there twice.
    """
    batch = encode_batch(records, codec=Codec.NONE)
    return client.retrying(lambda: produce_batch(client, tp, batch))


def append_rows(
    client: ClusterClient,
    tp: TopicPartition,
    rows: Sequence[tuple[bytes, bytes | None]],
    now_ms: int,
) -> None:
    """Append (key, value) in batches that every broker takes; durable when this returns. A value
    of None is a tombstone.

    After a lost answer rows may be there twice. So not for rows of which the first one counts: when
    another's row lies between the two, the log cleaner leaves that one as the first.
    """
    for records in _batches(rows, now_ms):
        append(client, tp, records)


def append_once(
    client: ClusterClient,
    tp: TopicPartition,
    rows: Sequence[tuple[bytes, bytes]],
    now_ms: int,
) -> None:
    """As `append_rows`, and no row is there twice: under a producer id of its own the leader knows
    a repeat, whichever of the two arrives first.
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
    """Records from that offset (or the log start, where that is later) to the high watermark.

    The end is the high watermark at the start: what is appended meanwhile is not waited for.
    """
    tp = TopicPartition(topic, partition)
    position = from_offset
    if end is None:
        (end,) = ends_of_logs(client, [tp]).values()
        if position > end:
            end = position + 1  # the broker is to refuse it
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
                f"watermark {end}: look at the logs of its leader"
            )


def ends_of_logs(client: ClusterClient, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """High watermarks that include all that was ever acknowledged.

    ListOffsets waits for that; the watermark in a Fetch answer of a new leader may be an older one.
    """
    found = list_offsets(client, tps, LATEST)
    return {tp: or_raise(one).offset for tp, one in found.items()}


def _log_start_above(
    client: ClusterClient, tp: TopicPartition, position: int, refusal: TwinlogError
) -> int:
    """The log start where records were deleted; raises where it is the end that moved back."""
    start = offset_at(client, tp, EARLIEST)
    if start <= position:
        raise refusal
    return start
