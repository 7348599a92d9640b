"""The sandbox's brokers start, die and restart. An independent client checks them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.support.client import Outgoing, produce, read_all
from tests.support.eventually import eventually
from tests.support.stopwatch import Stopwatch
from tests.support.topics import admin, create_topic, end_offsets, leader
from twinlog.errors import EnvironmentMissing, UsageError
from twinlog.sandbox import QUICK_JVM, LocalCluster, registry
from twinlog.sandbox.layout import HOST, free_ports
from twinlog.sandbox.processes import MarkedProcess

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def single() -> Iterator[LocalCluster]:
    """A broker that tests may damage. No other file uses it."""
    with LocalCluster("single", jvm_flags=QUICK_JVM) as cluster:
        yield cluster


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_shared_broker_takes_every_codec(
    source_cluster: LocalCluster, fresh_topic: str, codec: str
) -> None:
    create_topic(source_cluster, fresh_topic, partitions=2)
    headers = (("trace", b"1"), ("trace", None), ("", b""))
    sent = [
        Outgoing(b"k%d" % n, b"v" * 100, headers, timestamp=1_700_000_000_000 + n, partition=n % 2)
        for n in range(10)
    ]
    produce(source_cluster, fresh_topic, [*sent, Outgoing(b"gone", partition=0)], codec=codec)

    seen = read_all(source_cluster, fresh_topic)

    expected = [record for part in (0, 1) for record in sent if record.partition == part]
    content = [Outgoing(r.key, r.value, r.headers, r.timestamp, r.partition) for r in seen]
    assert expected == [record for record in content if record.key != b"gone"]
    assert [r.value for r in seen if r.key == b"gone"] == [None]
    assert end_offsets(source_cluster, fresh_topic) == {0: 6, 1: 5}


@pytest.mark.witness("a killed sandbox broker restarts with its data")
def test_killed_broker_comes_back_with_its_data(single: LocalCluster, fresh_topic: str) -> None:
    create_topic(single, fresh_topic)
    produce(single, fresh_topic, [Outgoing(b"k", b"v")])
    address = single.bootstrap

    single.kill(1)
    assert single.broker_pids == {}
    for port in single.ports[1].values():
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((HOST, port))  # as a broker of another cluster would try
    single.restart(1)

    assert single.bootstrap == address
    assert [b"v"] == [record.value for record in read_all(single, fresh_topic)]


def test_frozen_broker_is_silent_until_it_thaws(single: LocalCluster, fresh_topic: str) -> None:
    create_topic(single, fresh_topic)
    single.freeze(1)
    try:
        assert set(single.broker_pids) == {1}
        with pytest.raises(KafkaException):
            admin(single).list_topics(timeout=0.5)
    finally:
        single.thaw(1)
    assert eventually(lambda: leader(single, fresh_topic) == 1)


def test_restart_applies_changed_settings(single: LocalCluster, fresh_topic: str) -> None:
    single.config = {"message.max.bytes": "1000"}
    single.restart(1)
    try:
        create_topic(single, fresh_topic)
        with pytest.raises(KafkaException, match=r"(?i)too large|MSG_SIZE"):
            produce(single, fresh_topic, [Outgoing(value=b"x" * 2000)])
    finally:
        single.config = {}
        single.restart(1)


def test_leader_moves_when_its_broker_is_killed(source3: LocalCluster, fresh_topic: str) -> None:
    configs = {"min.insync.replicas": "2"}
    create_topic(source3, fresh_topic, replication_factor=3, configs=configs)
    produce(source3, fresh_topic, [Outgoing(value=b"before")])
    dead = leader(source3, fresh_topic)

    source3.kill(dead)
    try:
        eventually(lambda: leader(source3, fresh_topic) not in {dead, -1})
        produce(source3, fresh_topic, [Outgoing(value=b"after")])
    finally:
        source3.restart(dead)

    assert {1, 2, 3} == set(source3.broker_pids)
    assert [b"before", b"after"] == [r.value for r in read_all(source3, fresh_topic)]


def test_stop_leaves_no_process_port_or_folder() -> None:
    with LocalCluster("brief", jvm_flags=QUICK_JVM) as cluster:
        folder, pids = cluster.folder, cluster.broker_pids
        assert folder is not None
    assert not folder.exists()
    assert not any(MarkedProcess(pid=pid, marker=str(folder)).alive for pid in pids.values())


@pytest.mark.witness("sandbox brokers end with their owner")
@pytest.mark.faults
def test_brokers_die_with_a_killed_owner(tmp_path: Path) -> None:
    program = (
        "import sys, time; from twinlog.sandbox import LocalCluster, QUICK_JVM\n"
        "cluster = LocalCluster('orphan', jvm_flags=QUICK_JVM); cluster.start()\n"
        "print(cluster.folder, cluster.broker_pids[1], flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        folder, pid = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
    broker = MarkedProcess(pid=int(pid), marker=folder)
    eventually(lambda: not broker.alive)
    eventually(lambda: not Path(folder).exists())


def test_broken_setting_is_reported_with_the_log() -> None:
    cluster = LocalCluster("broken", config={"num.io.threads": "none"}, jvm_flags=QUICK_JVM)
    with Stopwatch() as since, pytest.raises(EnvironmentMissing, match=r"num\.io\.threads"):
        cluster.start()
    assert since.seconds < 30
    assert cluster.broker_pids == {}


def test_registry_outlives_its_starter_and_ends_only_its_own(tmp_path: Path) -> None:
    starter = (
        "import json, sys, pathlib; from twinlog.sandbox import registry\n"
        "(one,) = registry.up(['one'], folder=pathlib.Path(sys.argv[1]))\n"
        "print(json.dumps([one.bootstrap, one.pids]))"
    )
    command = [sys.executable, "-c", starter, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    bootstrap, pids = json.loads(answer.stdout)

    (known,) = registry.status(tmp_path)
    assert (bootstrap, {int(node): pid for node, pid in pids.items()}, True) == (
        known.bootstrap,
        dict(known.pids),
        known.running,
    )
    assert [known] == registry.up(["one"], folder=tmp_path)
    with pytest.raises(UsageError, match="with 1 broker, not 3; remove it first, with its data"):
        registry.up(["one"], brokers=3, folder=tmp_path)
    with pytest.raises(UsageError, match="no cluster 'two'"):
        registry.down(["two"], folder=tmp_path)

    # the process ID belongs to another process in the meantime
    os.kill(known.pids[1], signal.SIGKILL)
    eventually(lambda: not registry.status(tmp_path)[0].running)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (tmp_path / "one" / "node-1" / "pid").write_text(str(stranger.pid))
        registry.down(folder=tmp_path)
        assert stranger.poll() is None
        stranger.kill()
    assert registry.status(tmp_path) == []


def test_registry_continues_with_the_data_of_a_dead_cluster(
    tmp_path: Path, fresh_topic: str
) -> None:
    (first,) = registry.up(["one"], folder=tmp_path)
    try:
        create_topic(first.bootstrap, fresh_topic)
        produce(first.bootstrap, fresh_topic, [Outgoing(value=b"kept")])
        os.kill(first.pids[1], signal.SIGKILL)
        eventually(lambda: not registry.status(tmp_path)[0].running)

        (again,) = registry.up(["one"], folder=tmp_path)

        assert first.bootstrap == again.bootstrap
        assert [b"kept"] == [r.value for r in read_all(again.bootstrap, fresh_topic)]
    finally:
        registry.down(folder=tmp_path)


@pytest.mark.parametrize("name", ["", "../up", "a b", ".hidden"])
def test_registry_refuses_names_that_are_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a cluster"):
        registry.up([name], folder=tmp_path)


def test_free_ports_differ() -> None:
    assert len(set(free_ports(50))) == 50
