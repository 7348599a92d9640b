"""Who holds a read_committed copy back is named."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, producer
from tests.support.topics import create_topic
from twinlog.config.load import load
from twinlog.config.schema import FlowConfig
from twinlog.control.open_transactions import held_back
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


def flow(folder: Path, source: LocalCluster, topic: str, *lines: str) -> FlowConfig:
    path = folder / "mm2.properties"
    path.write_text(
        "clusters = A, B\n"
        f"A.bootstrap.servers = {source.bootstrap}\n"
        "B.bootstrap.servers = 127.0.0.1:9\n"
        "A->B.enabled = true\n"
        f"topics = {topic}\n" + "".join(f"{line}\n" for line in lines)
    )
    return load(path, environment={}).flows[0]


def test_an_open_transaction_is_named(
    tmp_path: Path, source_cluster: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic, 2)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"x", partition=0)] * 3)
    client = producer(source_cluster, config={"transactional.id": f"test-{uuid.uuid4()}"})
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(fresh_topic, value=b"open", partition=0)
    client.flush(30)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"behind it", partition=0)] * 5)
    config = flow(tmp_path, source_cluster, fresh_topic)
    (found,) = held_back(config)
    assert (str(found.tp), found.last_stable_offset, found.records) == (f"{fresh_topic}-0", 3, 6)
    assert found.start_offset == 3
    assert f"of producer id {found.producer_id} that began at offset 3" in str(found)
    uncommitted = flow(
        tmp_path, source_cluster, fresh_topic, "A.consumer.isolation.level = read_uncommitted"
    )
    assert list(held_back(uncommitted)) == []
    client.abort_transaction(30)
    assert list(held_back(config)) == []
