"""A Spark stream continues on the copy of its topic after `twinlog offsets rewrite-checkpoint`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.client import Outgoing, produce, produce_transaction
from tests.support.command import write_config
from tests.support.data_frames import spark_session
from tests.support.mirror import Mirror
from tests.support.topics import create_topic
from twinlog.cli.main import run
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


def numbers(first: int, end: int) -> list[Outgoing]:
    return [Outgoing(b"k", b"%d" % at, partition=at % 2) for at in range(first, end)]


def test_a_stream_moves_to_the_copy_and_back(
    spark: SparkSession,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A stream moves to the target and back. Its output has each record once, although offsets
    differ between the clusters. A micro-batch that was not committed before the move is repeated on
    the target, with the same rows.
    """
    there = f"B{fresh_topic[-8:]}"
    file = write_config(
        tmp_path / "mm2.properties",
        {
            "clusters": f"A, {there}",
            "A.bootstrap.servers": source_cluster.bootstrap,
            f"{there}.bootstrap.servers": target_cluster.bootstrap,
            f"A->{there}.enabled": "true",
            f"A->{there}.topics": fresh_topic,
            "replication.factor": 1,
        },
    )

    def read(cluster: LocalCluster, topic: str, checkpoint: str, into: str = "rows") -> None:
        rows = spark.readStream.format("twinlog").option("subscribe", topic)
        rows = rows.option("kafka.bootstrap.servers", cluster.bootstrap)
        rows = rows.option("startingOffsets", "earliest")
        writer = rows.load().select("value").writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / into))
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def values(of: str = "rows") -> list[int]:
        rows = spark.read.schema("value binary").parquet(str(tmp_path / of))
        return sorted(int(row.value) for row in rows.collect())

    def rewrite(old: str, new: str, *more: str) -> int:
        paths = (str(tmp_path / old), str(tmp_path / new))
        return run(["offsets", "rewrite-checkpoint", str(file), *paths, *more])

    def copy() -> None:
        with Mirror(file, once=True) as mirror:
            mirror.wait()

    remote = f"A.{fresh_topic}"
    create_topic(source_cluster, fresh_topic, 2)
    # the aborted records exist only on the source, whose log ends with a marker
    produce_transaction(source_cluster, fresh_topic, numbers(900, 904), commit=False)
    produce_transaction(source_cluster, fresh_topic, numbers(0, 10), commit=True)
    copy()
    read(source_cluster, fresh_topic, "on-A")
    produce(source_cluster, fresh_topic, numbers(10, 20))
    read(source_cluster, fresh_topic, "on-A")
    assert rewrite("on-A", "too-soon") == 1
    assert "[NOT_COPIED]" in capsys.readouterr().err
    copy()
    # simulates a query that died before it committed its second micro-batch
    shutil.copytree(tmp_path / "on-A", tmp_path / "killed")
    for path in (tmp_path / "killed" / "commits").glob("*1*"):
        path.unlink()
    assert rewrite("on-A", "on-B") == 0
    assert "the query resumes after micro-batch 1\n" in capsys.readouterr().out
    assert rewrite("killed", "killed-on-B") == 0
    assert "the query repeats micro-batch 1\n" in capsys.readouterr().out
    produce(source_cluster, fresh_topic, numbers(20, 30))
    copy()
    read(target_cluster, remote, "on-B")
    assert values() == list(range(30))
    # to a new output folder, because the file sink skips a micro-batch that it has already written
    read(target_cluster, remote, "killed-on-B", "repeated")
    # twice, because Spark 4.0 with AvailableNow ends a run after a repeated micro-batch
    read(target_cluster, remote, "killed-on-B", "repeated")
    assert values("repeated/part-*") == list(range(10, 30))
    assert rewrite("on-B", "home", "--reverse") == 0
    produce(source_cluster, fresh_topic, numbers(30, 40))
    read(source_cluster, fresh_topic, "home")
    assert values() == list(range(40))
