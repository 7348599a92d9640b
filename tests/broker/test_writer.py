"""`format("twinlog")` writes rows, and an independent client reads each row once.

All tests share one session, and each has its own topic.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, lit
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.support.client import Seen, read_all
from tests.support.data_frames import Query
from tests.support.topics import alter_topic_configs, create_topic, delete_topic
from twinlog.cluster.client import ClusterClient
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.records import partitioned, stream_writer
from twinlog.records import save as save_rows
from twinlog.records.spark_api import HAS_STREAM_WRITERS
from twinlog.records.write.options import WriteOptions, parse_write_options
from twinlog.records.write.partitioning import by_partition
from twinlog.records.write.transaction import transactions
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import Codec

pytestmark = pytest.mark.broker

NOW_MS = 1_790_000_000_000
PARTITIONS = 3


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
    """Return rows whose keys and values are the numbers below `end`, in two tasks."""
    rows = spark.range(end, numPartitions=2)
    return rows.select(
        col("id").cast("string").alias("key"), col("id").cast("string").alias("value")
    )


def values(seen: list[Seen]) -> list[int]:
    return sorted(int(one.value or b"-1") for one in seen)


@pytest.mark.witness("DataFrames are written unchanged, with every codec")
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


@pytest.mark.witness("rows of several tasks go to the partitions that Java's producer chooses")
def test_keys_are_placed_as_java_places_them(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    save(partitioned(numbers(spark, 1000), options), options)
    seen = committed(source_cluster, topic)
    assert values(seen) == list(range(1000))
    for one in seen:
        assert one.key is not None
        assert one.partition == partition_for_key(one.key, PARTITIONS)
    brokers = options["kafka.bootstrap.servers"]
    again = spark.read.format("twinlog").option("kafka.bootstrap.servers", brokers)
    assert again.option("subscribe", topic).load().count() == 1000


def test_rows_without_a_key_go_to_all_partitions(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    save(partitioned(numbers(spark, 30).select("value"), options), options)
    seen = committed(source_cluster, topic)
    assert values(seen) == list(range(30))
    assert {one.partition for one in seen} == set(range(PARTITIONS))


def test_rows_may_name_topic_and_partition(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    other = f"{topic}-2"
    create_topic(source_cluster, other, 1)
    rows = [
        (topic, 2, "a", None),
        (other, None, "b", "k"),
        (topic, None, "c", "k"),
        (other, 0, "d", None),
    ]
    frame = spark.createDataFrame(rows, "topic string, partition int, value string, key string")
    save(frame.coalesce(1), {name: one for name, one in options.items() if name != "topic"})
    placed = partition_for_key(b"k", PARTITIONS)
    seen = [(one.partition, one.value) for one in committed(source_cluster, topic)]
    assert sorted(seen) == sorted([(2, b"a"), (placed, b"c")])
    assert [one.value for one in committed(source_cluster, other)] == [b"b", b"d"]
    delete_topic(source_cluster, other)


@pytest.mark.witness("rows of several tasks may name their topics")
def test_rows_of_several_tasks_may_name_their_topics(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    """The rows of one write name several topics with different partition counts, as in a router.
    The write is refused unless `partitioned` has arranged the rows. Then each row is in its topic
    once.
    """
    other = f"{topic}-2"
    create_topic(source_cluster, other, 1)
    named = f"CASE WHEN id % 2 = 0 THEN '{topic}' ELSE '{other}' END AS topic"
    rows = numbers(spark, 500).selectExpr("key", "value", "bigint(value) AS id")
    rows = rows.selectExpr("key", "value", named).repartition(4)
    brokers = {name: one for name, one in options.items() if name != "topic"}
    with pytest.raises(Exception, match=r"\[PARTITION_SHARED\]"):
        save(rows, brokers)
    save(partitioned(rows, brokers), brokers)
    seen = committed(source_cluster, topic)
    assert values(seen) == list(range(0, 500, 2))
    assert all(one.partition == partition_for_key(one.key or b"", PARTITIONS) for one in seen)
    assert values(committed(source_cluster, other)) == list(range(1, 500, 2))
    delete_topic(source_cluster, other)


@pytest.mark.witness("rows that keep their partition are written without a shuffle")
def test_rows_that_keep_their_partition_are_not_shuffled(
    spark: SparkSession,
    source_cluster: LocalCluster,
    topic: str,
    options: Mapping[str, str],
    tmp_path: Path,
) -> None:
    save_rows(numbers(spark, 500), options)
    brokers = {name: one for name, one in options.items() if name != "topic"}
    copy = {**brokers, "topic": create_topic(source_cluster, f"{topic}-copy", PARTITIONS)}
    columns = ["key", "value", "partition", "topic"]

    def read(**more: str) -> DataFrame:
        given = {**brokers, "subscribe": topic, **more}
        return spark.read.format("twinlog").options(**given).load().select(columns)

    def is_shuffled(rows: DataFrame, to: Mapping[str, str] = copy) -> bool:
        return "record_batch" in by_partition(rows, to).columns

    kept = read().where("value != '7'")
    kept.createOrReplaceTempView("kept")
    for rows in (kept, spark.table("kept").select("partition", "value")):
        assert not is_shuffled(rows)
    assert not is_shuffled(kept, brokers)
    packed = partitioned(numbers(spark, 5), options)
    assert by_partition(packed, options) is packed
    for rows in (
        read(minPartitions="7"),
        read(subscribe=f"{topic},{copy['topic']}"),
        kept.drop("partition"),
        kept.withColumn("partition", col("partition") + 0),
        kept.repartition(2),
        kept.union(kept),
        kept.join(kept.select("key"), "key"),
        numbers(spark, 5).withColumn("partition", lit(1)),
    ):
        assert is_shuffled(rows), rows
    assert is_shuffled(kept.withColumn("topic", lit(copy["topic"])), brokers)

    save_rows(kept, copy)
    save_rows(read(minPartitions="7").where("value = '7'"), copy)
    stream = spark.readStream.format("twinlog").options(**brokers, subscribe=topic)
    rows = stream.option("startingOffsets", "earliest").load().select(columns)
    if HAS_STREAM_WRITERS:
        assert not is_shuffled(rows)
        to = {**copy, "checkpointLocation": str(tmp_path / "checkpoint")}
        stream_writer(rows, to).trigger(availableNow=True).start().awaitTermination()
    expected = [(one.partition, one.key) for one in committed(source_cluster, topic)]
    copied = [(one.partition, one.key) for one in committed(source_cluster, copy["topic"])]
    assert sorted(copied) == sorted(expected * (2 if HAS_STREAM_WRITERS else 1))
    delete_topic(source_cluster, copy["topic"])


def test_times_of_the_broker(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    """With LogAppendTime, no response distinguishes an append from a repeat, so the writer reads
    its rows back. Each row must be in the topic once.
    """
    alter_topic_configs(source_cluster, topic, {"message.timestamp.type": "LogAppendTime"})
    save(partitioned(numbers(spark, 500), options), options)
    assert values(committed(source_cluster, topic)) == list(range(500))


@pytest.mark.witness("two tasks that write to the same partition are refused")
def test_two_tasks_for_one_partition_write_nothing(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    """Two tasks send equally many records to one partition. A broker would treat the second batch
    as a repeat of the first, so the write is refused, and nothing is written.
    """
    for rows in (
        numbers(spark, 100).withColumn("partition", lit(1)),
        numbers(spark, 101).withColumn("partition", lit(1)),
        numbers(spark, 100).select(lit("same").alias("value"), lit(0).alias("partition")),
    ):
        with pytest.raises(Exception, match=r"\[PARTITION_SHARED\]"):
            save(rows, options)
    assert committed(source_cluster, topic) == []
    save(partitioned(numbers(spark, 100), options), options)
    assert values(committed(source_cluster, topic)) == list(range(100))


@pytest.mark.witness("a repeated write of a batch is recognised")
def test_a_write_with_an_id_is_done_once(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    rows = partitioned(numbers(spark, 50), options)
    for _ in range(2):
        save(rows, options, writeId=f"day-{topic}")
    assert values(committed(source_cluster, topic)) == list(range(50))
    with pytest.raises(Exception, match="committed with 50 rows, but now has 49") as error:
        save(
            partitioned(numbers(spark, 50).where("value != '7'"), options),
            options,
            writeId=f"day-{topic}",
        )
    assert "[MARK_DIFFERS]" in str(error.value)
    save(rows, options, writeId=f"other-{topic}")
    assert len(committed(source_cluster, topic)) == 100


@pytest.mark.witness("a writeId that is used for another topic is refused")
def test_a_write_id_is_of_one_topic(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    rows, other = numbers(spark, 50), f"{topic}-2"
    create_topic(source_cluster, other, PARTITIONS)
    save(partitioned(rows, options), options, writeId=f"load-{topic}")
    to_other = {**options, "topic": other}
    with pytest.raises(Exception, match=f"micro-batch 0 was committed to {topic}, .* {other}") as e:
        save(partitioned(rows, to_other), to_other, writeId=f"load-{topic}")
    assert "[MARK_DIFFERS]" in str(e.value)
    assert committed(source_cluster, other) == []
    save(partitioned(rows, to_other), to_other, writeId=f"other-{topic}")
    assert values(committed(source_cluster, other)) == list(range(50))
    delete_topic(source_cluster, other)


@pytest.mark.witness("a writeId that is used for another topic's rows is refused")
def test_a_write_id_is_of_the_topics_of_its_rows(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    """A `writeId` belongs to the set of topics that its rows name. A repeated write with the same
    topics in another order has no effect. A write with other topics stops with MARK_DIFFERS.
    """
    places = {name: one for name, one in options.items() if name != "topic"}
    topics = [topic, f"{topic}-2", f"{topic}-3"]
    for name in topics[1:]:
        create_topic(source_cluster, name, 1)

    def write(*names: str) -> None:
        rows = [(name, 0, "1") for name in names]
        frame = spark.createDataFrame(rows, "topic string, partition int, value string")
        save(frame.coalesce(1), places, writeId=f"rows-{topic}")

    first, second, third = topics
    write(first, second)
    write(second, first)
    for names in ((first, third), (second, third), (first, first)):
        with pytest.raises(Exception, match=r"\[MARK_DIFFERS\]"):
            write(*names)
    assert [len(committed(source_cluster, name)) for name in topics] == [1, 1, 0]
    for name in topics[1:]:
        delete_topic(source_cluster, name)


def test_large_batches_are_cut_to_the_topics_limit(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    alter_topic_configs(source_cluster, topic, {"max.message.bytes": "20000"})
    wide = numbers(spark, 200).select("key", expr("rpad(value, 1000, ' ')").alias("value"))
    save(partitioned(wide, options), options)
    assert values(committed(source_cluster, topic)) == list(range(200))
    with pytest.raises(Exception, match=r"\[MESSAGE_TOO_LARGE\]"):
        save(wide.select(expr("rpad('', 30000, 'x')").alias("value")).limit(1), options)


@pytest.mark.parametrize(
    ("columns", "more", "says"),
    [
        ("key", {}, "there is no column value"),
        ("id AS vaule", {}, "did you mean vaule"),
        ("NULL AS value", {}, "column value is void, not string or binary"),
        ("id AS value", {}, "column value is bigint"),
        ("value, 'x' AS partition", {}, "column partition is string, not int"),
        ("value", {"topics": "x"}, "option topics: unknown option; did you mean topic"),
        ("value", {"kafka.acks": "2"}, "kafka.acks: '2' is not a valid value; write all"),
        ("value", {"kafka.compression.type": "rar"}, "write one of none, gzip"),
        ("value", {"topic": ""}, "option topic: it is empty"),
        ("value", {"kafka.bootstrap.server": "x"}, "did you mean kafka.bootstrap.servers"),
    ],
)
def test_errors_are_reported_before_anything_runs(
    spark: SparkSession,
    options: Mapping[str, str],
    columns: str,
    more: Mapping[str, str],
    says: str,
) -> None:
    rows = numbers(spark, 1).selectExpr("key", "value", "CAST(value AS BIGINT) AS id")
    with pytest.raises(Exception, match=re.escape(says)) as error:
        save(rows.selectExpr(*columns.split(", ")), {**options, **more})
    assert "[CONFIG_INVALID]" in str(error.value)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("value, CAST(NULL AS STRING) AS topic", "rows have no topic"),
        ("value, 7 AS partition", "rows have partition 7, but"),
        ("value, timestamp_millis(-5) AS timestamp", "timestamps before 1970"),
        (
            "value, array(named_struct('key', CAST(NULL AS STRING), 'value', X'00')) AS headers",
            "headers without a key",
        ),
    ],
)
def test_rows_that_cannot_be_records(
    spark: SparkSession,
    source_cluster: LocalCluster,
    topic: str,
    options: Mapping[str, str],
    columns: str,
    says: str,
) -> None:
    rows = spark.sql(f"SELECT {columns} FROM VALUES ('1') AS t(value)")  # noqa: S608
    given = {k: v for k, v in options.items() if "topic" not in columns or k != "topic"}
    with pytest.raises(Exception, match=re.escape(says)) as error:
        save(rows, given)
    assert "[ROW_INVALID]" in str(error.value)
    assert read_all(source_cluster, topic) == []


def test_a_topic_that_is_not_there(spark: SparkSession, options: Mapping[str, str]) -> None:
    absent = {**options, "topic": "nobody-made-it"}
    for run in (save, save_rows, lambda rows, _: partitioned(rows, absent)):
        what = "A write does not create topics, so create a new topic"
        with pytest.raises(Exception, match=what) as error:
            run(numbers(spark, 1), absent)
        assert "[TOPIC_MISSING]" in str(error.value)
        servers = options["kafka.bootstrap.servers"]
        assert f"the cluster at {servers} has no topic nobody-made-it" in str(error.value)


def test_a_time_that_brokers_do_not_give(spark: SparkSession, options: Mapping[str, str]) -> None:
    with pytest.raises(Exception, match=r"above the brokers' transaction.max.timeout.ms"):
        save(numbers(spark, 1), {**options, "kafka.transaction.timeout.ms": "3600000"})


def test_only_appends(spark: SparkSession, options: Mapping[str, str]) -> None:
    with pytest.raises(Exception, match="rows can only be appended to a topic"):
        numbers(spark, 1).write.format("twinlog").options(**options).mode("overwrite").save()
    # an error of Spark itself
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        numbers(spark, 1).write.format("twinlog").options(**options).save()


@pytest.fixture
def query(spark: SparkSession, options: Mapping[str, str], tmp_path: Path) -> Query:
    if not HAS_STREAM_WRITERS:
        pytest.skip("df.writeStream needs Spark 4.1")
    return Query(spark, options, tmp_path)


@pytest.mark.witness("output modes of streams behave as documented")
def test_output_modes(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, query: Query
) -> None:
    """With the output mode `complete`, each micro-batch appends all rows of the result. Spark
    refuses `update`, but `foreachBatch` can write its micro-batches, each once.
    """

    def counted(mode: str, sink: Callable[[DataStreamWriter], DataStreamWriter]) -> None:
        files = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        rows = files.json(str(query.folder / "in")).groupBy((col("id") % 2).alias("odd")).count()
        rows = rows.selectExpr("string(odd) AS key", "string(count) AS value")
        if mode == "complete":
            rows = partitioned(rows, query.options)
        place = str(query.folder / f"checkpoint-{mode}")
        writer = rows.writeStream.outputMode(mode).option("checkpointLocation", place)
        sink(writer).trigger(availableNow=True).start().awaitTermination()

    def whole(writer: DataStreamWriter) -> DataStreamWriter:
        return writer.format("twinlog").options(**query.options)

    def batch(rows: DataFrame, number: int) -> None:
        save(partitioned(rows, query.options), query.options, writeId=f"{topic}-{number}")

    query.add(1, 2, 3)
    counted("complete", whole)
    counted("update", lambda writer: writer.foreachBatch(batch))
    assert values(committed(source_cluster, topic)) == [1, 1, 2, 2]
    query.add(5)
    counted("complete", whole)
    assert values(committed(source_cluster, topic)) == [1, 1, 1, 2, 2, 3]
    counted("update", lambda writer: writer.foreachBatch(batch))
    assert values(committed(source_cluster, topic)) == [1, 1, 1, 2, 2, 3, 3]
    query.add(7)
    with pytest.raises(Exception, match="does not support Update mode"):  # an error of Spark itself
        counted("update", whole)


@pytest.mark.witness("a stream writes each row once, and a repeated micro-batch is recognised")
def test_a_stream_continues_from_its_checkpoint(
    source_cluster: LocalCluster, topic: str, query: Query
) -> None:
    query.add(*range(100))
    query.add(*range(100, 150))
    query.run()
    assert values(committed(source_cluster, topic)) == list(range(150))
    query.forget_the_last_commit()
    query.add(*range(150, 170))
    query.run()
    assert values(committed(source_cluster, topic)) == list(range(170))
    query.add(170)
    with pytest.raises(Exception, match=r"\[MARK_DIFFERS\]"):
        query.run(kafka_transactional_id="another")
    query.run()
    assert values(committed(source_cluster, topic)) == list(range(171))


def fails_once(flag: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that makes the first task fail after it has written all of its rows."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        try:
            flag.touch(exist_ok=False)
        except FileExistsError:
            return
        raise RuntimeError("this task fails")

    return rows


@pytest.mark.witness("a write task that fails and is repeated writes its rows once")
def test_a_task_fails_and_runs_again(
    source_cluster: LocalCluster, topic: str, query: Query, tmp_path: Path
) -> None:
    def failing(rows: DataFrame) -> DataFrame:
        return rows.mapInArrow(fails_once(tmp_path / "flag"), rows.schema)

    query.add(*range(1000))
    query.run(failing, kafka_max_request_size="500")
    assert (tmp_path / "flag").exists()
    assert values(committed(source_cluster, topic)) == list(range(1000))


def waits_for_the_end(
    options: WriteOptions, flag: Path
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that makes one task wait until brokers have rolled back another task's
    records.
    """

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is not None and context.partitionId() == 1 and not flag.exists():
            flag.touch()
            was_open = False
            with ClusterClient(options.cluster()) as client:
                opened = transactions(client, options)
                while not was_open or opened.describe().is_open:
                    was_open = was_open or opened.describe().is_open
                    time.sleep(0.2)
        yield from batches

    return rows


@pytest.mark.long
def test_a_micro_batch_that_takes_too_long(
    source_cluster: LocalCluster, topic: str, query: Query, tmp_path: Path
) -> None:
    given = {**query.options, "checkpointLocation": str(query.checkpoint)}
    wait = waits_for_the_end(parse_write_options(given, is_stream=True), tmp_path / "flag")
    query.add(*range(1000))
    with pytest.raises(Exception, match=r"\[WRITER_FENCED\]"):
        query.run(
            lambda rows: rows.mapInArrow(wait, rows.schema), kafka_transaction_timeout_ms="1000"
        )
    assert committed(source_cluster, topic) == []
    query.run()
    assert values(committed(source_cluster, topic)) == list(range(1000))


def test_a_write_that_fails_leaves_nothing_open(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, options: Mapping[str, str]
) -> None:
    rows = partitioned(numbers(spark, 100), options)
    bad = rows.withColumn("partition", expr("IF(partition = 1, 99, partition)"))
    with pytest.raises(Exception, match="rows have partition 99, but"):
        save(bad, options)
    save(rows, options)
    # read_committed readers reach the end immediately
    assert values(committed(source_cluster, topic)) == list(range(100))
