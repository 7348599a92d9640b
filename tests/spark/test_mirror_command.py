"""The command on real Spark. Every record arrives once and in order, whichever process is
killed.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, produce_transaction, read_all
from tests.support.command import ENTRY, Command, all_gone, write_config
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.spark_mirror import (
    PARTITIONS,
    Load,
    alias_of,
    arrived,
    as_copied,
    assert_identical,
    caught_up,
    config,
    orders,
)
from tests.support.standalone import answer_of, free_port
from tests.support.terminal import Terminal
from tests.support.topics import create_topic, delete_topic, topic_configs
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("commands")]


@pytest.mark.witness("mirror --once copies all existing records")
def test_once_copies_existing_records_and_reports_json(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    create_topic(
        source_cluster, fresh_topic, partitions=PARTITIONS, configs={"retention.ms": "7200000"}
    )
    for at, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        produce(source_cluster, fresh_topic, orders(400, begin=400 * at), codec=codec)
    produce_transaction(source_cluster, fresh_topic, orders(40, begin=5000), commit=True)
    produce_transaction(source_cluster, fresh_topic, orders(40, begin=6000), commit=False)
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    arguments = ("mirror", str(file), "--once", "--format", "json", "--listen", "off")

    with Command(tmp_path / "first", *arguments) as first:
        assert first.wait() == 0, first.stderr
    (flow,) = first.json["flows"]
    assert first.json["command"] == "mirror"
    assert (flow["flow"], flow["partitions"], flow["records"], flow["failed"]) == (
        f"A->{alias_of(fresh_topic)}",
        PARTITIONS,
        2040,
        [],
    )
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 2040
    assert topic_configs(target_cluster, f"A.{fresh_topic}")["retention.ms"] == "7200000"
    told = first.stderr.splitlines()
    # every line is about this flow, although log lines may report groups of other tests on the
    # shared brokers
    assert [line for line in told if "A->B" not in line] == [], "no word of Spark's"

    produce(source_cluster, fresh_topic, orders(100, begin=7000))
    with Command(tmp_path / "second", *arguments) as second:
        assert second.wait() == 0, second.stderr
    assert second.json["flows"][0]["records"] == 100, "it resumes where the first run ended"
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 2140


@pytest.mark.witness("killed Spark workers and lease changes cause no loss and no duplicates")
def test_killed_workers_and_lease_changes_under_load_lose_and_repeat_nothing(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    produce(source_cluster, fresh_topic, orders(5000))
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    with Command(tmp_path / "run", "mirror", str(file), "--lease", "4") as mirror:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 5000)
        load = Load(source_cluster, fresh_topic, 5000)
        try:
            for _ in range(4):
                seen = arrived(target_cluster, fresh_topic)
                os.kill(eventually(mirror.lane_pids)[0], signal.SIGKILL)
                eventually(
                    lambda seen=seen: arrived(target_cluster, fresh_topic) > seen + 1000  # type: ignore[misc]
                )
        finally:
            load.stop()
        eventually(lambda: caught_up(source_cluster, target_cluster, fresh_topic))
        below = mirror.children()
        mirror.terminate()
        assert mirror.wait() == 0, mirror.stderr
        assert all_gone(below), "no process is left"
    assert assert_identical(source_cluster, target_cluster, fresh_topic) > 9000
    assert len(mirror.stdout.splitlines()) < 20


def test_killed_driver_leaves_nothing_running_and_its_successor_continues(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    produce(source_cluster, fresh_topic, orders(2000))
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    load = Load(source_cluster, fresh_topic, 2000)
    try:
        with Command(tmp_path / "first", "mirror", str(file)) as first:
            eventually(lambda: arrived(target_cluster, fresh_topic) > 2000)
            below = first.children()
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
            assert all_gone(below), "the JVM and its workers end with the driver"
        with Command(tmp_path / "second", "mirror", str(file)) as second:
            seen = arrived(target_cluster, fresh_topic)
            eventually(lambda: arrived(target_cluster, fresh_topic) > seen + 1000)
            load.stop()
            eventually(lambda: caught_up(source_cluster, target_cluster, fresh_topic))
            second.terminate()
            assert second.wait() == 0, second.stderr
    finally:
        load.stop()
    assert_identical(source_cluster, target_cluster, fresh_topic)


def test_killed_jvm_ends_the_process_to_be_started_again(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    """If Spark's JVM is killed, the mirror exits with 1, so that its supervisor restarts it.
    Otherwise it would remain the leader without lanes. The test also checks that an enabled Spark
    UI listens only on 127.0.0.1.
    """
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    produce(source_cluster, fresh_topic, orders(100))
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    port = free_port()
    page = ("--conf", "spark.ui.enabled=true", "--conf", f"spark.ui.port={port}")
    with Command(tmp_path / "run", "mirror", str(file), "--listen", "off", *page) as mirror:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 100)
        below = mirror.children()
        (jvm,) = [each for each in below if each.name() == "java"]
        (shown,) = answer_of(f"http://127.0.0.1:{port}/api/v1/applications")
        assert shown["name"] == f"twinlog A->{alias_of(fresh_topic)}"
        sockets = [one.laddr for one in jvm.net_connections() if one.status == "LISTEN"]
        assert {one.ip.removeprefix("::ffff:") for one in sockets} == {"127.0.0.1"}
        jvm.kill()
        assert mirror.wait() == 1, mirror.stderr
        assert "Spark's JVM ended by itself" in mirror.stderr
        assert mirror.stderr.rstrip().endswith("[SPARK_DIED]")
        assert all_gone(below)


def test_a_mirror_on_a_terminal_reads_its_configuration_again_and_is_watched(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    more = f"more-{fresh_topic}"
    for topic in (fresh_topic, more):
        create_topic(source_cluster, topic, 1)
        produce(source_cluster, topic, [Outgoing(value=b"v")])
    path = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    flow = f"A->{alias_of(fresh_topic)}"
    taken = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{taken.getsockname()[1]}"
    with taken, Terminal(80, "mirror", str(path), "--listen", address) as mirror:
        mirror.until(lambda text: f"{flow}  STARTING" in text and "starting Spark" in text)
        mirror.until(lambda text: f"{flow}  RUNNING" in text and "at the end" in text)
        assert mirror.screen.is_cursor_shown, "and so it is after kill -9"
        taken.close()
        mirror.until(lambda text: f"http://{address}" in text)
        every_s = {"refresh.topics.interval.seconds": "1"}
        topics = {f"{flow}.topics": f"{fresh_topic}, {more}"}
        config(tmp_path, source_cluster, target_cluster, fresh_topic, **topics, **every_s)
        mirror.process.send_signal(signal.SIGHUP)
        eventually(lambda: len(read_all(target_cluster, f"A.{more}")) == 1)
        said = " ".join(mirror.until(lambda text: "new topic" in text).split())
        assert f"reloaded: {flow}: {flow}.topics: " in said
        assert re.search(rf"\d\d:\d\d:\d\d {flow}: new topic {more}, 1 partition", said)
        with Terminal(120, "status", str(path), "--watch", "--topic", more) as status:
            status.until(lambda text: "AT_END" in text)
            delete_topic(source_cluster, more)
            text = status.until(lambda text: "SOURCE_DELETED" in text)
            assert f"A.{more} is kept" in " ".join(text.split())
            status.interrupt()
            assert status.wait() == 0
            assert (status.screen.is_cursor_shown, "total" in status.text) == (True, False)
        mirror.until(lambda text: "copy kept" in text)
        mirror.interrupt()
        assert mirror.wait() == 0
        assert mirror.screen.is_cursor_shown
        assert f"{flow}: 2 records" in mirror.text, "the summary stands below"
        assert mirror.text.count(f"{flow}  ") == 1, "no line of the screen is left behind above"


@pytest.mark.witness("MirrorMaker 1's script runs with its arguments")
def test_the_script_of_mirror_maker_1_runs_with_its_old_arguments(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    """The script of MirrorMaker 1 runs with its old arguments, and every record is copied. The
    target topic has another number of partitions, so records are partitioned by key.
    """
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    create_topic(target_cluster, fresh_topic, partitions=PARTITIONS - 1)
    produce(source_cluster, fresh_topic, orders(400), codec="gzip")
    consumer, producer = tmp_path / "consumer.properties", tmp_path / "producer.properties"
    write_config(
        consumer,
        {
            "bootstrap.servers": source_cluster.bootstrap,
            "group.id": f"mm1.{fresh_topic}",
            "auto.offset.reset": "earliest",
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
        },
    )
    write_config(producer, {"bootstrap.servers": target_cluster.bootstrap, "acks": "1"})
    script = Path(__file__).resolve().parents[2] / "bin" / "kafka-mirror-maker.sh"
    ended = subprocess.run(
        [
            *(str(script), "--consumer.config", str(consumer), "--producer.config", str(producer)),
            *("--whitelist", f"{fresh_topic}|none", "--num.streams", "1"),
            *("--offset.commit.interval.ms", "5000", "--abort.on.send.failure", "true"),
            *("--once", "--listen", "off"),
        ],
        env={**os.environ, "TWINLOG": ENTRY[0]},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "keys and values are always bytes: key.deserializer" in ended.stderr
    here = sorted(repr(one[1:]) for one in as_copied(read_all(source_cluster, fresh_topic)))
    there = as_copied(read_all(target_cluster, fresh_topic))
    assert sorted(repr(one[1:]) for one in there) == here
    assert len(here) == 400
    for partition, key, *_ in there:
        assert isinstance(key, bytes)
        assert partition == partition_for_key(key, PARTITIONS - 1)
