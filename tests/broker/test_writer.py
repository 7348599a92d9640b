"""`format("twinlog")` writes: what another client reads is what was written, once.

One session serves all of them; each has a topic of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from tests.support.client import Seen, read_all
from tests.support.data_frames import spark_session
from tests.support.topics import create_topic, delete_topic
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import Codec

pytestmark = pytest.mark.broker

NOW_MS = 1_790_000_000_000
PARTITIONS = 3

Write = Callable[..., None]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[2,3]") as session:
        yield session


@pytest.fixture
def topic(source_cluster: LocalCluster, fresh_topic: str) -> Iterator[str]:
    create_topic(source_cluster, fresh_topic, PARTITIONS)
    yield fresh_topic
    delete_topic(source_cluster, fresh_topic)


@pytest.fixture
def options(source_cluster: LocalCluster, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": source_cluster.bootstrap, "topic": topic}


def save(frame: DataFrame, options: Mapping[str, str], **more: str) -> None:
    frame.write.format("twinlog").options(**options).options(**more).mode("append").save()


def committed(cluster: LocalCluster, topic: str) -> list[Seen]:
    return read_all(cluster, topic, isolation="read_committed")


def numbers(spark: SparkSession, end: int) -> DataFrame:
    """Rows whose keys and values are these numbers, in two tasks."""
    rows = spark.range(end, numPartitions=2)
    return rows.select(
        col("id").cast("string").alias("key"), col("id").cast("string").alias("value")
    )


def values(seen: list[Seen]) -> list[int]:
    return sorted(int(one.value or b"-1") for one in seen)


@pytest.mark.witness("DataFrames are written as they are, with every codec")
def test_all_columns_with_every_codec(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    schema = (
        "key binary, value string, partition int, headers array<struct<key string, value binary>>, "
        "ms bigint"
    )
    rows = [
        (b"k", "v" * 3000, 0, [("trace", b"1"), ("none", None)], NOW_MS),
        (None, "", 1, None, NOW_MS + 1),
        (b"", None, 1, [], NOW_MS - 1),
    ]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    frame = frame.withColumn("timestamp", (col("ms") / 1000).cast("timestamp")).drop("ms")
    for codec in Codec:
        save(frame, options, **{"kafka.compression.type": codec.name.lower()})
    seen = committed(source_cluster, topic)
    assert len(seen) == 3 * len(Codec)
    for one in seen:
        key, value, partition, headers, ms = rows[
            0 if one.partition == 0 else 1 + (one.value is None)
        ]
        assert (one.key, one.partition, one.timestamp) == (key, partition, ms)
        assert one.value == (None if value is None else value.encode())
        assert one.headers == tuple(headers or ())
