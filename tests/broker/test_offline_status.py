"""The state of a flow, derived only from its two clusters."""

from __future__ import annotations

import json
import re
import time
import uuid
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce, produce_transaction
from tests.support.groups import Pair, numbered
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.topics import create_topic, delete_topic, end_offsets, topic_names
from twinlog.cli.main import run
from twinlog.config.load import load
from twinlog.control.check.offline_status import offline_status
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.layout import free_ports

pytestmark = pytest.mark.broker


@pytest.fixture
def config(
    tmp_path: Path, source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> Path:
    a, b = (f"{name}{uuid.uuid4().hex[:8]}" for name in "ab")
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"clusters = {a}, {b}\n"
        f"{a}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"{b}.bootstrap.servers = {target_cluster.bootstrap}\n"
        f"{a}->{b}.enabled = true\n"
        f"topics = {fresh_topic}\n"
        "replication.factor = 1\n"
    )
    return path


def look(config: Path) -> tuple[FlowSnapshot, list[PartitionSnapshot]]:
    (flow,) = offline_status(load(config, environment={}))
    return flow, list(flow.partitions)


def records(count: int, partition: int) -> list[Outgoing]:
    return [Outgoing(value=b"x" * 50, partition=partition) for _ in range(count)]


def mirror_once(config: Path) -> None:
    with Mirror(config, once=True) as mirror:
        mirror.wait()


@pytest.mark.witness("status is derived from both clusters before, during and after a mirror")
def test_before_during_and_after(
    config: Path,
    source_cluster: LocalCluster,
    fresh_topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    create_topic(source_cluster, fresh_topic, 2)
    produce(source_cluster, fresh_topic, records(30, 0))
    flow, parts = look(config)
    assert (flow.state, flow.reason) == ("NOT_RUNNING", "it has never run")
    assert [(p.state, p.lag, p.records) for p in parts] == [("NEW", 30, 0), ("NEW", 0, 0)]

    mirror_once(config)
    flow, parts = look(config)
    assert "was shut down cleanly" in flow.reason
    assert flow.generation == 0
    assert [(p.state, p.lag, p.records) for p in parts] == [("AT_END", 0, 30), ("AT_END", 0, 0)]

    produce(source_cluster, fresh_topic, [*records(5, 0), *records(7, 1)])
    _, parts = look(config)
    assert [(p.state, p.lag, p.records) for p in parts] == [("BEHIND", 5, 30), ("BEHIND", 7, 0)]
    assert parts[0].lag_ms

    assert run(["status", str(config)]) == 1, "nobody runs it"
    text = capsys.readouterr().out
    assert "not run by this user on this machine; state read from the clusters" in text
    assert "BEHIND" in text


def test_another_source_cluster_is_no_source_without_topics(
    config: Path,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The source's address leads to another cluster, which lacks the flow's topics. They must not
    be shown as deleted: the flow's state is CLUSTER_CHANGED.
    """
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, records(5, 0))
    mirror_once(config)
    config.write_text(
        config.read_text().replace(source_cluster.bootstrap, target_cluster.bootstrap)
    )
    flow, parts = look(config)
    assert (flow.state, flow.code, parts) == ("FAILED", "CLUSTER_CHANGED", [])
    assert run(["status", str(config)]) == 1
    assert "SOURCE_DELETED" not in capsys.readouterr().out


def test_markers_of_transactions_are_no_lag(
    config: Path, source_cluster: LocalCluster, fresh_topic: str
) -> None:
    create_topic(source_cluster, fresh_topic)
    for commit in (True, False, True):
        produce_transaction(source_cluster, fresh_topic, records(4, 0), commit=commit)
    mirror_once(config)
    _, (part,) = look(config)
    # the marker after the last record has an offset but is no record, so nothing is left to copy
    assert (part.state, part.lag, part.records) == ("AT_END", 0, 8)


@pytest.mark.witness(
    "status without the source shows copied records and group positions from the target"
)
def test_if_the_source_is_lost_the_target_shows_its_own_records(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster, both_ways=False, sync=False)
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, numbered(0, 20))
    group = pair.stop_at(7)
    with EmittingMirror(pair.config) as mirror:
        for topic, least in ((f"{pair.alias_a}.checkpoints.internal", 1), (pair.remote, 20)):
            eventually(lambda: topic in topic_names(pair.b))  # noqa: B023 (it is asked now)
            eventually(lambda: end_offsets(pair.b, topic)[0] >= least)  # noqa: B023
        mirror.stop()
    (gone,) = free_ports(1)
    text = pair.config.read_text()
    pair.config.write_text(text.replace(pair.a.bootstrap, f"127.0.0.1:{gone}"))

    assert run(["status", str(pair.config), "--format", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    (flow,) = answer["mirrors"][0]["flows"]
    assert flow["state"] == "NOT_RUNNING"
    assert "was shut down cleanly" in flow["reason"]
    assert f"{pair.alias_a} (127.0.0.1:{gone}): connection refused" in flow["source_problem"]
    (error,) = answer["errors"]
    assert error["code"] == "UNREACHABLE"
    (part,) = flow["partitions"]
    assert (part["state"], part["copied"], part["lag"]) == ("SOURCE_AWAY", 20, None)
    assert abs(part["newest_ms"] - time.time() * 1000) < 600_000
    (place,) = flow["groups"]
    assert (place["group"], place["at"], place["resumes_at"], place["end"]) == (group, None, 7, 20)

    assert run(["status", str(pair.config)]) == 1
    text = capsys.readouterr().out
    assert "newest record" in text
    assert re.search(rf"{pair.remote} +all 1 +SOURCE_AWAY +\? +20 +\d\d:\d\d:\d\d \(", text)
    assert re.search(rf"{group} +{pair.remote} +1 +13 +not set", text)


def test_copies_of_topics_that_the_source_has_no_more_are_listed(
    config: Path,
    source_cluster: LocalCluster,
    fresh_topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, records(30, 0))
    mirror_once(config)
    delete_topic(source_cluster, fresh_topic)
    eventually(lambda: fresh_topic not in topic_names(source_cluster))
    _, (part,) = look(config)
    assert (part.topic, part.state, part.copied) == (fresh_topic, "SOURCE_DELETED", 30)
    assert (
        part.message == f"deleted at the source, or no longer visible; {part.target_topic} is kept"
    )
    run(["status", str(config)])
    assert f"{part.target_topic} is kept" in capsys.readouterr().out


def test_a_cluster_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.check.offline_status.GIVES_UP_S", 1.0)
    path = tmp_path / "mm2.properties"
    one, two = free_ports(2)
    path.write_text(
        "clusters = A, B\nA->B.enabled = true\n"
        f"A.bootstrap.servers = 127.0.0.1:{one}\nB.bootstrap.servers = 127.0.0.1:{two}\n"
    )
    flow, parts = look(path)
    assert (flow.state, parts) == ("UNKNOWN", [])
    assert flow.reason.endswith("[UNREACHABLE]")
    assert run(["status", str(path)]) == 3, "nobody knows"
