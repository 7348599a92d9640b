"""An open transaction holds back a read_committed copy. Its producer is reported."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce, producer, read_all
from tests.support.mirror import Mirror
from tests.support.topics import create_topic
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.load import load
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.process.run import MirrorOptions, MirrorResult
from twinlog.sandbox import LocalCluster
from twinlog.survey.open_transactions import HeldBackPartition, held_back

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


def held_back_now(config: FlowConfig) -> list[HeldBackPartition]:
    with ClusterClient(flow_setup(config).source) as source:
        return list(held_back(config, source))


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
    (found,) = held_back_now(config)
    assert (str(found.tp), found.last_stable_offset, found.records) == (f"{fresh_topic}-0", 3, 6)
    assert found.start_offset == 3
    assert f"of producer id {found.producer_id} that began at offset 3" in str(found)
    uncommitted = flow(
        tmp_path, source_cluster, fresh_topic, "A.consumer.isolation.level = read_uncommitted"
    )
    assert held_back_now(uncommitted) == []
    client.abort_transaction(30)
    # the coordinator responds before the marker is in the log
    eventually(lambda: not held_back_now(config), what="the marker of the abort")


@pytest.mark.witness("the producer of an open transaction that holds back the copy is named")
def test_once_ends_at_an_open_transaction_and_names_its_producer(
    tmp_path: Path,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alias = f"A{uuid.uuid4().hex[:8]}"
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"clusters = {alias}, B\n{alias}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"B.bootstrap.servers = {target_cluster.bootstrap}\n"
        f"{alias}->B.enabled = true\ntopics = {fresh_topic}\nreplication.factor = 1\n"
    )
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"before")] * 3)
    client = producer(source_cluster, config={"transactional.id": f"test-{uuid.uuid4()}"})
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(fresh_topic, value=b"open")
    client.flush(30)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"behind it")] * 5)

    def without_spark(config: MirrorConfig, file: Path, options: MirrorOptions) -> MirrorResult:
        assert options.once
        with Mirror(file, once=True) as mirror:
            flows = mirror.wait()
        return MirrorResult(flows=tuple(flows), seconds=1.0, errors=())

    monkeypatch.setattr("twinlog.control.process.run.run_mirror", without_spark)
    arguments = ["mirror", str(path), "--once", "--listen", "off"]
    assert run(arguments) == 0
    told = capsys.readouterr().out
    assert f"{fresh_topic}-0: " in told
    assert "that began at offset 3" in told
    remote = f"{alias}.{fresh_topic}"
    assert [r.value for r in read_all(target_cluster, remote)] == [b"before"] * 3

    client.commit_transaction(30)
    assert run(arguments) == 0
    assert "transaction" not in capsys.readouterr().out
    here = [r.value for r in read_all(source_cluster, fresh_topic, isolation="read_committed")]
    assert [r.value for r in read_all(target_cluster, remote)] == here
    assert len(here) == 9


@pytest.mark.witness("a transaction that never ends is reported while the mirror runs")
def test_a_running_mirror_names_the_producer_of_an_open_transaction_until_it_ends(
    tmp_path: Path,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("twinlog.control.risk.source_watch.ASK_AFTER_S", 0.5)
    monkeypatch.setattr("twinlog.control.risk.source_watch.LONGEST_S", 1.0)
    monkeypatch.setattr("twinlog.control.risk.source_watch.GRACE_S", 0.0)
    alias = f"A{uuid.uuid4().hex[:8]}"
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"clusters = {alias}, B\n{alias}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"B.bootstrap.servers = {target_cluster.bootstrap}\n"
        f"{alias}->B.enabled = true\ntopics = {fresh_topic}\nreplication.factor = 1\n"
    )
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"before")] * 3)
    client = producer(source_cluster, config={"transactional.id": f"test-{uuid.uuid4()}"})
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(fresh_topic, value=b"open", partition=0)
    client.flush(30)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"behind it", partition=0)] * 5)
    with Mirror(path) as mirror:
        mirror.eventually(lambda parts: parts[0].code == "OPEN_TRANSACTION")
        # the lag is known as soon as a lane has checked the partition
        (part,) = mirror.eventually(lambda parts: parts[0].lag is not None)
        assert part.code == "OPEN_TRANSACTION"
        assert part.lag == 6
        assert "of producer id" in part.message
        assert f"--topic {fresh_topic} --partition 0 --start-offset 3" in part.message
        client.abort_transaction(30)
        mirror.eventually(lambda parts: not parts[0].code and parts[0].state == "AT_END")
        mirror.stop()
    values = [record.value for record in read_all(target_cluster, f"{alias}.{fresh_topic}")]
    assert values == [b"before"] * 3 + [b"behind it"] * 5
