"""MirrorMaker 2's own classes can read Twinlog's internal records, and Twinlog can read theirs.
Both use the same names of internal topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.java import kafka_jvm
from tests.support.properties import IDENTITY, flow_of, loader
from twinlog.mirror.names.filters import policy_of
from twinlog.mirror.names.naming import DefaultReplicationPolicy, IdentityReplicationPolicy
from twinlog.model import TopicPartition
from twinlog.sandbox.kafka_jars import mirror_maker_jars
from twinlog.wire.mm2_records import Checkpoint, Heartbeat, OffsetSync

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]

TEXTS = ("orders", "a-b.c_0", "größe 数", "")
NUMBERS = (0, 1, 2**31, 2**63 - 1, -1)

SEPARATORS = (".", "_", "--")


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with kafka_jvm(mirror_maker_jars()) as started:
        yield started


def consumed(jvm: Any, key: bytes, value: bytes) -> Any:
    """Return a record in the form in which Java's consumer returns it."""
    return jvm.org.apache.kafka.clients.consumer.ConsumerRecord("any", 0, 0, key, value)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("number", NUMBERS)
def test_offset_syncs(jvm: Any, text: str, number: int) -> None:
    ours = OffsetSync(
        topic_partition=TopicPartition(text, 7), upstream_offset=number, downstream_offset=200
    )
    read = jvm.org.apache.kafka.connect.mirror.OffsetSync.deserializeRecord(
        consumed(jvm, ours.key(), ours.value())
    )
    assert (read.topicPartition().topic(), read.topicPartition().partition()) == (text, 7)
    assert (read.upstreamOffset(), read.downstreamOffset()) == (number, 200)
    assert _bytes(jvm, read) == (ours.key(), ours.value())
    assert OffsetSync.decode(*_bytes(jvm, read)) == ours


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("number", NUMBERS)
def test_checkpoints(jvm: Any, text: str, number: int) -> None:
    ours = Checkpoint(
        group=text,
        topic_partition=TopicPartition("A.orders", 7),
        upstream_offset=number,
        downstream_offset=201,
        metadata=text,
    )
    read = jvm.org.apache.kafka.connect.mirror.Checkpoint.deserializeRecord(
        consumed(jvm, ours.key(), ours.value())
    )
    assert (read.consumerGroupId(), read.metadata()) == (text, text)
    assert (read.topicPartition().topic(), read.topicPartition().partition()) == ("A.orders", 7)
    assert (read.upstreamOffset(), read.downstreamOffset()) == (number, 201)
    assert Checkpoint.decode(*_bytes(jvm, read)) == ours
    assert _bytes(jvm, read) == (ours.key(), ours.value())


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("number", NUMBERS)
def test_heartbeats(jvm: Any, text: str, number: int) -> None:
    ours = Heartbeat(source_alias=text, target_alias="B", timestamp_ms=number)
    read = jvm.org.apache.kafka.connect.mirror.Heartbeat.deserializeRecord(
        consumed(jvm, ours.key(), ours.value())
    )
    assert (read.sourceClusterAlias(), read.targetClusterAlias()) == (text, "B")
    assert read.timestamp() == number
    assert _bytes(jvm, read) == (ours.key(), ours.value())


def _bytes(jvm: Any, record: Any) -> tuple[bytes, bytes]:
    """Return the key and the value that Java would write, obtained by its package-private
    methods.
    """
    found = []
    for name in ("recordKey", "recordValue"):
        method = record.getClass().getDeclaredMethod(name, None)
        method.setAccessible(True)
        found.append(bytes(method.invoke(record, None)))
    return found[0], found[1]


@pytest.mark.parametrize("java_class", ["DefaultReplicationPolicy", "IdentityReplicationPolicy"])
@pytest.mark.parametrize("separator", [None, *SEPARATORS])
@pytest.mark.parametrize("flag", [None, "true", "false"])
def test_names_of_internal_topics(
    jvm: Any, java_class: str, separator: str | None, flag: str | None
) -> None:
    """MirrorMaker 2 and Twinlog use the same names of internal topics, whatever the separator is,
    and whether these names have it or not (KIP-949).
    """
    keys = {"source.cluster.alias": "us-west"}
    if separator is not None:
        keys["replication.policy.separator"] = separator
    if flag is not None:
        keys["replication.policy.internal.topic.separator.enabled"] = flag
    java = getattr(jvm.org.apache.kafka.connect.mirror, java_class)()
    java.configure(keys)
    ours = _policy(java_class, keys)
    assert java.offsetSyncsTopic("B") == ours.offset_syncs_topic("B")
    assert java.checkpointsTopic("us-west") == ours.checkpoints_topic("us-west")
    assert java.heartbeatsTopic() == ours.heartbeats_topic()
    for topic in (
        ours.offset_syncs_topic("B"),
        ours.checkpoints_topic("us-west"),
        "heartbeats",
        f"us-west{separator or '.'}heartbeats",
        "checkpoints.internal",
        "orders.internal",
        "mm2-configs.A.internal",
    ):
        assert java.isCheckpointsTopic(topic) == ours.is_checkpoints_topic(topic), topic
        assert java.isHeartbeatsTopic(topic) == ours.is_heartbeats_topic(topic), topic
        assert java.isMM2InternalTopic(topic) == ours.is_mm2_internal_topic(topic), topic
        assert java.isInternalTopic(topic) == ours.is_internal_topic(topic), topic


def test_internal_topics_without_a_separator(jvm: Any, tmp_path: Path) -> None:
    """A blank separator changes the names of internal topics, also under the identity policy.
    MirrorMaker 2 and Twinlog use the same names.
    """
    flow = flow_of(loader(tmp_path)(IDENTITY, "replication.policy.separator ="))
    ours, keys = policy_of(flow), {"source.cluster.alias": "A", "replication.policy.separator": ""}
    java = jvm.org.apache.kafka.connect.mirror.IdentityReplicationPolicy()
    java.configure(keys)
    assert java.formatRemoteTopic("A", "orders") == ours.format_remote_topic("A", "orders")
    assert java.offsetSyncsTopic("B") == ours.offset_syncs_topic("B")
    assert java.checkpointsTopic("A") == ours.checkpoints_topic("A")
    for topic in (ours.offset_syncs_topic("B"), ours.checkpoints_topic("A"), "A.orders"):
        assert java.isMM2InternalTopic(topic) == ours.is_mm2_internal_topic(topic), topic


def _policy(java_class: str, keys: dict[str, str]) -> DefaultReplicationPolicy:
    separator = keys.get("replication.policy.separator", ".")
    kept = keys.get("replication.policy.internal.topic.separator.enabled") != "false"
    internal = separator if kept else "."
    if java_class == "DefaultReplicationPolicy":
        return DefaultReplicationPolicy(separator=separator, internal_separator=internal)
    return IdentityReplicationPolicy(
        separator=separator, internal_separator=internal, source_alias="us-west"
    )
