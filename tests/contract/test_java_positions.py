"""Twinlog writes and reads positions in the same form as Kafka Connect's own converter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.java import kafka_jvm
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.model import TopicPartition
from twinlog.sandbox.kafka_jars import mirror_maker_jars
from twinlog.wire.mm2_records import (
    PositionKey,
    decode_position,
    encode_position,
)

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]

PLACES = [
    ("MirrorSourceConnector", "A", "orders", 0),
    ("A->B.MirrorSourceConnector", "us-west", "a.b_c-d", 4711),
    ("mirror-source", 'say "hi"', "x", 2_147_483_647),
    ("spiegel-für-münchen", "münchen", "t", 1),
]


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with kafka_jvm(mirror_maker_jars()) as running:
        yield running


@pytest.fixture(scope="module")
def converter(jvm: Any) -> Any:
    """The converter that a Connect worker creates for its offset storage."""
    made = jvm.org.apache.kafka.connect.json.JsonConverter()
    made.configure({"schemas.enable": "false"}, True)
    return made


@pytest.mark.parametrize("place", PLACES)
def test_keys_are_the_same_bytes(
    jvm: Any, converter: Any, place: tuple[str, str, str, int]
) -> None:
    connector, cluster, topic, partition = place
    where = jvm.java.util.HashMap()
    # the same order of keys as in MirrorUtils.wrapPartition
    where.put("topic", topic)
    where.put("partition", partition)
    where.put("cluster", cluster)
    theirs = jvm.java.util.ArrayList()
    theirs.add(connector)
    theirs.add(where)
    ours = PositionKey(
        connector=connector, cluster=cluster, source=TopicPartition(topic, partition)
    )
    written = bytes(converter.fromConnectData(connector, None, theirs))
    assert ours.encode() == written
    assert PositionKey.decode(written) == ours
    partitioner = jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
    assert partition_for_key(written, 25) == partitioner.partitionForKey(written, 25)


@pytest.mark.parametrize("offset", [0, 41, 2**31, 2**63 - 1])
def test_values_are_the_same_bytes(jvm: Any, converter: Any, offset: int) -> None:
    theirs = jvm.java.util.HashMap()
    theirs.put("offset", jvm.java.lang.Long(str(offset)))
    written = bytes(converter.fromConnectData("MirrorSourceConnector", None, theirs))
    assert encode_position(offset) == written
    assert decode_position(written) == offset
    read = converter.toConnectData("MirrorSourceConnector", encode_position(offset)).value()
    assert read["offset"] == offset
