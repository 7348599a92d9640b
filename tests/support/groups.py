"""Groups of an application on two clusters: their offsets, and the records that they read from
these offsets.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import (
    OFFSET_STORED,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as Assigned

from tests.support.client import (
    Outgoing,
    consumer,
    eventually,
    produce,
    produce_transaction,
    producer,
)
from tests.support.eventually import PATIENCE_S
from tests.support.topics import admin, create_topic
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

__all__ = [
    "Pair",
    "commit",
    "commit_all",
    "committed",
    "is_end",
    "numbered",
    "offsets_in_transaction",
    "resume",
    "with_compaction",
    "with_transactions",
]


IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"

CLEAN_SOON = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "100",
}


class Pair:
    """Two clusters that mirror each other, with names of this test."""

    def __init__(
        self,
        folder: Path,
        a: LocalCluster,
        b: LocalCluster,
        *,
        sync: bool = True,
        both_ways: bool = True,
        identity: bool = False,
        has_alias: bool = False,
    ) -> None:
        """`has_alias`: the source's alias in topic names differs from its name in the file. If the
        file has both directions, only the flow from A to B has that alias.
        """
        mark = uuid.uuid4().hex[:8]
        self.is_identity = identity
        self.a, self.b = a, b
        self.topic, self.alias_a, self.alias_b = f"orders-{mark}", f"a{mark}", f"b{mark}"
        self.site = f"site{mark}" if has_alias else self.alias_a
        self.remote = self.topic if identity else f"{self.site}.{self.topic}"
        self.group = f"app-{mark}"
        self.config = folder / "mm2.properties"
        self.config.write_text(
            f"clusters = {self.alias_a}, {self.alias_b}\n"
            f"{self.alias_a}.bootstrap.servers = {a.bootstrap}\n"
            f"{self.alias_b}.bootstrap.servers = {b.bootstrap}\n"
            f"{self.alias_a}->{self.alias_b}.enabled = true\n"
            f"{self.alias_b}->{self.alias_a}.enabled = {str(both_ways).lower()}\n"
            f"topics = {self.topic}\ngroups = {self.group}.*\nreplication.factor = 1\n"
            # tests on the same clusters inspect all of the clusters' topics
            "emit.heartbeats.enabled = false\nheartbeats.replication.enabled = false\n"
            f"sync.group.offsets.enabled = {str(sync).lower()}\n"
            "sync.group.offsets.interval.seconds = 1\n"
            "emit.checkpoints.interval.seconds = 1\nrefresh.groups.interval.seconds = 1\n"
            f"{IDENTITY if identity else ''}"
        )
        if has_alias:
            flow = f"{self.alias_a}->{self.alias_b}." if both_ways else ""
            target = "" if both_ways else f"target.cluster.alias = t{mark}\n"
            with self.config.open("a") as file:
                file.write(f"{flow}source.cluster.alias = {self.site}\n{target}")

    def stop_at(self, offset: int) -> str:
        """Create a group whose application has read up to this offset of the topic on A. Return the
        group.
        """
        group = f"{self.group}-{offset}"
        commit(self.a, group, self.topic, offset)
        return group

    def left_to_read(self, end: int) -> list[list[bytes]]:
        """Return, for each offset up to `end`, the records that a group of `stop_at` would read on
        A. A further group reads them.
        """
        left = []
        for offset in range(end + 1):
            commit(self.a, f"beside-{self.group}", self.topic, offset)
            left.append(resume(self.a, f"beside-{self.group}", self.topic))
        return left


def commit(
    cluster: LocalCluster, group: str, topic: str, offset: int, *, metadata: str = ""
) -> None:
    """Set a group's offset in partition 0 without joining the group, as an operator does."""
    commit_all(cluster, group, [Assigned(topic, 0, offset, metadata=metadata)])


def commit_all(cluster: LocalCluster, group: str, positions: list[Assigned]) -> None:
    """Set a group's offsets in several partitions without joining the group."""
    client = admin(cluster)

    def is_taken() -> bool:
        at = ConsumerGroupTopicPartitions(group, positions)
        try:
            asked = client.alter_consumer_group_offsets([at]).values()
            answers = [done.result(PATIENCE_S) for done in asked]
        except KafkaException as error:
            raise AssertionError("its coordinator is only coming up") from error
        # errors may be only in the results of the partitions
        return all(one.error is None for answer in answers for one in answer.topic_partitions)

    eventually(is_taken)


def committed(cluster: LocalCluster, group: str, topic: str) -> int:
    """Return the group's offset in partition 0, or -1 if it has none or its coordinator is not
    ready yet.
    """
    client = consumer(cluster, config={"group.id": group})
    try:
        (found,) = client.committed([Assigned(topic, 0)], timeout=PATIENCE_S)
        return max(found.offset, -1)
    except KafkaException:
        return -1
    finally:
        client.close()


def resume(cluster: LocalCluster, group: str, topic: str, at_most: int = 10_000) -> list[bytes]:
    """Return the values that an application reads from its group's offset on, and commit them."""
    client = consumer(cluster, isolation="read_committed", config={"group.id": group})
    values: list[bytes] = []
    try:
        client.assign([Assigned(topic, 0, OFFSET_STORED)])

        def is_done() -> bool:
            while len(values) < at_most and (some := client.consume(1, 0.5)):
                if is_end(some[0]):
                    return True
                values.append(some[0].value() or b"")
                client.commit(message=some[0], asynchronous=False)
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
    """Write transactions with markers, and aborted records, between other records and at the end of
    the log.
    """
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, numbered(0, 3))
    produce_transaction(pair.a, pair.topic, numbered(100, 2), commit=False)
    produce_transaction(pair.a, pair.topic, numbered(3, 2), commit=True)
    produce(pair.a, pair.topic, numbered(5, 2))
    produce_transaction(pair.a, pair.topic, numbered(7, 1), commit=True)
    produce_transaction(pair.a, pair.topic, numbered(200, 1), commit=False)


def with_compaction(pair: Pair) -> None:
    """Write records of which some are overwritten by later ones. Wait until these are compacted
    away.
    """
    create_topic(pair.a, pair.topic, configs=CLEAN_SOON)
    keys = [0, 1, 1, 2, 0, 3, 4, 4, 4, 5, 2, 6]
    for value, key in enumerate(keys):
        produce(pair.a, pair.topic, [Outgoing(key=b"%d" % key, value=b"%d" % value)])

    def is_compacted() -> bool:
        produce(pair.a, pair.topic, [Outgoing(key=uuid.uuid4().bytes, value=b"last")])
        group = f"look-{uuid.uuid4()}"
        commit(pair.a, group, pair.topic, 0)
        found = resume(pair.a, group, pair.topic)
        return [value for value in found if value != b"last"] == b"2 4 5 8 9 10 11".split()

    eventually(is_compacted, what="compaction")


@contextmanager
def offsets_in_transaction(
    cluster: LocalCluster, group: str, offsets: Mapping[TopicPartition, int]
) -> Iterator[Callable[[], None]]:
    """Set a group's offsets in a transaction. Yield a function that commits the transaction."""
    writer = producer(cluster, config={"transactional.id": f"test-{uuid.uuid4()}"})
    reader = consumer(cluster, config={"group.id": group})
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    wanted = [Assigned(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
    writer.send_offsets_to_transaction(wanted, reader.consumer_group_metadata(), PATIENCE_S)
    reader.close()
    yield lambda: writer.commit_transaction(PATIENCE_S)
