"""Produce requests with one whole batch per partition, for many partitions.

Version 13 identifies topics by ID. So a batch for a topic that was re-created is rejected
(UNKNOWN_TOPIC_ID) instead of being appended to the new topic. Version 9 uses names. `acks` is
always `all`, because a producer ID requires that.

Formats: ProduceRequest.json and ProduceResponse.json of Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from twinlog.model import TopicId, TopicPartition
from twinlog.wire.primitives import EMPTY_TAGS, Reader, compact_string, uvarint
from twinlog.wire.record_batch import Buffer

PRODUCE: Final = 0
VERSION_BY_ID: Final = 13
VERSION_BY_NAME: Final = 9
ACKS_ALL: Final = -1

_ACKS_TIMEOUT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_ANSWER = struct.Struct(">ihqqqBBB")
_REST_BYTES = 3
_NOTHING_MORE = [1, 0, 0]
"""The three encoded numbers at the end of a result that has no invalid records, message or tags."""

# requests and responses for one batch by topic ID, which are the most frequent ones by far
_ONE = 2
"""Encoded length of a compact array with one element."""
_ONE_REQUEST = struct.Struct(">BhiB16sBi")
_ONE_REQUEST_END = 3 * EMPTY_TAGS
_ONE_ANSWER = struct.Struct(">B16sBihqqqBBBBiB")


class ProducedPartition(Struct, frozen=True, kw_only=True):
    """The broker's result for one batch.

    `log_append_time_ms` is -1 if the batch was appended to a CreateTime topic. If the broker
    recognised the batch as a repeat, `log_append_time_ms` is the timestamp of the batch in the log,
    which shows that nothing was appended.
    """

    tp: TopicPartition
    error: int
    base_offset: int
    log_append_time_ms: int
    message: str | None
    record: int = -1
    """Index of the first invalid record in a rejected batch, or -1 if unknown."""


def produce_request(
    version: int,
    batches: Mapping[TopicPartition, Buffer],
    topic_ids: Mapping[str, TopicId],
    timeout_ms: int,
) -> list[Buffer]:
    """Return the body of a request as a list of buffers, so that batches need not be copied."""
    if len(batches) == 1 and version >= VERSION_BY_ID:
        (((topic, partition), batch),) = batches.items()
        raw = topic_ids[topic].raw
        before_batch = _ONE_REQUEST.pack(0, ACKS_ALL, timeout_ms, _ONE, raw, _ONE, partition)
        return [before_batch + uvarint(len(batch) + 1), batch, _ONE_REQUEST_END]
    by_topic: dict[str, list[tuple[int, Buffer]]] = {}
    for (topic, partition), batch in batches.items():
        by_topic.setdefault(topic, []).append((partition, batch))
    head = b"\x00" + _ACKS_TIMEOUT.pack(ACKS_ALL, timeout_ms) + uvarint(len(by_topic) + 1)
    parts: list[Buffer] = []
    for topic, topic_batches in by_topic.items():
        name = topic_ids[topic].raw if version >= VERSION_BY_ID else compact_string(topic)
        head += name + uvarint(len(topic_batches) + 1)
        for partition, batch in topic_batches:
            parts += (head + _INT32.pack(partition) + uvarint(len(batch) + 1), batch)
            head = EMPTY_TAGS
        head += EMPTY_TAGS
    parts.append(head + EMPTY_TAGS)
    return parts


def produce_answer(
    version: int, view: memoryview, names: Mapping[bytes, str]
) -> tuple[int, Sequence[ProducedPartition]]:
    """Return (throttle time in ms, one result per batch). `names` has topic names by raw ID."""
    if len(view) == _ONE_ANSWER.size and version >= VERSION_BY_ID:
        (topics, raw, partitions, partition, error, base_offset, append_time, _,
         *rest, throttle_ms, tags) = _ONE_ANSWER.unpack(view)  # fmt: skip
        if topics == partitions == _ONE and rest == [*_NOTHING_MORE, 0] and not tags:
            produced = ProducedPartition(
                tp=TopicPartition(names.get(raw, raw.hex()), partition),
                error=error,
                base_offset=base_offset,
                log_append_time_ms=append_time,
                message=None,
            )
            return throttle_ms, (produced,)
    reader = Reader(view)
    answers: list[ProducedPartition] = []
    for _ in range(reader.array_length()):
        topic = reader.topic(names if version >= VERSION_BY_ID else None)
        for _ in range(reader.array_length()):
            partition, error, base_offset, append_time, _, *rest = reader.unpack(_ANSWER)
            record, message = -1, None
            if rest != _NOTHING_MORE:
                reader.pos -= _REST_BYTES
                record, message = _record_errors(reader)
                message = reader.compact_text() or message
                reader.tags()
            answers.append(
                ProducedPartition(
                    tp=TopicPartition(topic, partition),
                    error=error,
                    base_offset=base_offset,
                    log_append_time_ms=append_time,
                    message=message,
                    record=record,
                )
            )
        reader.tags()
    (throttle_ms,) = reader.unpack(_INT32)
    reader.tags()
    return throttle_ms, answers


def _record_errors(reader: Reader) -> tuple[int, str | None]:
    first, message = -1, None
    for _ in range(reader.array_length()):
        (index,) = reader.unpack(_INT32)
        text = reader.compact_text()
        reader.tags()
        if message is None:
            first, message = int(index), f"record {index} of the batch: {text or 'rejected'}"
    return first, message
