"""Groups go over to the other cluster and back: what their application reads has no hole and no
repetition, wherever in a topic with gaps each of them stopped.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_STORED,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as Assigned

from tests.support.client import Outgoing, consumer, eventually, produce, produce_transaction
from tests.support.mirror import Mirror
from tests.support.topics import admin, create_topic, end_offsets
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

CLEAN_SOON = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "100",
}


class Pair:
    """Two clusters that mirror each other, under names of this test's own."""

    def __init__(
        self,
        folder: Path,
        a: LocalCluster,
        b: LocalCluster,
        *,
        sync: bool = True,
        both_ways: bool = True,
    ) -> None:
        mark = uuid.uuid4().hex[:8]
        self.a, self.b = a, b
        self.topic, self.alias_a, self.alias_b = f"orders-{mark}", f"a{mark}", f"b{mark}"
        self.remote = f"{self.alias_a}.{self.topic}"
        self.group = f"app-{mark}"
        self.config = folder / "mm2.properties"
        self.config.write_text(
            f"clusters = {self.alias_a}, {self.alias_b}\n"
            f"{self.alias_a}.bootstrap.servers = {a.bootstrap}\n"
            f"{self.alias_b}.bootstrap.servers = {b.bootstrap}\n"
            f"{self.alias_a}->{self.alias_b}.enabled = true\n"
            f"{self.alias_b}->{self.alias_a}.enabled = {str(both_ways).lower()}\n"
            f"topics = {self.topic}\ngroups = {self.group}.*\nreplication.factor = 1\n"
            f"sync.group.offsets.enabled = {str(sync).lower()}\n"
            "sync.group.offsets.interval.seconds = 1\n"
            "emit.checkpoints.interval.seconds = 1\nrefresh.groups.interval.seconds = 1\n"
        )

    def stop_at(self, offset: int) -> str:
        """A group whose application went as far as this offset of the topic."""
        group = f"{self.group}-{offset}"
        commit(self.a, group, self.topic, offset)
        return group


def commit(
    cluster: LocalCluster, group: str, topic: str, offset: int, *, metadata: str = ""
) -> None:
    """Set a group's offset as an operator does, without being in it."""
    client = admin(cluster)

    def is_taken() -> bool:
        at = ConsumerGroupTopicPartitions(group, [Assigned(topic, 0, offset, metadata=metadata)])
        answers = [done.result(30) for done in client.alter_consumer_group_offsets([at]).values()]
        # a coordinator that is still coming up says so in here only
        return all(one.error is None for answer in answers for one in answer.topic_partitions)

    eventually(is_taken)


def committed(cluster: LocalCluster, group: str, topic: str) -> int:
    """-1 where the group has no offset, or its coordinator is not up yet."""
    client = consumer(cluster, config={"group.id": group})
    try:
        (found,) = client.committed([Assigned(topic, 0)], timeout=30)
        return max(found.offset, -1)
    except KafkaException:
        return -1
    finally:
        client.close()


def goes_on(cluster: LocalCluster, group: str, topic: str, at_most: int = 10_000) -> list[bytes]:
    """What the application reads from where its group stands; it commits what it has read."""
    client = consumer(cluster, isolation="read_committed", config={"group.id": group})
    values: list[bytes] = []
    try:
        client.assign([Assigned(topic, 0, OFFSET_STORED)])

        def is_done() -> bool:
            for message in client.consume(1, 0.5):
                if is_end(message):
                    return True
                values.append(message.value() or b"")
                client.commit(message=message, asynchronous=False)
            return len(values) >= at_most

        eventually(is_done)
        return values
    finally:
        client.close()


def is_end(message: Message) -> bool:
    error = message.error()
    assert error is None or error.code() == KafkaError._PARTITION_EOF, error
    return error is not None


def numbered(first: int, count: int) -> list[Outgoing]:
    return [Outgoing(key=b"%d" % n, value=b"%d" % n) for n in range(first, first + count)]


def with_transactions(pair: Pair) -> None:
    """Markers behind transactions, and rolled back records, between others and at the end."""
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, numbered(0, 3))
    produce_transaction(pair.a, pair.topic, numbered(100, 2), commit=False)
    produce_transaction(pair.a, pair.topic, numbered(3, 2), commit=True)
    produce(pair.a, pair.topic, numbered(5, 2))
    produce_transaction(pair.a, pair.topic, numbered(7, 1), commit=True)
    produce_transaction(pair.a, pair.topic, numbered(200, 1), commit=False)


def with_compaction(pair: Pair) -> None:
    """Records that were overwritten later, cleaned away before the copy."""
    create_topic(pair.a, pair.topic, configs=CLEAN_SOON)
    keys = [0, 1, 1, 2, 0, 3, 4, 4, 4, 5, 2, 6]
    for value, key in enumerate(keys):
        produce(pair.a, pair.topic, [Outgoing(key=b"%d" % key, value=b"%d" % value)])

    def is_compacted() -> bool:
        produce(pair.a, pair.topic, [Outgoing(key=uuid.uuid4().bytes, value=b"last")])
        group = f"look-{uuid.uuid4()}"
        commit(pair.a, group, pair.topic, 0)
        found = goes_on(pair.a, group, pair.topic)
        return [value for value in found if value != b"last"] == b"2 4 5 8 9 10 11".split()

    eventually(is_compacted, what="compaction")


@pytest.mark.parametrize("fill", [with_transactions, with_compaction])
def test_every_group_goes_on_at_exactly_the_next_record_there_and_back(
    fill: Callable[[Pair], None],
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster)
    fill(pair)
    end = end_offsets(pair.a, pair.topic)[0]
    groups = [pair.stop_at(offset) for offset in range(end + 1)]
    # what each would have read on A, seen by a group beside it
    expected = []
    for offset in range(end + 1):
        commit(pair.a, f"beside-{pair.group}", pair.topic, offset)
        expected.append(goes_on(pair.a, f"beside-{pair.group}", pair.topic))

    with Mirror(pair.config) as mirror:
        for group in groups:
            eventually(lambda: committed(pair.b, group, pair.remote) >= 0)  # noqa: B023
        read = [goes_on(pair.b, group, pair.remote, at_most=2) for group in groups]
        assert read == [values[:2] for values in expected]

        produce(pair.a, pair.topic, [Outgoing(key=b"sign", value=b"sign")])
        for group, values in zip(groups, expected, strict=True):
            left = [*values[2:], b"sign"]
            copy = f"copy-{group}"

            def is_back(group: str = group, copy: str = copy, left: list[bytes] = left) -> bool:
                commit(pair.a, copy, pair.topic, max(committed(pair.a, group, pair.topic), 0))
                return goes_on(pair.a, copy, pair.topic) == left

            eventually(is_back, what=f"{group} back on A")
            assert goes_on(pair.a, group, pair.topic) == left
        mirror.stop()
