"""The Python API translates offsets exactly in both directions, in contrast to MirrorMaker 2's
checkpoints.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.support.client import Outgoing, produce, produce_transaction, read_all
from tests.support.mirror import Mirror
from tests.support.settings import settings_for
from tests.support.topics import create_topic
from twinlog.client import GroupOffset, MirrorClient, TopicPartition, Translation
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append, ensure_compacted_topic
from twinlog.sandbox import LocalCluster
from twinlog.wire.mm2_records import Checkpoint
from twinlog.wire.records import Record


def test_every_offset_has_its_place(
    tmp_path: Path, source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> None:
    a, b = (f"{name}{uuid.uuid4().hex[:8]}" for name in "ab")
    create_topic(source_cluster, fresh_topic)
    for at in range(0, 40, 8):
        some = [Outgoing(value=b"%d" % (at + n)) for n in range(4)]
        produce_transaction(source_cluster, fresh_topic, some, commit=at != 16)
        produce(source_cluster, fresh_topic, [Outgoing(value=b"%d" % (at + n)) for n in (4, 5)])
    config = tmp_path / "mm2.properties"
    config.write_text(
        f"clusters = {a}, {b}\n"
        f"{a}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"{b}.bootstrap.servers = {target_cluster.bootstrap}\n"
        f"{a}->{b}.enabled = true\ntopics = {fresh_topic}\nreplication.factor = 1\n"
        "heartbeats.replication.enabled = false\n"
    )
    with Mirror(config, once=True, lanes=1) as mirror:
        mirror.wait()
    remote = f"{a}.{fresh_topic}"
    here, there = TopicPartition(fresh_topic, 0), TopicPartition(remote, 0)
    copies = {record.value: record.offset for record in read_all(target_cluster, remote)}
    # `read_all` also returns aborted records, which are not copied
    there_is = [r for r in read_all(source_cluster, fresh_topic) if r.value in copies]
    places = [(r.offset, copies[r.value]) for r in there_is]
    end = (places[-1][0] + 1, places[-1][1] + 1)

    with MirrorClient({"bootstrap.servers": target_cluster.bootstrap}) as client:
        for offset in range(end[0] + 1):
            expected = next((place for at, place in places if at >= offset), end[1])
            found = client.to_downstream(a, {here: offset})
            assert found[there].offset == expected, offset
        assert client.to_downstream(a, {here: end[0] + 99}) == {
            there: Translation(offset=end[1], is_exact=False)
        }
        for offset, place in places:
            assert client.to_upstream(a, {there: place})[here].offset == offset
        assert client.to_downstream(a, {TopicPartition("missing", 0): 1}) == {}
        assert client.to_downstream("nobody", {here: 1}) == {}

        # a checkpoint as MirrorMaker 2 would write it, far before the exact offset
        checkpoint = Checkpoint(
            group="g", topic_partition=there, upstream_offset=places[-3][0], downstream_offset=1
        )
        with ClusterClient(settings_for(target_cluster.bootstrap)) as cluster:
            topic = f"{a}.checkpoints.internal"
            ensure_compacted_topic(cluster, topic, partitions=1, replication_factor=1)
            record = Record(0, 1, checkpoint.key(), checkpoint.value())
            append(cluster, TopicPartition(topic, 0), [record])
        upstream = places[-3][0]
        assert client.remote_consumer_offsets("g", a) == {
            there: GroupOffset(offset=1, upstream_offset=upstream)
        }
        assert client.exact_consumer_offsets("g", a) == {
            there: GroupOffset(offset=places[-3][1], upstream_offset=upstream)
        }
