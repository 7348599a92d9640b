"""The rights that a DataFrame reader needs, and the message if one is missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support import surgery
from tests.support.client import Outgoing, produce
from tests.support.rights import USERS, guarded
from tests.support.topics import allow, apply_topic_configs, create_topic
from twinlog.errors import RecordsLost, TwinlogError
from twinlog.model import TopicPartition
from twinlog.records.batch_reader import BatchReader
from twinlog.records.options import ReadOptions, parse_options
from twinlog.records.stream_reader import StreamReader
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with guarded("reader") as running:
        yield running


def options(
    cluster: LocalCluster, user: str, topic: str, *, is_stream: bool = False, **more: str
) -> ReadOptions:
    properties = cluster.client_properties("SASL_PLAINTEXT", user, mechanism="PLAIN")
    given = {f"kafka.{key}": value for key, value in properties.items()}
    return parse_options({**given, "subscribe": topic, **more}, is_stream=is_stream)


def read(options: ReadOptions) -> list[int]:
    reader = BatchReader(options, ["value"])
    found = [rows for part in reader.partitions() for rows in reader.read(part)]
    return [int(value) for rows in found for value in rows.column("value").to_pylist()]


def put(cluster: LocalCluster, topic: str, first: int, end: int) -> None:
    records = [Outgoing(b"k", b"%d" % at) for at in range(first, end)]
    produce(cluster, topic, records, linger_ms=200)


def test_reading_needs_read_alone(cluster: LocalCluster) -> None:
    """Reading needs only READ on the topic, because configs are queried only if there is a gap.
    With DESCRIBE instead of READ, the error names the missing READ.
    """
    create_topic(cluster, "plain")
    put(cluster, "plain", 0, 10)
    allow(cluster, USERS[0], ["READ"], topic="plain")
    assert read(options(cluster, USERS[0], "plain")) == list(range(10))
    allow(cluster, USERS[1], ["DESCRIBE"], topic="plain")
    with pytest.raises(TwinlogError, match="grant READ on topic plain") as caught:
        read(options(cluster, USERS[1], "plain"))
    assert caught.value.code == "TOPIC_UNAUTHORIZED"


def test_without_a_right_to_configs_a_gap_cannot_be_distinguished_from_compaction(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic, left = "hole", [*range(10), *range(20, 30)]
    create_topic(cluster, topic)
    put(cluster, topic, 0, 10)
    put(cluster, topic, 10, 20)
    apply_topic_configs(cluster, topic, {"segment.ms": "500"})
    put(cluster, topic, 20, 30)
    surgery.swell_length(cluster, TopicPartition(topic, 0), 10)
    allow(cluster, USERS[2], ["READ"], topic=topic)
    with caplog.at_level(logging.WARNING, "twinlog.records"):
        assert read(options(cluster, USERS[2], topic)) == left
    assert "no rows of 10 offsets in [10, 20): assumed to be compacted" in caplog.text
    assert "DESCRIBE_CONFIGS" in caplog.text
    allow(cluster, USERS[3], ["READ", "DESCRIBE_CONFIGS"], topic=topic)
    with pytest.raises(RecordsLost) as caught:
        read(options(cluster, USERS[3], topic))
    assert (caught.value.code, caught.value.lost) == ("LOG_GAP", (10, 20))


def test_rights_on_groups(cluster: LocalCluster) -> None:
    create_topic(cluster, "streamed")
    put(cluster, "streamed", 0, 10)
    end = {"streamed": {"0": 6}}
    for user, right in ((USERS[4], "DESCRIBE"), (USERS[5], "READ")):
        allow(cluster, user, ["READ"], topic="streamed")
        allow(cluster, user, [right], group="progress")
        given = options(cluster, user, "streamed", is_stream=True, commitGroup="progress")
        reader = StreamReader(given, ["value"])
        try:
            if right == "READ":
                reader.commit(end)
            else:
                with pytest.raises(TwinlogError, match="grant READ on group progress") as caught:
                    reader.commit(end)
                assert caught.value.code == "GROUP_UNAUTHORIZED"
        finally:
            reader.stop()
    allow(cluster, USERS[6], ["READ"], topic="streamed")
    given = options(cluster, USERS[6], "streamed", startingOffsets="group:progress")
    with pytest.raises(TwinlogError, match="grant DESCRIBE on group progress"):
        read(given)
    allow(cluster, USERS[6], ["DESCRIBE"], group="progress")
    assert read(given) == [6, 7, 8, 9]
