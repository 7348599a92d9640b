"""A session of a user's own whose Python workers are forked from `twinlog.records.daemon`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.eventually import PATIENCE_S
from tests.support.topics import add_partitions, create_topic
from twinlog.mirror.copy.partitioner import partition_for_key
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]

SESSION = """
import sys
from pyspark.sql import SparkSession
from twinlog.records import partitioned, register
brokers, topic = {"kafka.bootstrap.servers": sys.argv[1]}, sys.argv[2]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.python.daemon.module", "twinlog.records.daemon").getOrCreate()
)
register(spark)
def loaded(_):
    return [name in sys.modules for name in ("pyarrow", "twinlog.records.write.tasks")]
"""
READ = """
print(spark.sparkContext.parallelize([0], 1).map(loaded).collect())
rows = spark.read.format("twinlog").options(**brokers, subscribe=topic).load()
for _ in range(2):
    print(rows.limit(1).count(), rows.where("partition = 1").head(1)[0].partition, rows.count())
spark.stop()
"""
WRITE = """
options = {**brokers, "topic": topic}
rows = spark.range(100, numPartitions=2).selectExpr("string(id) AS key", "string(id) AS value")
for _ in range(2):
    placed = partitioned(rows, options)
    print("placed", flush=True)
    sys.stdin.readline()
    placed.write.format("twinlog").options(**options).mode("append").save()
    print("written", flush=True)
spark.stop()
"""


def session(script: str, cluster: LocalCluster, topic: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SESSION + script, cluster.bootstrap, topic],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.witness("Spark's workers are forked with what reading needs")
def test_workers_have_loaded_what_they_need(source_cluster: LocalCluster, fresh_topic: str) -> None:
    create_topic(source_cluster, fresh_topic, 2)
    records = [Outgoing(b"k", b"%d" % at, partition=at % 2) for at in range(3000)]
    produce(source_cluster, fresh_topic, records)
    said, problems = session(READ, source_cluster, fresh_topic).communicate(timeout=PATIENCE_S)
    assert said.splitlines() == ["[[True, True]]", "1 1 3000", "1 1 3000"], problems


@pytest.mark.long
def test_a_topic_that_has_grown_since_rows_were_placed(
    source_cluster: LocalCluster, fresh_topic: str
) -> None:
    """A warning says it, and nothing else changes; who asks again has all partitions."""
    create_topic(source_cluster, fresh_topic, 2)
    with session(WRITE, source_cluster, fresh_topic) as running:
        assert running.stdout is not None
        assert running.stdin is not None
        for grows in (True, False):
            assert running.stdout.readline() == "placed\n"
            if grows:
                add_partitions(source_cluster, fresh_topic, 3)
            running.stdin.write("\n")
            running.stdin.flush()
            assert running.stdout.readline() == "written\n"
        _, problems = running.communicate(timeout=PATIENCE_S)
    warning = f"{fresh_topic} has 3 partitions by now, and rows are placed among the 2"
    assert problems.count(warning) == 1
    seen = read_all(source_cluster, fresh_topic, isolation="read_committed")
    keys = [b"%d" % at for at in range(100)]
    expected = [(key, partition_for_key(key, count)) for key in keys for count in (2, 3)]
    assert sorted((one.key or b"", one.partition) for one in seen) == sorted(expected)
