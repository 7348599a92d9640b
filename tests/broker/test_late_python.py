"""Spark gives up a stream's Python process that starts too late (docs/dataframes.md, limits)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce
from tests.support.eventually import PATIENCE_S
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.long]

QUERY = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from twinlog.records import register
brokers, topic, folder = sys.argv[1:]
slow = Path(folder) / "slow"
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
rows = spark.readStream.format("twinlog").option("kafka.bootstrap.servers", brokers)
rows = rows.option("subscribe", topic).option("startingOffsets", "earliest").load()
writer = rows.writeStream.format("parquet").option("path", f"{folder}/rows")
writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
slow.touch()
try:
    writer.start().awaitTermination()
except Exception as error:
    print("ended:", error)
slow.unlink()
writer.start().awaitTermination()
print("rows:", spark.read.parquet(f"{folder}/rows").count())
"""
SLOW_PYTHON = """#!/bin/sh
[ -e {folder}/slow ] && sleep 12
exec {python} "$@"
"""


def test_a_query_whose_python_is_late_ends_and_starts_again(
    source_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, [Outgoing(b"k", b"%d" % at) for at in range(3)])
    python = tmp_path / "python3"
    python.write_text(SLOW_PYTHON.format(folder=tmp_path, python=sys.executable))
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", QUERY, source_cluster.bootstrap, fresh_topic, str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    ended, _, after = done.stdout.partition("rows:")
    assert "Python worker failed to connect back" in ended, done.stdout + done.stderr
    assert "Timed out while waiting" in done.stdout + done.stderr
    assert after.strip() == "3"
