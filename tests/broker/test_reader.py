"""`format("twinlog")` on a real Spark and a real broker reads the same records as an independent
client.

All tests share one session, and each has its own topic.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, lit

from tests.support import surgery
from tests.support.client import (
    CREATE_TIME,
    Outgoing,
    Seen,
    eventually,
    produce,
    produce_transaction,
    read_all,
)
from tests.support.groups import CLEAN_SOON, commit, committed
from tests.support.topics import (
    add_partitions,
    apply_topic_configs,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
)
from twinlog.model import TopicPartition
from twinlog.records.spark_api import HAS_FILTERS, HAS_LIMITS
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import Codec

pytestmark = pytest.mark.broker

ROOT = Path(__file__).resolve().parents[2]
NOW_MS = 1_790_000_000_000

Options = Mapping[str, object]
Read = Callable[..., DataFrame]


@pytest.fixture
def topic(source_cluster: LocalCluster, fresh_topic: str) -> Iterator[str]:
    create_topic(source_cluster, fresh_topic, 2)
    yield fresh_topic
    delete_topic(source_cluster, fresh_topic)


@pytest.fixture
def read(spark: SparkSession, source_cluster: LocalCluster, topic: str) -> Read:
    def load(schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("twinlog").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", source_cluster.bootstrap)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return (reader if schema is None else reader.schema(schema)).load()

    return load


def numbers(first: int, end: int, partition: int | None = None) -> list[Outgoing]:
    """Return records whose values are these numbers, for one partition. By default they alternate
    between partitions 0 and 1.
    """
    return [
        Outgoing(b"k", b"%d" % at, partition=at % 2 if partition is None else partition)
        for at in range(first, end)
    ]


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row["value"]) for row in frame.select("value").collect())


def as_seen(row: Row) -> Seen:
    """Convert a row to a record of the independent client. All records of a topic have the same
    timestamp type.
    """
    return Seen(
        partition=row["partition"],
        offset=row["offset"],
        key=None if row["key"] is None else bytes(row["key"]),
        value=None if row["value"] is None else bytes(row["value"]),
        headers=tuple(
            (one["key"], None if one["value"] is None else bytes(one["value"]))
            for one in row["headers"] or ()
        ),
        timestamp=row["ms"],
        timestamp_type=row["timestampType"] + CREATE_TIME,
    )


def all_of(frame: DataFrame) -> list[Seen]:
    rows = frame.withColumn("ms", (col("timestamp").cast("double") * 1000).cast("long")).collect()
    return sorted(as_seen(row) for row in rows)


def test_a_missing_topic_is_named_with_a_similar_one(
    source_cluster: LocalCluster, topic: str, read: Read
) -> None:
    with pytest.raises(Exception, match=r"\[TOPIC_MISSING\]") as error:
        read(subscribe=f"{topic}s").count()
    where = f"the cluster at {source_cluster.bootstrap} has no topic {topic}s"
    assert where in str(error.value)
    assert f"did you mean {topic}?" in str(error.value)
    assert "create a new topic first" in str(error.value)


@pytest.mark.witness("DataFrames contain the written records, with every codec")
def test_columns_equal_the_written_records_with_every_codec(
    source_cluster: LocalCluster, topic: str, read: Read
) -> None:
    for at, codec in enumerate(Codec):
        headers = (("trace", b"%d" % at), ("trace", None)) if at % 2 else ()
        records = [
            Outgoing(b"k", b"v" * 3000, headers, NOW_MS + at, 0),
            Outgoing(None, b"", (), NOW_MS - at, 1),
            Outgoing(b"", None, headers, NOW_MS, 1),
        ]
        produce(source_cluster, topic, records, codec=codec.name.lower())
    frame = read(includeHeaders=True)
    assert all_of(frame) == sorted(read_all(source_cluster, topic))
    assert {row["topic"] for row in frame.select("topic").collect()} == {topic}
    assert read().columns == frame.columns[:-1]
    narrow = read(schema="offset bigint, value binary")
    assert narrow.columns == ["offset", "value"]
    assert narrow.count() == 15


def test_times_of_the_broker(source_cluster: LocalCluster, topic: str, read: Read) -> None:
    apply_topic_configs(source_cluster, topic, {"message.timestamp.type": "LogAppendTime"})
    produce(source_cluster, topic, [Outgoing(b"k", b"v", (), NOW_MS, 0)])
    (seen,) = all_of(read(includeHeaders=True))
    assert seen.timestamp_type == 2
    assert [seen] == list(read_all(source_cluster, topic))


@pytest.mark.witness("aborted records are not in DataFrames")
def test_aborted_records_never_appear(source_cluster: LocalCluster, topic: str, read: Read) -> None:
    produce(source_cluster, topic, numbers(0, 10))
    produce_transaction(source_cluster, topic, numbers(10, 20), commit=False)
    produce_transaction(source_cluster, topic, numbers(20, 30), commit=True)
    produce_transaction(source_cluster, topic, numbers(30, 40), commit=False)
    assert values(read()) == [*range(10), *range(20, 30)]
    assert values(read(minPartitions=9)) == [*range(10), *range(20, 30)]
    assert values(read(isolation="read_uncommitted")) == list(range(40))


def test_a_compacted_log(source_cluster: LocalCluster, topic: str, read: Read) -> None:
    apply_topic_configs(source_cluster, topic, CLEAN_SOON)
    for at in range(12):
        produce(source_cluster, topic, [Outgoing(b"%d" % (at % 3), b"%d" % at, partition=0)])

    def is_compacted() -> bool:
        produce(source_cluster, topic, [Outgoing(b"last", b"0", partition=0)])
        seen = read_all(source_cluster, topic)
        return len(seen) < seen[-1].offset and all_of(read(includeHeaders=True)) == seen

    eventually(is_compacted, what="compaction")


def test_where_a_batch_begins_and_ends(
    source_cluster: LocalCluster, topic: str, read: Read
) -> None:
    records = [Outgoing(b"k", b"%d" % at, (), NOW_MS + 1000 * at, 0) for at in range(10)]
    produce(source_cluster, topic, records)
    offsets = f'{{"{topic}": {{"0": 3, "1": -2}}}}'
    assert values(read(startingOffsets=offsets)) == list(range(3, 10))
    assert values(read(endingOffsets=f'{{"{topic}": {{"0": 4, "1": -1}}}}')) == list(range(4))
    at = f"time:{NOW_MS + 6500}"
    assert values(read(startingOffsets=at)) == [7, 8, 9]
    assert values(read(endingOffsets=at)) == list(range(7))
    assert values(read(startingOffsets=f"time:{NOW_MS + 60_000}")) == []
    times = f'{{"{topic}": {{"0": {NOW_MS + 8000}, "1": 0}}}}'
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert values(read(startingOffsetsByTimestamp=times, **strategy)) == [8, 9]
    with pytest.raises(Exception, match=f"{topic}-1 has no record at or after 0"):
        read(startingOffsetsByTimestamp=times).collect()
    commit(source_cluster, "a-group", topic, 5)
    assert values(read(startingOffsets="group:a-group")) == [5, 6, 7, 8, 9]
    with pytest.raises(Exception, match="group nobody has no committed offsets") as error:
        read(startingOffsets="group:nobody").collect()
    assert "[NO_OFFSETS]" in str(error.value)
    with pytest.raises(Exception, match=f"{topic}-1 is missing; name all partitions"):
        read(startingOffsets=f'{{"{topic}": {{"0": 3}}}}').collect()
    with pytest.raises(Exception, match="did you mean startingOffsets") as error:
        read(startingOffset="earliest").collect()
    assert "[CONFIG_INVALID]" in str(error.value)


def test_topics_by_pattern_and_partitions_by_number(
    spark: SparkSession, source_cluster: LocalCluster, topic: str
) -> None:
    produce(source_cluster, topic, numbers(0, 10))
    reader = spark.read.format("twinlog").option(
        "kafka.bootstrap.servers", source_cluster.bootstrap
    )
    pattern = f"(?:{topic[:-1]}|__consumer).+"
    assert values(reader.option("subscribePattern", pattern).load()) == list(range(10))
    reader = spark.read.format("twinlog").option(
        "kafka.bootstrap.servers", source_cluster.bootstrap
    )
    assert values(reader.option("assign", f'{{"{topic}": [1]}}').load()) == [1, 3, 5, 7, 9]


def test_workers_are_forked_with_the_modules_of_tasks(spark: SparkSession) -> None:
    """The session sets `spark.python.daemon.module`. So workers must be forked from a process that
    has already imported the modules of tasks.
    """

    def loaded(_: int) -> bool:
        return "libarrow" in Path(f"/proc/{os.getppid()}/maps").read_text()

    assert spark.sparkContext.parallelize([0], 1).map(loaded).collect() == [True]


@pytest.fixture
def passing_filters(spark: SparkSession) -> Iterator[None]:
    """Make the session pass filters to the data source."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


@pytest.mark.skipif(not HAS_FILTERS, reason="Spark 4.0 passes no filters")
def test_filters_reduce_the_records_that_are_read(
    source_cluster: LocalCluster, topic: str, read: Read, passing_filters: None
) -> None:
    """If the session passes filters to the source, filtered-out records are not read, and filters
    on partitions reduce the number of tasks.
    """
    records = [Outgoing(b"k", b"%d" % at, (), NOW_MS + at, at % 2) for at in range(20)]
    produce(source_cluster, topic, records)
    late = lit((NOW_MS + 15) / 1000).cast("timestamp")
    frame = read(pushFilters=True)
    for filtered, wanted, tasks in (
        (frame.where("partition = 1"), range(1, 20, 2), 1),
        (frame.where("partition = 1 AND offset >= 7"), [15, 17, 19], 1),
        (frame.where("topic = 'other'"), [], 1),
        (frame.where(col("timestamp") >= late), range(15, 20), 2),
        (frame.where("partition = 0").where(col("timestamp") > late), [16, 18], 1),
        (frame.where("value = '3'"), [3], 2),
    ):
        assert values(filtered) == list(wanted)
        assert filtered.rdd.getNumPartitions() == tasks
    # records that are not read cannot fail: the topic's other records are deleted
    delete_records(source_cluster, topic, before=5)
    begun = {"startingOffsets": f'{{"{topic}": {{"0": 0, "1": 5}}}}'}
    begun["pushFilters"] = "true"
    assert values(read(**begun).where("partition = 1")) == [11, 13, 15, 17, 19]
    assert values(read(**begun).where("offset >= 6")) == [12, 13, 14, 15, 16, 17, 18, 19]


@pytest.mark.skipif(not HAS_FILTERS, reason="Spark 4.0 passes no filters")
def test_filters_need_a_setting_of_the_session(
    source_cluster: LocalCluster, topic: str, read: Read
) -> None:
    produce(source_cluster, topic, numbers(0, 1))
    # an error of Spark itself
    with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        read(pushFilters=True).collect()


@pytest.mark.parametrize("passes", [False, True], ids=["as it is", "where Spark passes filters"])
@pytest.mark.witness("one DataFrame may be used in many queries", case="where Spark passes filters")
def test_a_frame_is_used_again(
    source_cluster: LocalCluster,
    topic: str,
    read: Read,
    request: pytest.FixtureRequest,
    passes: bool,
) -> None:
    """A DataFrame is used in several queries with different filters, and twice in one query. The
    filter of one query must not apply to the others.
    """
    if passes:
        request.getfixturevalue("passing_filters")
    produce(source_cluster, topic, numbers(0, 20))
    frame = read()
    one, other = frame.where("partition = 1"), frame.where("partition = 0 AND offset < 3")
    assert values(one) == list(range(1, 20, 2))
    assert values(frame) == list(range(20))
    assert values(other) == [0, 2, 4]
    assert values(one.union(frame)) == sorted([*range(20), *range(1, 20, 2)])
    assert values(one.union(other)) == sorted([*range(1, 20, 2), 0, 2, 4])
    assert one.alias("a").join(other.alias("b"), "offset").count() == 3
    produce(source_cluster, topic, numbers(20, 25))
    assert values(read()) == list(range(25)), "each load() asks where the log ends"
    if HAS_FILTERS and not passes:
        assert values(frame) == list(range(20)), "Spark plans a load() once (docs/dataframes.md)"


def test_records_deleted_by_retention_are_reported_with_their_range(
    source_cluster: LocalCluster, topic: str, read: Read
) -> None:
    produce(source_cluster, topic, numbers(0, 20, partition=0))
    delete_records(source_cluster, topic, before=8)
    begun = {"startingOffsets": f'{{"{topic}": {{"0": 3, "1": -2}}}}'}
    with pytest.raises(Exception, match=rf"{topic}-0: offsets \[3, 8\) were deleted") as error:
        read(**begun).collect()
    assert "[RETENTION]" in str(error.value)
    assert values(read(**begun, failOnDataLoss=False)) == list(range(8, 20))
    planned = read()
    assert values(planned) == list(range(8, 20))


def test_damaged_bytes_have_their_offset(
    source_cluster: LocalCluster, topic: str, read: Read
) -> None:
    """A disk changes one byte of a batch, and later the batch's length. Reads fail with
    CORRUPT_BATCH, and for the changed byte the error names the batch's offset. The records before
    the batch can still be read.
    """
    for at in (0, 10, 20):
        produce(source_cluster, topic, numbers(at, at + 10, partition=0), linger_ms=200)
    here = TopicPartition(topic, 0)
    surgery.flip_byte(source_cluster, here, 10)
    with pytest.raises(Exception, match=rf"{topic}-0: .*offset 10\b.*another replica") as error:
        read().collect()
    assert "[CORRUPT_BATCH]" in str(error.value)
    end = f'{{"{topic}": {{"0": 10, "1": -1}}}}'
    assert values(read(endingOffsets=end)) == list(range(10))
    surgery.spoil_length(source_cluster, here, 10)
    with pytest.raises(Exception, match="CORRUPT_BATCH"):
        read().collect()
    assert values(read(endingOffsets=end)) == list(range(10))


class Stream:
    """A query that writes a topic to files, and can be restarted from its checkpoint."""

    def __init__(self, spark: SparkSession, options: Options, folder: Path) -> None:
        self.spark = spark
        self.options = dict(options)
        self.folder = folder

    def run(self, **more: object) -> list[int]:
        """Run the query until it has read to the topic's current end. Return the number of rows of
        each non-empty micro-batch.
        """
        reader = self.spark.readStream.format("twinlog")
        for name, value in {**self.options, **more}.items():
            reader = reader.option(name, str(value))
        query = (
            reader.load()
            .select("value")
            .writeStream.format("parquet")
            .option("path", str(self.folder / "rows"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]

    def values(self) -> list[int]:
        return values(self.spark.read.schema("value binary").parquet(str(self.folder / "rows")))

    @property
    def checkpoint(self) -> str:
        """Return the newest offsets of the checkpoint, as JSON."""
        files = (self.folder / "checkpoint" / "offsets").glob("[0-9]*")
        return max(files, key=lambda file: int(file.name)).read_text().splitlines()[-1]


@pytest.fixture
def stream(spark: SparkSession, source_cluster: LocalCluster, topic: str, tmp_path: Path) -> Stream:
    options = {
        "kafka.bootstrap.servers": source_cluster.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    return Stream(spark, options, tmp_path)


def test_a_stream_continues_from_its_checkpoint(
    source_cluster: LocalCluster, topic: str, stream: Stream
) -> None:
    produce(source_cluster, topic, numbers(0, 20))
    if HAS_LIMITS:
        stream.options |= {"maxOffsetsPerTrigger": 8, "commitGroup": f"g-{topic}"}
    assert stream.run() == ([8, 8, 4] if HAS_LIMITS else [20])
    assert stream.values() == list(range(20))
    assert stream.checkpoint == f'{{"{topic}": {{"0": 10, "1": 10}}}}'
    if HAS_LIMITS:
        assert committed(source_cluster, f"g-{topic}", topic) == 10
    produce_transaction(source_cluster, topic, numbers(20, 30), commit=False)
    produce_transaction(source_cluster, topic, numbers(30, 36), commit=True)
    stream.run()
    assert stream.values() == [*range(20), *range(30, 36)]
    ends = end_offsets(source_cluster, topic)
    assert stream.checkpoint == f'{{"{topic}": {{"0": {ends[0]}, "1": {ends[1]}}}}}'


def test_a_stream_that_runs_takes_new_records_and_partitions(
    source_cluster: LocalCluster, topic: str, stream: Stream
) -> None:
    """A query without a trigger reads new records and new partitions. It also reads a topic of its
    pattern that is created after the query began.
    """
    other = f"{topic}-later"
    pattern = {
        "kafka.bootstrap.servers": source_cluster.bootstrap,
        "subscribePattern": f"{re.escape(topic)}.*",
        "startingOffsets": "earliest",
    }
    produce(source_cluster, topic, numbers(0, 10))
    rows = stream.spark.readStream.format("twinlog").options(**pattern).load()
    query = rows.select("value").writeStream.format("memory").queryName(f"q_{topic[-8:]}").start()

    def has(count: int) -> None:
        seen: list[int] = []

        def is_there() -> bool:
            assert query.isActive, query.exception()
            seen[:] = values(stream.spark.table(str(query.name)))
            return len(seen) >= count

        eventually(is_there, what=f"{count} rows")
        assert seen == list(range(count))

    try:
        has(10)
        produce(source_cluster, topic, numbers(10, 20))
        has(20)
        add_partitions(source_cluster, topic, 3)
        produce(source_cluster, topic, numbers(20, 25, partition=2))
        has(25)
        create_topic(source_cluster, other)
        produce(source_cluster, other, numbers(25, 30, partition=0))
        has(30)
        produce_transaction(source_cluster, other, numbers(90, 95, partition=0), commit=False)
        produce_transaction(source_cluster, topic, numbers(30, 35), commit=True)
        has(35)
    finally:
        query.stop()
    delete_topic(source_cluster, other)


@pytest.mark.skipif(not HAS_LIMITS, reason="before Spark 4.2 it is refused")
def test_a_micro_batch_has_about_so_many_bytes(
    source_cluster: LocalCluster, topic: str, stream: Stream
) -> None:
    for first in range(0, 40, 10):
        records = [
            Outgoing(None, b"%d" % at, (("pad", os.urandom(1000)),), partition=0)
            for at in range(first, first + 10)
        ]
        produce(source_cluster, topic, records)
    counts = stream.run(maxBytesPerTrigger=11_000)
    assert len(counts) == 4
    assert sum(counts) == 40
    assert stream.values() == list(range(40))


def test_a_stream_reports_records_deleted_by_retention(
    source_cluster: LocalCluster, topic: str, stream: Stream
) -> None:
    produce(source_cluster, topic, numbers(0, 10, partition=0))
    stream.run()
    produce(source_cluster, topic, numbers(10, 20, partition=0))
    delete_records(source_cluster, topic, before=14)
    with pytest.raises(Exception, match=rf"{topic}-0: offsets \[10, 14\) were deleted") as error:
        stream.run()
    assert "[RETENTION]" in str(error.value)
    stream.run(failOnDataLoss=False)
    assert stream.values() == [*range(10), *range(14, 20)]


def test_a_stream_reports_truncated_records(
    source_cluster: LocalCluster, topic: str, stream: Stream
) -> None:
    produce(source_cluster, topic, numbers(0, 10, partition=0))
    stream.run()
    delete_topic(source_cluster, topic)
    create_topic(source_cluster, topic, 2)
    produce(source_cluster, topic, numbers(100, 104, partition=0))
    with pytest.raises(Exception, match=rf"{topic}-0: offsets \[4, 10\) do not exist") as error:
        stream.run()
    assert "[TRUNCATED]" in str(error.value)
    stream.run(failOnDataLoss=False)
    produce(source_cluster, topic, numbers(104, 106, partition=0))
    stream.run()
    assert stream.values() == [*range(10), 104, 105]


@pytest.mark.skipif(not HAS_LIMITS, reason="its stream has a limit, which Spark 4.2 knows")
def test_the_commands_of_the_page_work(
    spark: SparkSession, source_cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "dataframes.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    # without `_upstream`, which test_upstream tests
    script = "\n".join(one for one in blocks if "_upstream" not in one)
    large = f"{topic}-large"
    for said, meant in (
        ("localhost:9092", source_cluster.bootstrap),
        ('"subscribe": "orders"', f'"subscribe": "{topic}"'),
        ('"path", "orders"', f'"path", "{tmp_path}/orders"'),
        ('"orders-checkpoint"', f'"{tmp_path}/checkpoint"'),
        ("time:2026-01-31T12:00:00Z", f"time:{NOW_MS}"),
        ("time:2026-01-31T13:00:00Z", f"time:{NOW_MS + 3_600_000}"),
        ('"topic": "big-orders"', f'"topic": "{large}"'),
        ("big-orders-of-2026-01-31T12", large),
        ("archive-", f"{large}-"),
        ('"big-orders-checkpoint"', f'"{tmp_path}/large-checkpoint"'),
    ):
        assert said in script
        script = script.replace(said, meant)
    create_topic(source_cluster, large, 3)
    records = [one._replace(timestamp=NOW_MS) for one in numbers(0, 10)]
    produce(source_cluster, topic, [*records, records[0]._replace(value=b"%01500d" % 10)])
    exec(compile(script, "dataframes.md", "exec"), {})  # noqa: S102 (our own page)
    assert values(spark.read.parquet(f"{tmp_path}/orders")) == list(range(11))
    seen = read_all(source_cluster, large, isolation="read_committed")
    assert sorted(int(one.value or b"-1") for one in seen) == [*range(10), 10, 10]
    assert committed(source_cluster, "orders-to-parquet", topic) == 6
    delete_topic(source_cluster, large)


def test_the_commands_of_the_readme_work(
    spark: SparkSession, source_cluster: LocalCluster, topic: str
) -> None:
    page = (ROOT / "README.md").read_text()
    (script,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    large = f"{topic}-large"
    for said, meant in (
        ("localhost:9092", source_cluster.bootstrap),
        ('subscribe="orders"', f'subscribe="{topic}"'),
        ('"large-orders"', f'"{large}"'),
        ('"large-orders-1"', f'"{large}"'),
    ):
        assert script.count(said) == 1
        script = script.replace(said, meant)
    create_topic(source_cluster, large, 3)
    produce(source_cluster, topic, [*numbers(0, 5), Outgoing(b"k", b"%01500d" % 7)])
    exec(compile(script, "README.md", "exec"), {"spark": spark})  # noqa: S102 (our own page)
    seen = read_all(source_cluster, large, isolation="read_committed")
    assert [int(one.value or b"-1") for one in seen] == [7]
    delete_topic(source_cluster, large)
