"""Groups with little to translate: an offset in an empty partition, or no offset."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as Assigned

from tests.support.client import Outgoing, consumer, produce, read_all
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.mirror import Mirror
from tests.support.topics import admin, create_topic
from twinlog.sandbox import LocalCluster
from twinlog.wire.mm2_records import Checkpoint


def committed(cluster: LocalCluster, group: str, topic: str) -> list[int]:
    client = consumer(cluster, config={"group.id": group})
    try:
        wanted = [Assigned(topic, partition) for partition in range(3)]
        return [one.offset for one in client.committed(wanted, timeout=PATIENCE_S)]
    except KafkaException:
        return []
    finally:
        client.close()


@pytest.mark.witness("offset 0 of an empty partition is translated")
def test_offset_0_of_an_empty_partition_is_translated_but_not_a_missing_commit(
    tmp_path: Path, source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> None:
    a, b = (f"{name}{uuid.uuid4().hex[:8]}" for name in "ab")
    group = f"app-{a}"
    create_topic(source_cluster, fresh_topic, 3)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"1", partition=0)] * 3)
    offsets = [Assigned(fresh_topic, 0, 2), Assigned(fresh_topic, 1, 0)]
    at = ConsumerGroupTopicPartitions(group, offsets)
    client = admin(source_cluster)

    def is_taken() -> bool:
        answers = [
            done.result(PATIENCE_S) for done in client.alter_consumer_group_offsets([at]).values()
        ]
        return all(one.error is None for answer in answers for one in answer.topic_partitions)

    eventually(is_taken)
    config = tmp_path / "mm2.properties"
    config.write_text(
        f"clusters = {a}, {b}\n"
        f"{a}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"{b}.bootstrap.servers = {target_cluster.bootstrap}\n"
        f"{a}->{b}.enabled = true\ntopics = {fresh_topic}\ngroups = {group}\n"
        "replication.factor = 1\nsync.group.offsets.enabled = true\n"
        "sync.group.offsets.interval.seconds = 1\nemit.checkpoints.interval.seconds = 1\n"
    )
    remote = f"{a}.{fresh_topic}"
    nothing = -1001  # librdkafka's value for "no offset"
    with Mirror(config, lanes=1) as mirror:
        eventually(lambda: committed(target_cluster, group, remote) == [2, 0, nothing])
        mirror.stop()
    written = read_all(target_cluster, f"{a}.checkpoints.internal")
    assert all(record.value is not None for record in written), "never a tombstone"
    last = {
        one.topic_partition.partition: (one.upstream_offset, one.downstream_offset)
        for one in (Checkpoint.decode(record.key, record.value) for record in written)
    }
    assert last == {0: (2, 2), 1: (0, 0)}
