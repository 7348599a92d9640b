"""`twinlog.run` in a session that is somebody's, on this machine and on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import produce
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.spark_mirror import PARTITIONS, arrived, assert_identical, config, orders
from tests.support.standalone import HOME, Cluster, conf  # noqa: F401 (a fixture)
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]

SESSION = """
import sys
from pyspark.sql import SparkSession
import twinlog
from twinlog.errors import ConfigError
from twinlog.spark.authentication import AUTHENTICATED

master, file, once = sys.argv[1:]
theirs = SparkSession.builder.master(master).appName("theirs").config("spark.ui.enabled", "false")
bare = theirs.getOrCreate()
try:
    twinlog.run(bare, file, once=True)
except ConfigError as error:
    print("refused:", error.code, flush=True)
bare.stop()
for key, value in AUTHENTICATED.items():
    theirs = theirs.config(key, value)
spark = theirs.getOrCreate()
result = twinlog.run(spark, file, once=once == "once", lanes=1)
counter = spark.sparkContext.accumulator(0)
spark.sparkContext.parallelize(range(5)).foreach(counter.add)
copied = sum(flow.records for flow in result.flows)
print("copied:", copied, "of the session:", counter.value, spark.range(7).count(), flush=True)
spark.stop()
"""


@pytest.fixture
def master(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    conf: Path,  # noqa: F811 (the fixture)
) -> Iterator[str]:
    """A local master, or the address of a standalone one with a worker of two slots."""
    assert conf.is_dir()
    if request.param != "cluster":
        yield request.param
        return
    cluster = Cluster(tmp_path)
    try:
        cluster.start_master()
        cluster.add_worker()
        yield cluster.url
    finally:
        cluster.end()


@pytest.fixture
def file(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> Path:
    """A configuration whose topic has 3000 records."""
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    produce(source_cluster, fresh_topic, orders(3000))
    return config(tmp_path, source_cluster, target_cluster, fresh_topic)


def session(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    script = tmp_path / "session.py"
    script.write_text(SESSION)
    more = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(HOME)}
    more |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        env={**os.environ, **more, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "session.log").open("w"),
        text=True,
    )


def said(process: subprocess.Popen[str], tmp_path: Path) -> list[str]:
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, (tmp_path / "session.log").read_text()[-4000:]
    return out.splitlines()


@pytest.mark.parametrize("master", ["local[2]", "cluster"], indirect=True)
def test_a_mirror_runs_in_a_session_and_leaves_it_as_it_was(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    master: str,
    file: Path,
) -> None:
    lines = said(session(tmp_path, master, str(file), "once"), tmp_path)
    assert lines == ["refused: SPARK_UNAUTHENTICATED", "copied: 3000 of the session: 10 7"]
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 3000


@pytest.mark.parametrize("master", ["local[2]"], indirect=True)
def test_an_interrupt_ends_the_mirror_and_not_the_session(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    master: str,
    file: Path,
) -> None:
    process = session(tmp_path, master, str(file), "on")
    try:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 3000)
        process.send_signal(signal.SIGINT)
        assert said(process, tmp_path)[1] == "copied: 3000 of the session: 10 7"
    finally:
        process.kill()
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 3000
