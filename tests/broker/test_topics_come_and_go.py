"""Topics of a `format("twinlog")` stream are deleted and re-created, on a real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.client import Outgoing, eventually, produce
from tests.support.topics import create_topic, delete_topic, topic_names
from twinlog.records.spark_api import HAS_LIMITS
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


def numbers(first: int, end: int) -> list[Outgoing]:
    return [Outgoing(b"k", b"%d" % at) for at in range(first, end)]


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row["value"]) for row in frame.select("value").collect())


@pytest.fixture
def names(source_cluster: LocalCluster, fresh_topic: str) -> Iterator[tuple[str, str]]:
    """Names of two topics with one partition each. The topics exist before the test."""
    both = fresh_topic, f"{fresh_topic}-other"
    for one in both:
        create_topic(source_cluster, one)
    yield both
    for one in both:
        delete_topic(source_cluster, one)


@pytest.fixture
def stream(spark: SparkSession, source_cluster: LocalCluster, names: tuple[str, str]) -> DataFrame:
    rows = spark.readStream.format("twinlog").option("subscribe", ",".join(names))
    rows = rows.option("kafka.bootstrap.servers", source_cluster.bootstrap)
    rows = rows.option("startingOffsets", "earliest").option("failOnDataLoss", "false")
    if HAS_LIMITS:
        rows = rows.option("maxOffsetsPerTrigger", "10")
    return rows.load()


def test_a_running_query_outlives_a_topic_that_it_names(
    spark: SparkSession, source_cluster: LocalCluster, names: tuple[str, str], stream: DataFrame
) -> None:
    kept, gone = names
    query = stream.writeStream.format("memory").queryName(f"q_{kept[-8:]}").start()

    def has(*wanted: range) -> None:
        expected = [at for some in wanted for at in some]

        def is_there() -> bool:
            assert query.isActive, query.exception()
            return values(spark.table(str(query.name))) == expected

        eventually(is_there, what=f"rows {wanted}")

    try:
        produce(source_cluster, kept, numbers(0, 5))
        produce(source_cluster, gone, numbers(100, 120))
        has(range(5), range(100, 120))
        delete_topic(source_cluster, gone)
        eventually(lambda: gone not in topic_names(source_cluster))
        produce(source_cluster, kept, numbers(5, 10))
        has(range(10), range(100, 120))
        create_topic(source_cluster, gone)
        produce(source_cluster, gone, numbers(200, 205))
        has(range(10), range(100, 120), range(200, 205))
    finally:
        query.stop()


@pytest.mark.skipif(not HAS_LIMITS, reason="before Spark 4.2 a run has one micro-batch")
@pytest.mark.parametrize("records", [5, 50], ids=["shorter", "longer"])
def test_available_now_reads_a_topic_that_is_recreated_in_the_meantime(
    source_cluster: LocalCluster,
    names: tuple[str, str],
    stream: DataFrame,
    tmp_path: Path,
    records: int,
) -> None:
    _, again = names
    produce(source_cluster, again, numbers(0, 40))
    seen: list[int] = []

    def batch(rows: DataFrame, number: int) -> None:
        seen.extend(values(rows))
        if number == 1:
            delete_topic(source_cluster, again)
            create_topic(source_cluster, again)
            produce(source_cluster, again, numbers(100, 100 + records))

    writer = stream.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert seen == [*range(20), *range(100, 100 + records)]
