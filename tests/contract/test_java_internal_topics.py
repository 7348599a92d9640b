"""MirrorMaker 2's own policies, filter and client ignore Twinlog's internal topics."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.java import kafka_jvm
from tests.support.settings import settings_for
from tests.support.topics import create_topic, offset_map_topic
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import ensure_compacted_topic
from twinlog.mirror.names.naming import (
    PROBE_TOPIC,
    STATE_TOPIC,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    is_own_topic,
)
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.kafka_jars import mirror_maker_jars
from twinlog.survey.capabilities import ensure_probe_topic

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]

OURS = (STATE_TOPIC, PROBE_TOPIC, offset_map_topic("us-west"), offset_map_topic("a.b"))
POLICIES = ("DefaultReplicationPolicy", "IdentityReplicationPolicy")


@pytest.fixture(scope="module")
def mm2() -> Iterator[Any]:
    """`org.apache.kafka.connect.mirror` of MirrorMaker 2."""
    with kafka_jvm(mirror_maker_jars()) as jvm:
        yield jvm.org.apache.kafka.connect.mirror


def test_the_names_are_these() -> None:
    """The names of the internal topics must never change, because topics with these names exist on
    clusters. With another name, the state would be lost.
    """
    assert STATE_TOPIC == "mm2-twinlog-state.internal"
    assert PROBE_TOPIC == "mm2-twinlog-probe.internal"
    assert offset_map_topic("us-west") == "mm2-twinlog-offset-map.us-west.internal"
    assert all(is_own_topic(name) for name in OURS)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("topic", OURS)
def test_they_are_internal_to_its_policies(mm2: Any, policy: str, topic: str) -> None:
    judge = getattr(mm2, policy)()
    judge.configure({"replication.policy.separator": ".", "source.cluster.alias": "A"})
    assert judge.isInternalTopic(topic)
    assert judge.isMM2InternalTopic(topic)
    assert not judge.isInternalTopic(f"us-west.{topic.removesuffix('.internal')}"), "it may say no"
    ours: DefaultReplicationPolicy = IdentityReplicationPolicy(source_alias="A")
    if policy == "DefaultReplicationPolicy":
        ours = DefaultReplicationPolicy()
    assert ours.is_internal_topic(topic)


@pytest.mark.parametrize("topic", OURS)
def test_its_filter_takes_none_of_them(mm2: Any, topic: str) -> None:
    """MirrorMaker 2's filter replicates no internal topic of Twinlog. If the separator is not the
    default one, MirrorMaker 2's policy alone would consider them ordinary topics.
    """
    chosen = mm2.DefaultTopicFilter()
    chosen.configure({"topics": ".*"})
    assert not chosen.shouldReplicateTopic(topic)
    assert chosen.shouldReplicateTopic("orders")


def test_its_client_does_not_see_them_as_remote_topics(
    mm2: Any, target_cluster: LocalCluster
) -> None:
    alias = f"a{uuid.uuid4().hex[:8]}"
    ours = {STATE_TOPIC, PROBE_TOPIC, offset_map_topic(alias)}
    with ClusterClient(settings_for(target_cluster.bootstrap)) as client:
        ensure_probe_topic(client, 1)
        for name in ours - {PROBE_TOPIC}:
            ensure_compacted_topic(client, name, partitions=1, replication_factor=1)
    remote = create_topic(target_cluster, f"{alias}.orders")
    asked = mm2.MirrorClient({"bootstrap.servers": target_cluster.bootstrap})
    try:
        seen = set(asked.remoteTopics())
        sources = set(asked.upstreamClusters())
    finally:
        asked.close()
    assert remote in seen
    assert seen & ours == set()
    assert [name for name in seen if is_own_topic(name)] == []
    assert sources == set() or not any(name.startswith("mm2-twinlog") for name in sources)
