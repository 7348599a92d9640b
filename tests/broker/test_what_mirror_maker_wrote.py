"""Twinlog reads the heartbeats, offset syncs and checkpoints that a real MirrorMaker 2 has
written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.clusters import private_cluster
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.groups import commit
from tests.support.mirror_maker import mirror_maker, one_cluster_file
from tests.support.topics import create_topic, topic_names
from twinlog.cli.main import run
from twinlog.client import GroupOffsets, MirrorClient, TopicPartition
from twinlog.errors import TwinlogError
from twinlog.sandbox import LocalCluster
from twinlog.wire.mm2_records import OffsetSync

pytestmark = [pytest.mark.broker, pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]

RECORDS = 50
STOPPED_AT = 30


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """One cluster with the aliases A and B. It is separate, because other tests would mirror its
    heartbeats.
    """
    with private_cluster("mm2", 1) as running:
        yield running


@pytest.fixture
def properties(tmp_path: Path, cluster: LocalCluster) -> Path:
    return one_cluster_file(
        tmp_path / "mm2.properties",
        cluster,
        topics="orders",
        offset_lag_max="5",
        refresh_groups_interval_seconds="1",
        emit_checkpoints_interval_seconds="1",
        B_offset_flush_interval_ms="1000",
    )


def complete(flows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the flows if both directions have a heartbeat, else an empty dict."""
    beaten = {name for name, flow in flows.items() if flow["last_heartbeat_ms"]}
    return flows if {"A->B", "B->A"} <= beaten else {}


@pytest.mark.witness("records of a real MirrorMaker 2 are read")
def test_heartbeats_offset_syncs_and_checkpoints(
    cluster: LocalCluster, properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(cluster, "orders")
    produce(cluster, "orders", [Outgoing(value=b"%d" % n) for n in range(RECORDS)])
    commit(cluster, "app", "orders", STOPPED_AT)
    with mirror_maker(properties), MirrorClient({"bootstrap.servers": cluster.bootstrap}) as client:

        def checkpointed() -> GroupOffsets:
            try:
                return client.remote_consumer_offsets("app", "A")
            except TwinlogError:
                return {}

        eventually(lambda: "A.heartbeats" in topic_names(cluster))
        eventually(lambda: bool(read_all(cluster, "A.heartbeats")))
        eventually(checkpointed)
        found = checkpointed()
        hops = client.replication_hops("A")
        sources = client.upstream_clusters()
        assert client.checkpoint_topics() == {"A.checkpoints.internal"}

        def topology() -> dict[str, dict[str, Any]]:
            assert run(["topology", str(properties), "--format", "json"]) == 0
            flows = json.loads(capsys.readouterr().out)["flows"]
            return {one["flow"]: one for one in flows}

        # each direction is a connector of MirrorMaker 2, and one of them starts later
        seen = eventually(lambda: complete(topology()))
    (place,) = found.values()
    assert set(found) == {TopicPartition("A.orders", 0)}
    assert place.upstream_offset == STOPPED_AT
    assert 0 < place.offset <= STOPPED_AT
    assert (hops, sources) == (1, {"A"})
    assert (seen["A->B"]["hops"], seen["A->B"]["copies"]) == (1, True)
    assert seen["A->B"]["last_heartbeat_ms"] > time.time() * 1000 - 2 * PATIENCE_S * 1000
    assert seen["B->A"]["copies"] is False, "MirrorMaker 2 runs it to beat into A"

    records = read_all(cluster, "mm2-offset-syncs.B.internal")
    syncs = [OffsetSync.decode(record.key, record.value) for record in records]
    mine = [sync for sync in syncs if sync.topic_partition == TopicPartition("orders", 0)]
    assert mine
    assert all(sync.upstream_offset == sync.downstream_offset for sync in mine), "no gaps here"
