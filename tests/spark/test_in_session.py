"""`twinlog.run` in the caller's own Spark session, with a local master and on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_S
from tests.support.spark_mirror import Orders
from tests.support.standalone import HOME, Cluster

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
def master(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """A local master, or the address of a standalone master that has one worker with two slots."""
    return cluster.start() if request.param == "cluster" else str(request.param)


def session(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    script = tmp_path / "session.py"
    script.write_text(SESSION)
    more = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(HOME)}
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        env={**os.environ, **more},
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
    orders: Orders, tmp_path: Path, master: str
) -> None:
    lines = said(session(tmp_path, master, str(orders.file), "once"), tmp_path)
    assert lines == ["refused: SPARK_UNAUTHENTICATED", "copied: 3000 of the session: 10 7"]
    assert orders.are_identical()


@pytest.mark.parametrize("master", ["local[2]"], indirect=True)
def test_an_interrupt_ends_the_mirror_and_not_the_session(
    orders: Orders, tmp_path: Path, master: str
) -> None:
    process = session(tmp_path, master, str(orders.file), "on")
    try:
        orders.arrive()
        process.send_signal(signal.SIGINT)
        assert said(process, tmp_path)[1] == "copied: 3000 of the session: 10 7"
    finally:
        process.kill()
    assert orders.are_identical()
