"""The planning of micro-batches of `format("twinlog")`, without a Spark session."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from tests.support.client import Outgoing, consumer, eventually, produce
from tests.support.groups import committed
from tests.support.topics import create_topic, delete_topic, topic_names
from twinlog.cluster.net.connection import Connection
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog.records import connections
from twinlog.records.gaps import OffsetRange
from twinlog.records.options import parse_options
from twinlog.records.stream_reader import StreamReader
from twinlog.records.tasks import RangesPartition
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_planned_micro_batch_of_a_deleted_topic(
    source_cluster: LocalCluster, fresh_topic: str, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic was deleted after a micro-batch was planned. The checkpoint has the micro-batch's
    offsets, so every restart requests them again. With `failOnDataLoss` the query fails with
    TOPIC_MISSING; without it, the micro-batch is empty and a warning is logged.
    """
    create_topic(source_cluster, fresh_topic)
    delete_topic(source_cluster, fresh_topic)
    eventually(lambda: fresh_topic not in topic_names(source_cluster))
    options = {
        "kafka.bootstrap.servers": source_cluster.bootstrap,
        "subscribe": fresh_topic,
        "failOnDataLoss": fails,
    }
    reader = StreamReader(parse_options(options, is_stream=True), ["value"])
    planned = {fresh_topic: {"0": 0}}, {fresh_topic: {"0": 5}}
    try:
        if fails == "true":
            with pytest.raises(TwinlogError) as caught:
                reader.partitions(*planned)
            assert caught.value.code == "TOPIC_MISSING"
        else:
            with caplog.at_level(logging.WARNING):
                assert list(reader.partitions(*planned)) == []
            assert f"{fresh_topic}-0: offsets [0, 5) were deleted with the topic" in caplog.text
    finally:
        reader.stop()


def test_tasks_keep_their_connections(
    source_cluster: LocalCluster, fresh_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of one worker reuse their connections. Only a task with other settings, or the
    first task after an error, connects again.
    """
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, [Outgoing(b"k", b"%d" % at) for at in range(10)])
    dialled, real = list[str](), Connection.open

    def open_counted(host: str, *arguments: Any, **named: Any) -> Connection:
        dialled.append(host)
        return real(host, *arguments, **named)

    monkeypatch.setattr(Connection, "open", open_counted)
    monkeypatch.setattr(connections, "_kept", [])

    def rows(first: int, end: int, **more: str) -> int:
        options = {"kafka.bootstrap.servers": source_cluster.bootstrap, "subscribe": fresh_topic}
        reader = StreamReader(parse_options({**options, **more}, is_stream=True), ["value"])
        wanted = OffsetRange(tp=TopicPartition(fresh_topic, 0), first=first, end=end)
        task = pickle.loads(pickle.dumps(reader))  # noqa: S301 (our own)
        dialled.clear()
        return sum(one.num_rows for one in task.read(RangesPartition([wanted])))

    assert (rows(0, 5), bool(dialled)) == (5, True)
    assert (rows(5, 10), dialled) == (5, [])
    assert (rows(0, 10, **{"kafka.client.id": "another"}), bool(dialled)) == (10, True)
    assert (rows(0, 10), dialled) == (10, [])
    with pytest.raises(TwinlogError, match="TRUNCATED"):
        rows(20, 30)
    assert (rows(0, 10), bool(dialled)) == (10, True)


def test_offsets_of_a_group_with_members_are_not_overwritten(
    source_cluster: LocalCluster, fresh_topic: str
) -> None:
    group = f"g-{fresh_topic}"
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, [Outgoing(b"k", b"%d" % at) for at in range(10)])
    options = {
        "kafka.bootstrap.servers": source_cluster.bootstrap,
        "subscribe": fresh_topic,
        "commitGroup": group,
    }
    reader = StreamReader(parse_options(options, is_stream=True), ["value"])
    member = consumer(source_cluster, config={"group.id": group, "auto.offset.reset": "earliest"})
    try:
        member.subscribe([fresh_topic])
        eventually(lambda: bool(member.consume(1, 0.2)), what="a member that reads")
        with pytest.raises(TwinlogError, match=f"group {group} has members") as caught:
            reader.commit({fresh_topic: {"0": 5}})
        assert caught.value.code == "GROUP_ACTIVE"
        assert "another commitGroup" in caught.value.message
        assert committed(source_cluster, group, fresh_topic) < 0
        member.close()
        # the rejected commit has no effect on later ones
        reader.commit({fresh_topic: {"0": 5}})
        assert committed(source_cluster, group, fresh_topic) == 5
    finally:
        reader.stop()
    delete_topic(source_cluster, fresh_topic)
