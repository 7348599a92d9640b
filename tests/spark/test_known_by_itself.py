"""`format("twinlog")` in a session that nobody told of it: Twinlog is installed, no more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.eventually import PATIENCE_S
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]

SCRIPT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
kafka = {"kafka.bootstrap.servers": sys.argv[1]}
orders = spark.read.format("twinlog").options(**kafka, subscribe=sys.argv[2]).load()
some = orders.where("partition = 1 AND offset >= 2")
print(sorted(int(row.value) for row in some.collect()))
rows = some.select("key", "value").coalesce(1)
rows.write.format("twinlog").options(**kafka, topic=sys.argv[3]).mode("append").save()
print("twinlog" in sys.modules)
from twinlog.records import register
for _ in range(2):
    register(spark)
    print(sorted(int(row.value) for row in some.collect()))
spark.stop()
"""


def test_a_session_that_nobody_told(source_cluster: LocalCluster, fresh_topic: str) -> None:
    """It reads and writes; filters, which Spark does not pass then, are Spark's. `register` is no
    error there, and reads the same.
    """
    written = f"{fresh_topic}-written"
    create_topic(source_cluster, fresh_topic, 2)
    create_topic(source_cluster, written, 2)
    records = [Outgoing(b"k", b"%d" % at, partition=at % 2) for at in range(10)]
    produce(source_cluster, fresh_topic, records)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, source_cluster.bootstrap, fresh_topic, written],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[5, 7, 9]", "False", "[5, 7, 9]", "[5, 7, 9]"]
    seen = read_all(source_cluster, written, isolation="read_committed")
    assert sorted(int(one.value or b"-1") for one in seen) == [5, 7, 9]
