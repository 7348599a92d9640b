"""A query of Spark's own `format("kafka")` changes only its format, and keeps its checkpoint.

Spark's own source runs in the newest Spark for which Maven Central has its jars. The environment is
the one of `scripts/bench frames`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.own_spark import OwnSpark, own_spark
from benchmarks.progress import Progress
from tests.support.client import Outgoing, produce
from tests.support.eventually import PATIENCE_S
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.long]

QUERY = """
def run(spark, source, brokers, topic, rows, checkpoint):
    reader = spark.readStream.format(source).option("kafka.bootstrap.servers", brokers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    writer = reader.load().select("value").writeStream.format("parquet").option("path", rows)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()
"""
OWN = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.jars", sys.argv[1]).getOrCreate()
run(spark, "kafka", *sys.argv[2:])
spark.stop()
"""


@pytest.fixture(scope="module")
def own() -> OwnSpark:
    try:
        return own_spark(Progress())
    except subprocess.CalledProcessError as error:
        pytest.skip(f"Spark's own source cannot be fetched: {error}")


def numbers(first: int, end: int) -> list[Outgoing]:
    return [Outgoing(b"k", b"%d" % at, partition=at % 2) for at in range(first, end)]


def forget_the_last_commit(checkpoint: Path) -> None:
    """Remove Spark's last commit file, as if Spark had died before it committed its last
    micro-batch.
    """
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    last.unlink()


def test_a_checkpoint_of_sparks_own_source_is_read_on(
    own: OwnSpark,
    spark: SparkSession,
    source_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
) -> None:
    """A query changes from Spark's own `kafka` source to `twinlog` and back, and reads each record
    once. A micro-batch that the `kafka` source did not commit is repeated with the same rows.
    """

    def where(rows: str, checkpoint: str) -> list[str]:
        here = [source_cluster.bootstrap, fresh_topic]
        return [*here, str(tmp_path / rows), str(tmp_path / checkpoint)]

    def theirs() -> None:
        jars = ",".join(map(str, own.jars))
        done = subprocess.run(
            [own.python, "-c", QUERY + OWN, jars, *where("rows", "checkpoint")],
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            | {"PYSPARK_PYTHON": str(own.python), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]

    def ours(rows: str = "rows", checkpoint: str = "checkpoint") -> None:
        names: dict[str, object] = {}
        exec(QUERY, names)  # noqa: S102 (it is above)
        run = names["run"]
        assert callable(run)
        run(spark, "twinlog", *where(rows, checkpoint))

    def values(rows: str = "rows") -> list[int]:
        found = spark.read.schema("value binary").parquet(str(tmp_path / rows)).collect()
        return sorted(int(one.value) for one in found)

    create_topic(source_cluster, fresh_topic, 2)
    produce(source_cluster, fresh_topic, numbers(0, 20))
    theirs()
    produce(source_cluster, fresh_topic, numbers(20, 30))
    theirs()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "killed")
    forget_the_last_commit(tmp_path / "killed")
    produce(source_cluster, fresh_topic, numbers(30, 40))
    ours()
    assert values() == list(range(40))
    # to other files, because the file sink skips a micro-batch that it has already written
    ours("repeated", "killed")
    assert values("repeated/part-*") == list(range(20, 40))
    produce(source_cluster, fresh_topic, numbers(40, 50))
    theirs()
    assert values() == list(range(50))
