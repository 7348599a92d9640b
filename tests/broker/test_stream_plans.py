"""Micro-batches of `format("twinlog")` as they are planned, without a session."""

from __future__ import annotations

import logging

import pytest

from tests.support.client import eventually
from tests.support.topics import create_topic, delete_topic, topic_names
from twinlog.errors import TwinlogError
from twinlog.records.options import parse_options
from twinlog.records.stream_reader import StreamReader
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_planned_micro_batch_of_a_deleted_topic(
    source_cluster: LocalCluster, fresh_topic: str, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its offsets are in the checkpoint, so each restart asks for them again."""
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
            assert f"{fresh_topic}-0: offsets [0, 5) are gone with their topic" in caplog.text
    finally:
        reader.stop()
