"""Offsets of groups and checkpoints, as they are read from the target's logs."""

from __future__ import annotations

import struct
from typing import cast

from confluent_kafka import Message

from benchmarks.group_logs import (
    Pair,
    Seen,
    checkpoints_in,
    commits_in,
    first_since,
    latencies_ms,
)
from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import Checkpoint


class Logged:
    """A record as a consumer returns it."""

    def __init__(self, key: bytes | None, value: bytes | None, at_ms: int) -> None:
        self._key, self._value, self._at_ms = key, value, at_ms

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at_ms


def messages(*logged: Logged) -> list[Message]:
    return cast("list[Message]", list(logged))


def offset_key(version: int, group: str, topic: str, partition: int) -> bytes:
    text = b"".join(struct.pack(">h", len(one)) + one.encode() for one in (group, topic))
    return struct.pack(">h", version) + text + struct.pack(">i", partition)


def test_commits_are_distinguished_from_groups_and_deletions() -> None:
    value = struct.pack(">hq", 4, 77) + b"whatever follows"
    found = commits_in(
        messages(
            Logged(offset_key(1, "shop", "orders", 3), value, 1000),
            Logged(offset_key(1, "shop", "orders", 3), None, 1001),
            Logged(struct.pack(">hh", 2, 4) + b"shop", b"members", 1002),
        )
    )
    assert list(found) == [Seen(pair=Pair("shop", "orders", 3), offset=77, at_ms=1000)]


def test_checkpoints_have_the_upstream_offset_and_the_brokers_time() -> None:
    one = Checkpoint(
        group="shop",
        topic_partition=TopicPartition("A.orders", 3),
        upstream_offset=50,
        downstream_offset=40,
        metadata="",
    )
    found = checkpoints_in(
        messages(Logged(one.key(), one.value(), 9), Logged(b"no", b"checkpoint", 10))
    )
    assert list(found) == [Seen(pair=Pair("shop", "A.orders", 3), offset=50, at_ms=9)]


def seen(group: str, offset: int, at_ms: int, partition: int = 0) -> Seen:
    return Seen(pair=Pair(group, "t", partition), offset=offset, at_ms=at_ms)


def test_the_first_moment_of_each_pair_that_is_late_enough() -> None:
    found = first_since(
        [seen("A-1", 1, 90), seen("A-1", 1, 120), seen("A-1", 1, 110), seen("B-1", 1, 130)],
        "A-",
        100,
    )
    assert found == {Pair("A-1", "t", 0): 110}


def test_a_later_checkpoint_holds_earlier_commits_and_some_have_none() -> None:
    checkpoints = [seen("head", 2, 1400), seen("head", 1, 1250), seen("other", 9, 1000)]
    commits = {1: 1100.0, 2: 1200.0, 3: 1300.0}
    assert latencies_ms(commits, checkpoints, "head") == [150, 200]
