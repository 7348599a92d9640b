"""Finds when checkpoints and group offsets arrived on the target, by the broker's timestamps in its
logs.

The logs are read after the run, so that it is not disturbed. In the brokers' offsets topic, the
timestamp of a record is the time of the commit. The benchmark creates the checkpoints topic with
`LogAppendTime`.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from twinlog.errors import CorruptData
from twinlog.wire.mm2_records import Checkpoint

__all__ = [
    "GROUP_OFFSETS",
    "Pair",
    "Seen",
    "checkpoints_in",
    "commits_in",
    "first_since",
    "latencies_ms",
    "log_ends",
    "read_log",
]

GROUP_OFFSETS: Final = "__consumer_offsets"
_TIMEOUT_S: Final = 30.0
_OFFSET_KEYS: Final = frozenset({0, 1})
"""Versions of keys of offsets. Other versions are keys of groups."""


class Pair(NamedTuple):
    """A group and a partition."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A checkpoint or a commit in a log."""

    pair: Pair
    offset: int
    """The committed offset. For a checkpoint, the upstream offset."""
    at_ms: int
    """When the broker appended it, in ms since 1970."""


def read_log(bootstrap: str, topic: str) -> list[Message]:
    """Return all records of a topic up to the current ends of its partitions."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0}
    ends = log_ends(bootstrap, topic)
    reader = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    try:
        reader.assign([TopicPartition(topic, each, 0) for each in ends])
        left, found = {part for part, end in ends.items() if end}, list[Message]()
        deadline = time.monotonic() + _TIMEOUT_S
        while left and time.monotonic() < deadline:
            for message in reader.consume(10_000, 0.2):
                if message.error() is None:
                    found.append(message)
            at = {one.partition: one.offset for one in reader.position(reader.assignment())}
            left = {part for part in left if at[part] < ends[part]}
        if left:
            raise TimeoutError(f"{topic} could not be read within {_TIMEOUT_S:.0f} s")
        return found
    finally:
        reader.close()


def log_ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the log end of each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    known = admin.list_topics(topic=topic, timeout=_TIMEOUT_S).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    wanted = {TopicPartition(topic, each): OffsetSpec.latest() for each in known.partitions}
    answers = admin.list_offsets(wanted, request_timeout=_TIMEOUT_S)
    return {tp.partition: int(done.result(_TIMEOUT_S).offset) for tp, done in answers.items()}


def checkpoints_in(messages: Iterable[Message]) -> Iterator[Seen]:
    """Yield the checkpoints in a log."""
    for message in messages:
        try:
            one = Checkpoint.decode(message.key(), message.value())
        except CorruptData:
            continue
        yield Seen(
            pair=Pair(one.group, one.topic_partition.topic, one.topic_partition.partition),
            offset=one.upstream_offset,
            at_ms=message.timestamp()[1],
        )


def commits_in(messages: Iterable[Message]) -> Iterator[Seen]:
    """Yield the committed offsets in a log of the offsets topic. Deletions are left out."""
    for message in messages:
        key, value = message.key(), message.value()
        if not key or not value or struct.unpack_from(">h", key)[0] not in _OFFSET_KEYS:
            continue
        group, at = _string(key, 2)
        topic, at = _string(key, at)
        (partition,) = struct.unpack_from(">i", key, at)
        # every version of the value begins with these fields
        _, offset = struct.unpack_from(">hq", value)
        yield Seen(pair=Pair(group, topic, partition), offset=offset, at_ms=message.timestamp()[1])


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + size].decode(), at + 2 + size


def first_since(seen: Iterable[Seen], groups: str, since_ms: int) -> dict[Pair, int]:
    """Return the first time, at or after `since_ms`, of each pair whose group's name begins with
    `groups`.
    """
    out: dict[Pair, int] = {}
    for one in seen:
        if one.at_ms >= since_ms and one.pair.group.startswith(groups):
            out[one.pair] = min(one.at_ms, out.get(one.pair, one.at_ms))
    return out


def latencies_ms(commits: Mapping[int, float], seen: Iterable[Seen], group: str) -> list[float]:
    """Return the time from each commit (offset, ms) to the first checkpoint with this or a later
    offset.
    """
    reached = sorted((one.at_ms, one.offset) for one in seen if one.pair.group == group)
    out = []
    for offset, at_ms in commits.items():
        found = next((at for at, upstream in reached if upstream >= offset), None)
        if found is not None:
            out.append(max(0.0, found - at_ms))
    return out
