"""`twinlog topology` on a cluster that has heartbeats."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest

from tests.support.settings import settings_for
from tests.support.topics import create_topic
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.mm2_records import Heartbeat
from twinlog.wire.records import Record


@pytest.mark.witness("flows and hops of a cluster are listed")
def test_flows_and_hops_of_one_cluster(
    tmp_path: Path, target_cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = (f"{name}{uuid.uuid4().hex[:8]}" for name in "abc")
    near = create_topic(target_cluster, f"{b}.heartbeats")
    far = create_topic(target_cluster, f"{b}.{a}.heartbeats")
    now_ms = int(time.time() * 1000)
    with ClusterClient(settings_for(target_cluster.bootstrap)) as client:
        for topic, source, target, age_ms in (
            (near, a, b, 90_000),
            (near, a, b, 4_000),
            (far, "z" + a, a, 2_000),
        ):
            beat = Heartbeat(source_alias=source, target_alias=target, timestamp_ms=now_ms - age_ms)
            record = Record(0, now_ms, beat.key(), beat.value())
            append(client, TopicPartition(topic, 0), [Record(0, 0, b"k", b"none"), record])
    config = tmp_path / "mm2.properties"
    config.write_text(
        f"clusters = {b}, {c}\n"
        f"{b}.bootstrap.servers = nobody:1\n"
        f"{c}.bootstrap.servers = {target_cluster.bootstrap}\n"
        f"{b}->{c}.enabled = true\n"
    )
    assert run(["topology", str(config), "--format", "json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["command"], seen["cluster"]) == ("topology", c)
    ours = {one["flow"]: one for one in seen["flows"] if a in one["flow"] or b in one["flow"]}
    assert {name: (one["hops"], one["copies"]) for name, one in ours.items()} == {
        f"{b}->{c}": (1, True),
        f"{a}->{b}": (2, True),
        f"z{a}->{a}": (None, False),
    }
    assert ours[f"{a}->{b}"]["last_heartbeat_ms"] == now_ms - 4_000
    assert ours[f"{b}->{c}"]["last_heartbeat_ms"] is None
    assert {"alias": a, "hops": 2, "way": [a, b, c]} in seen["clusters"]

    assert run(["topology", str(config), "--cluster", c]) == 0
    text = capsys.readouterr().out
    assert f"{a} -> {b} -> {c}" in text
    assert "s ago" in text
    assert "heartbeats only" in text

    assert run(["topology", str(config), "--cluster", "nowhere"]) == 2
    assert "is not a cluster of the file" in capsys.readouterr().err
