"""Java's MirrorClient and RemoteClusterUtils return the same results as Twinlog's for the same
cluster.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from tests.support.java import kafka_jvm
from tests.support.settings import settings_for
from tests.support.topics import create_topic
from twinlog import client as api
from twinlog.client import GroupOffset, MirrorClient
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append, ensure_compacted_topic
from twinlog.errors import ConfigError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.kafka_jars import mirror_maker_jars
from twinlog.wire.mm2_records import Checkpoint
from twinlog.wire.records import Record

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with kafka_jvm(mirror_maker_jars()) as started:
        yield started


@pytest.fixture(scope="module")
def alias(target_cluster: LocalCluster) -> str:
    """Create topics and heartbeats that were copied along a chain of three clusters. Return the
    alias of the nearest cluster.
    """
    name = f"a{uuid.uuid4().hex[:8]}"
    for topic in (
        f"{name}.orders",
        f"{name}.b{name}.c{name}.orders",
        f"{name}.heartbeats",
        f"{name}.b{name}.heartbeats",
        f"x{name}.{name}.b{name}.c{name}.heartbeats",
        f"{name}s_orders",
        f"{name}s_heartbeats",
        f"orders-of-{name}",
        f"mm2-offset-syncs.{name}.internal",
        f"{name}heartbeats",
    ):
        create_topic(target_cluster, topic)
    return name


def policies(alias: str) -> Mapping[str, dict[str, str]]:
    package = "org.apache.kafka.connect.mirror."
    identity = {"replication.policy.class": package + "IdentityReplicationPolicy"}
    return {
        "default": {},
        "separator": {"replication.policy.separator": "_"},
        "separator, not of internal topics": {
            "replication.policy.separator": "_",
            "replication.policy.internal.topic.separator.enabled": "false",
        },
        "identity": {**identity, "source.cluster.alias": alias},
        "identity without an alias": identity,
    }


def own(topics: Iterable[str], alias: str) -> set[str]:
    """Return only this test's topics, because other tests create topics at the same time."""
    return {topic for topic in topics if alias in topic}


@pytest.mark.parametrize("policy", policies(""))
def test_topics_clusters_and_hops(
    jvm: Any, target_cluster: LocalCluster, alias: str, policy: str
) -> None:
    _checkpoints(target_cluster, f"{alias}.checkpoints.internal", [])
    config = {"bootstrap.servers": target_cluster.bootstrap, **policies(alias)[policy]}
    java = jvm.org.apache.kafka.connect.mirror.MirrorClient(config)
    try:
        with MirrorClient(config) as ours:
            questions = {
                "heartbeats": (java.heartbeatTopics(), ours.heartbeat_topics()),
                "checkpoints": (java.checkpointTopics(), ours.checkpoint_topics()),
                "upstream": (java.upstreamClusters(), ours.upstream_clusters()),
                "remote": (java.remoteTopics(), ours.remote_topics()),
                "of one": (java.remoteTopics(alias), ours.remote_topics(alias)),
                "of another": (java.remoteTopics(f"{alias}s"), ours.remote_topics(f"{alias}s")),
            }
            seen = {what: (own(j, alias), own(o, alias)) for what, (j, o) in questions.items()}
            far = [f"{prefix}{alias}" for prefix in ("", "b", "c", "x", "missing-")]
            counted = {name: ours.replication_hops(name) for name in far}
            assert {name: java.replicationHops(name) for name in far} == counted
    finally:
        java.close()
    for what, (by_java, by_us) in seen.items():
        assert by_java == by_us, what
    if policy == "default":
        assert list(counted.values()) == [1, 2, 4, 1, -1]
        assert seen["upstream"][1] == set(far[:4])
        assert seen["of one"][1] == {f"{alias}.orders", f"{alias}.b{alias}.c{alias}.orders"} | {
            topic for topic in seen["heartbeats"][1] if topic.startswith(f"{alias}.")
        }


def _checkpoints(cluster: LocalCluster, topic: str, found: Iterable[Checkpoint]) -> None:
    with ClusterClient(settings_for(cluster.bootstrap)) as client:
        ensure_compacted_topic(client, topic, partitions=1, replication_factor=1)
        records = [Record(0, 1, one.key(), one.value()) for one in found]
        if records:
            noise = Record(0, 1, b"\x00\x02g", b"no checkpoint")
            append(client, TopicPartition(topic, 0), [noise, *records])


def checkpoint(group: str, partition: int, upstream: int, downstream: int) -> Checkpoint:
    return Checkpoint(
        group=group,
        topic_partition=TopicPartition("a.orders", partition),
        upstream_offset=upstream,
        downstream_offset=downstream,
        metadata=f"of {group}",
    )


def test_offsets_of_groups(jvm: Any, target_cluster: LocalCluster) -> None:
    """The Java client and Twinlog's use the last checkpoint of a partition, and skip records that
    are no checkpoints. Both require that a pattern matches the whole group name.
    """
    alias = f"a{uuid.uuid4().hex[:8]}"
    _checkpoints(
        target_cluster,
        f"{alias}.checkpoints.internal",
        [
            checkpoint("g", 0, 1, 11),
            checkpoint("g", 0, 2, 12),
            checkpoint("g", 1, 3, 13),
            checkpoint("g.2", 1, 4, 14),
            checkpoint("another", 1, 5, 15),
            checkpoint("g", 0, 1, 11),
        ],
    )
    config = {"bootstrap.servers": target_cluster.bootstrap}
    utils = jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils
    timeout = jvm.java.time.Duration.ofSeconds(TIMEOUT_S)
    for group in ("g", "g.2", "gx2", "missing"):
        java = _plain(utils.translateOffsets(config, alias, group, timeout))
        ours = api.translate_offsets(config, alias, group, timeout_s=TIMEOUT_S)
        assert java == {tp: (one.offset, one.metadata) for tp, one in ours.items()}, group
    for pattern in ("g", "g.*", ".*", "nothere|another", "missing"):
        found = utils.translateOffsets(
            config, alias, jvm.java.util.regex.Pattern.compile(pattern), timeout
        )
        all_ours = api.translate_offsets(config, alias, re.compile(pattern), timeout_s=TIMEOUT_S)
        assert {group: _plain(offsets) for group, offsets in found.items()} == {
            group: {tp: (one.offset, one.metadata) for tp, one in offsets.items()}
            for group, offsets in all_ours.items()
        }, pattern
    assert api.translate_offsets(config, alias, "g") == {
        TopicPartition("a.orders", 0): GroupOffset(offset=11, upstream_offset=1, metadata="of g"),
        TopicPartition("a.orders", 1): GroupOffset(offset=13, upstream_offset=3, metadata="of g"),
    }


def _plain(offsets: Any) -> dict[TopicPartition, tuple[int, str]]:
    return {
        TopicPartition(tp.topic(), tp.partition()): (one.offset(), one.metadata())
        for tp, one in offsets.items()
    }


def test_utilities_answer_as_the_client(target_cluster: LocalCluster, alias: str) -> None:
    config = {"bootstrap.servers": "nobody:1", "admin.bootstrap.servers": target_cluster.bootstrap}
    assert api.replication_hops(config, f"b{alias}") == 2
    assert f"{alias}.heartbeats" in api.heartbeat_topics(config)
    assert {alias, f"b{alias}"} <= api.upstream_clusters(config)
    config = {"bootstrap.servers": target_cluster.bootstrap}
    assert all(topic.endswith(".checkpoints.internal") for topic in api.checkpoint_topics(config))


def test_a_missing_or_late_topic_is_an_error(target_cluster: LocalCluster) -> None:
    """Twinlog raises an error if the checkpoints topic is missing or not read in time. Java's
    client would return the part that it has read.
    """
    alias = f"a{uuid.uuid4().hex[:8]}"
    config = {"bootstrap.servers": target_cluster.bootstrap}
    with pytest.raises(TwinlogError) as missing:
        api.translate_offsets(config, alias, "g", timeout_s=1)
    assert missing.value.code == "TOPIC_MISSING"
    topic = f"{alias}.checkpoints.internal"
    _checkpoints(target_cluster, topic, [checkpoint("g", 0, 1, 11)])
    with pytest.raises(TwinlogError):
        api.translate_offsets(config, alias, "g", timeout_s=0)


def test_wrong_properties_are_named() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: missing"):
        MirrorClient({})
    with pytest.raises(ConfigError, match=r"no\.such\.Policy"):
        MirrorClient({"bootstrap.servers": "a:1", "replication.policy.class": "no.such.Policy"})
