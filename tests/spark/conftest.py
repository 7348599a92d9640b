"""A standalone cluster of Spark, and a topic of orders for a mirror that runs on it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_mirror import PARTITIONS, Orders, config
from tests.support.standalone import Cluster
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A $SPARK_CONF_DIR with an operator's settings for the master, the workers and the mirror."""
    folder = tmp_path / "conf"
    folder.mkdir()
    lines = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
    }
    text = "".join(f"{key} {value}\n" for key, value in lines.items())
    (folder / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    return folder


@pytest.fixture
def quick_jvms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set JVM options for launchers, daemons, drivers and executors that live only for seconds."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


@pytest.fixture
def cluster(tmp_path: Path, conf: Path, quick_jvms: None) -> Iterator[Cluster]:
    """A cluster without a running master. It is ended after the test."""
    cluster = Cluster(tmp_path)
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def orders(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> Orders:
    """A topic with 3000 orders, and the configuration of a mirror that copies it."""
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    made = Orders(source=source_cluster, target=target_cluster, topic=fresh_topic, file=file)
    made.produce(3000)
    return made
