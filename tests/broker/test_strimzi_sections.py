"""A Strimzi resource with two flows on brokers. The connector sections of each mirror determine
what it emits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.clusters import private_cluster
from tests.support.eventually import eventually
from tests.support.groups import commit, committed
from tests.support.mirror import EmittingMirror
from tests.support.topics import create_topic, end_offsets, topic_configs, topic_names
from twinlog.sandbox import LocalCluster
from twinlog.wire.mm2_records import Checkpoint, Heartbeat

pytestmark = [pytest.mark.broker]

RESOURCE = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata:
  name: sites
spec:
  connectCluster: hub
  clusters:
    - alias: hub
      bootstrapServers: {hub}
    - alias: full
      bootstrapServers: {full}
    - alias: bare
      bootstrapServers: {bare}
  mirrors:
    - sourceCluster: full
      targetCluster: hub
      topicsPattern: "orders"
      groupsPattern: "app-.*"
      sourceConnector:
        config: {{replication.factor: 1, offset-syncs.topic.replication.factor: 1}}
      heartbeatConnector:
        config: {{heartbeats.topic.replication.factor: 1, emit.heartbeats.interval.seconds: 2}}
      checkpointConnector:
        config:
          checkpoints.topic.replication.factor: 1
          emit.checkpoints.interval.seconds: 1
          sync.group.offsets.enabled: true
          sync.group.offsets.interval.seconds: 1
          refresh.groups.interval.seconds: 1
    - sourceCluster: bare
      targetCluster: hub
      topicsPattern: "orders"
      groupsPattern: "app-.*"
      sourceConnector:
        config: {{replication.factor: 1, offset-syncs.topic.replication.factor: 1}}
"""


def test_checkpoints_heartbeats_and_groups_are_there_where_their_sections_are(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        # separate clusters, because on shared ones all tests would mirror the heartbeats
        made = [private_cluster(name, 1) for name in ("hub", "full", "bare")]
        hub, full, bare = pool.map(stack.enter_context, made)
        file = tmp_path / "mirror.yaml"
        addresses = {"hub": hub.bootstrap, "full": full.bootstrap, "bare": bare.bootstrap}
        file.write_text(RESOURCE.format(**addresses))
        for source, group in ((full, "app-full"), (bare, "app-bare")):
            create_topic(source, "orders")
            produce(source, "orders", [Outgoing(value=b"%d" % n) for n in range(9)])
            commit(source, group, "orders", 4)
        with EmittingMirror(file, lanes=1) as mirror:
            eventually(lambda: committed(hub, "app-full", "full.orders") == 4)
            eventually(lambda: len(beats(hub, "heartbeats")) >= 3)
            eventually(lambda: holds(hub, "bare.orders", 9))
            commit(full, "app-full", "orders", 7)  # wait for one more round of both flows' duties
            eventually(lambda: committed(hub, "app-full", "full.orders") == 7)
            mirror.stop()
        names = {name for name in topic_names(hub) if not name.startswith(("__", "mm2-"))}
        assert names == {"full.orders", "bare.orders", "heartbeats", "full.checkpoints.internal"}
        found = [
            Checkpoint.decode(one.key, one.value)
            for one in read_all(hub, "full.checkpoints.internal")
        ]
        assert {(one.group, one.topic_partition.topic) for one in found} == {
            ("app-full", "full.orders")
        }
        assert topic_configs(hub, "full.checkpoints.internal")["cleanup.policy"] == "compact"
        assert committed(hub, "app-bare", "bare.orders") == -1
        pairs = {(one.source_alias, one.target_alias) for one in beats(hub, "heartbeats")}
        assert pairs == {("full", "hub")}
        # like Kafka Connect, the mirror writes heartbeats only to its own cluster
        for source in (full, bare):
            assert "heartbeats" not in topic_names(source)
        times = [one.timestamp_ms for one in beats(hub, "heartbeats")]
        assert times[-1] - times[0] > 1500 * (len(times) - 1), "every 2 s"


def holds(cluster: LocalCluster, topic: str, count: int) -> bool:
    return topic in topic_names(cluster) and end_offsets(cluster, topic) == {0: count}


def beats(cluster: LocalCluster, topic: str) -> list[Heartbeat]:
    if topic not in topic_names(cluster):
        return []
    return [Heartbeat.decode(one.key, one.value) for one in read_all(cluster, topic)]
