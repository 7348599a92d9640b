"""`format("twinlog")` over Spark Connect, with a server that the client process starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.eventually import PATIENCE_S
from tests.support.rig import Rig
from tests.support.topics import create_topic
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.records.spark_api import HAS_STREAM_WRITERS
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]

CONNECT = """
import sys
from pyspark.sql import SparkSession
from twinlog.records import register
spark = SparkSession.builder.remote("local[2]").getOrCreate()
given = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
every = spark.read.format("twinlog").options(**given).load()
frame = every.where("partition = 1")
print(sorted(int(row.value) for row in frame.collect()))
register(spark)
print(type(spark).__module__, sorted(int(row.value) for row in frame.collect()))
"""
UPSTREAM = """
given = {"kafka.bootstrap.servers": sys.argv[4], "subscribe": sys.argv[5], "upstream": sys.argv[6]}
copies = spark.read.format("twinlog").options(**given).load()
place = [every[name] == copies["_upstream"][name] for name in ("topic", "partition", "offset")]
print(every.join(copies, [*place, every["value"] == copies["value"]]).count())
"""
STREAM = """
def stream():
    rows = spark.readStream.format("twinlog").options(**given).option("startingOffsets", "earliest")
    rows = rows.load().writeStream.format("parquet").option("path", sys.argv[3] + "/rows")
    return rows.option("checkpointLocation", sys.argv[3] + "/checkpoint")
running = stream().start()
running.processAllAvailable()
print(len(running.recentProgress) > 0, running.exception())
running.stop()
stream().trigger(availableNow=True).start().awaitTermination()
rows = spark.read.parquet(sys.argv[3] + "/rows").selectExpr("_upstream.offset AS upstream")
print(sorted(row.upstream for row in rows.collect()))
"""

MIRROR = """
import twinlog
from twinlog.errors import EnvironmentMissing
try:
    twinlog.run(spark, "mm2.properties")
except EnvironmentMissing as error:
    print(error)
"""
WRITE = """
from pyspark.sql.functions import col
from twinlog.records import partitioned
there = {"kafka.bootstrap.servers": sys.argv[1], "topic": sys.argv[4]}
rows = spark.range(1000, numPartitions=2).select(col("id").cast("string").alias("key"))
rows = rows.withColumn("value", col("key"))
partitioned(rows, there).write.format("twinlog").options(**there).mode("append").save()
"""
WRITE_STREAM = """
for part in range(2):
    spark.range(1000 + 100 * part, 1100 + 100 * part).write.json(sys.argv[3] + "/in", mode="append")
files = spark.readStream.schema("id long").json(sys.argv[3] + "/in")
files = files.selectExpr("string(id) AS key", "string(id) AS value")
for _ in range(2):
    partitioned(files, there).writeStream.format("twinlog").options(**there).option(
        "checkpointLocation", sys.argv[3] + "/written"
    ).trigger(availableNow=True).start().awaitTermination()
"""


def over_connect(script: str, *arguments: str) -> list[str]:
    """Run a script over Spark Connect, and return its output lines. The server ends with the
    script.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"{script}spark.stop()", *arguments],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def topic(source_cluster: LocalCluster, fresh_topic: str) -> str:
    create_topic(source_cluster, fresh_topic, 2)
    records = [Outgoing(b"k", b"%d" % at, partition=at % 2) for at in range(10)]
    produce(source_cluster, fresh_topic, records)
    return fresh_topic


def test_a_dataframe_is_read_over_spark_connect_and_a_mirror_is_refused(
    source_cluster: LocalCluster, topic: str
) -> None:
    """A DataFrame is read over Spark Connect, where Spark finds the format without registration.
    Registering it again has no effect. A mirror is refused.
    """
    said = over_connect(CONNECT, source_cluster.bootstrap, topic)
    assert said == ["[1, 3, 5, 7, 9]", "pyspark.sql.connect.session [1, 3, 5, 7, 9]"]
    said = over_connect(CONNECT + MIRROR, source_cluster.bootstrap, topic)
    assert "which lanes need (a session of Spark Connect has none): use a session of" in said[-1]
    assert said[-1].endswith("[ENVIRONMENT]")


@pytest.mark.long
def test_a_copy_over_spark_connect(
    source_cluster: LocalCluster, target_cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """Over Spark Connect, a DataFrame of a mirrored topic can be joined with one of the source
    topic by `_upstream`. A streaming query returns the same `_upstream` offsets, while it runs and
    after a restart.
    """
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        rig.topic = topic
        with rig.mirror(once=True) as mirror:
            (flow,) = mirror.wait()
        assert [part.state for part in flow.partitions] == ["DONE", "DONE"]
        here = (source_cluster.bootstrap, topic, str(tmp_path))
        there = (target_cluster.bootstrap, rig.remote, rig.alias)
        said = over_connect(CONNECT + UPSTREAM + STREAM, *here, *there)
    assert said[2:] == ["10", "True None", "[0, 0, 1, 1, 2, 2, 3, 3, 4, 4]"]


@pytest.mark.long
def test_writes_over_spark_connect(
    source_cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """Over Spark Connect, a batch query and a restarted streaming query write each row once. Keys
    are in the partitions that Java's producer would choose.
    """
    written, script, count = f"{topic}-written", CONNECT + WRITE, 1000
    if HAS_STREAM_WRITERS:
        script, count = script + WRITE_STREAM, 1200
    create_topic(source_cluster, written, 3)
    over_connect(script, source_cluster.bootstrap, topic, str(tmp_path), written)
    seen = read_all(source_cluster, written, isolation="read_committed")
    assert sorted(int(one.value or b"-1") for one in seen) == list(range(count))
    assert {one.partition for one in seen} == {0, 1, 2}
    assert all(one.partition == partition_for_key(one.key or b"", 3) for one in seen)
