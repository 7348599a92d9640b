"""The column `_upstream` of a mirrored topic contains the source record of each row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from tests.support.client import Outgoing, eventually, produce, produce_transaction, read_all
from tests.support.groups import CLEAN_SOON
from tests.support.rig import Rig
from tests.support.topics import alter_topic_configs, create_topic
from twinlog.records.spark_api import HAS_LIMITS
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

FOREIGN = b"foreign"
KEYED = {"twinlog.target.partitions": "keyed"}
COLUMN = "_upstream struct<cluster: string, topic: string, partition: int, offset: bigint>"
PLACE = ("topic", "partition", "offset")
CONTENT = ("key", "value", "timestamp", "headers")


@pytest.fixture
def rig(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as made:
        yield made


def numbers(values: Iterable[int], *, keys: int = 1000) -> list[Outgoing]:
    """Return records with these numbers as values. With few `keys`, several records have the same
    key.
    """
    return [Outgoing(b"k%d" % (at % keys), b"v%d" % at, (("n", b"%d" % at),)) for at in values]


def copy(rig: Rig) -> None:
    with rig.mirror(once=True) as mirror:
        (flow,) = mirror.wait()
    assert {(part.state, part.code) for part in flow.partitions} == {("DONE", "")}


def source_rows(spark: SparkSession, rig: Rig) -> DataFrame:
    rows = spark.read.format("twinlog").option("subscribe", rig.topic)
    rows = rows.option("kafka.bootstrap.servers", rig.source.bootstrap)
    return rows.option("includeHeaders", "true").load()


def target_options(rig: Rig, **more: str) -> dict[str, str]:
    there = {"kafka.bootstrap.servers": rig.target.bootstrap, "subscribe": rig.remote}
    return {**there, "includeHeaders": "true", "upstream": rig.alias, **more}


def target_rows(spark: SparkSession, rig: Rig, **more: str) -> DataFrame:
    return spark.read.format("twinlog").options(**target_options(rig, **more)).load()


def is_exact(source: DataFrame, target: DataFrame, copies: int, *, foreign: int = 0) -> None:
    """Check that `copies` rows of the target join different source records with the same content.
    The other `foreign` rows have no source record.
    """
    on = [col(f"s.{name}") == col(f"t._upstream.{name}") for name in PLACE]
    same = [col(f"s.{name}").eqNullSafe(col(f"t.{name}")) for name in CONTENT]
    joined = source.alias("s").join(target.alias("t"), on)
    for one in same:
        joined = joined.where(one)
    found = joined.select(*(f"s.{name}" for name in PLACE), "t.value").collect()
    assert len(found) == copies == len({tuple(row)[:3] for row in found})
    rows = target.select("_upstream", "value").collect()
    assert [bytes(row.value) for row in rows if row._upstream is None] == [FOREIGN] * foreign
    assert len(rows) == copies + foreign


def test_a_copy_joins_its_source(spark: SparkSession, rig: Rig) -> None:
    """The source has aborted records and markers, and another client's records follow the copy.
    Each copied row joins its source record by `_upstream`, and the other client's rows join none.
    """
    create_topic(rig.source, rig.topic, partitions=2)
    produce(rig.source, rig.topic, numbers(range(10)))
    for turn, commit in enumerate((True, False, True)):
        some = numbers(range(10 + 10 * turn, 20 + 10 * turn))
        produce_transaction(rig.source, rig.topic, some, commit=commit)
    copy(rig)
    joined = as_the_page_does(spark, rig)
    assert joined.count() == 30
    assert joined.where(joined["_upstream.cluster"] == rig.alias).count() == 30
    source = source_rows(spark, rig)
    produce(rig.target, rig.remote, [Outgoing(b"f%d" % at, FOREIGN) for at in range(4)])
    # tasks divide batches, so each one gets only a part of a batch and of the map's runs
    cut = target_rows(spark, rig, minPartitions="20")
    is_exact(source, cut, 30, foreign=4)


def as_the_page_does(spark: SparkSession, rig: Rig) -> DataFrame:
    page = (Path(__file__).resolve().parents[2] / "docs" / "dataframes.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (script,) = (one for one in blocks if "_upstream" in one)
    for said, meant in (
        ("localhost:9093", rig.target.bootstrap),
        ("localhost:9092", rig.source.bootstrap),
        ('"A.orders"', f'"{rig.remote}"'),
        ('"orders"', f'"{rig.topic}"'),
        ('"A"', f'"{rig.alias}"'),
    ):
        assert script.count(said) == 1
        script = script.replace(said, meant)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(script, "dataframes.md", "exec"), names)  # noqa: S102 (our own page)
    return cast(DataFrame, names["both"])


def test_only_the_column(spark: SparkSession, rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    copy(rig)
    schema, options = f"{COLUMN}, offset bigint", target_options(rig)
    found = spark.read.format("twinlog").schema(schema).options(**options).load().collect()
    assert [(row._upstream.offset, row.offset) for row in found] == [(at, at) for at in range(10)]
    assert {(row._upstream.topic, row._upstream.partition) for row in found} == {(rig.topic, 0)}
    del options["upstream"]
    with pytest.raises(Exception, match=r"upstream: missing, but the schema has the column _up"):
        spark.read.format("twinlog").schema(schema).options(**options).load().collect()


def test_a_copy_that_was_compacted(spark: SparkSession, rig: Rig) -> None:
    """The log cleaner has removed most records of each of this flow's batches. The remaining rows
    still join their source records.
    """
    rig.create()
    for turn in range(4):
        some = numbers(range(10 * turn, 10 * turn + 10), keys=7)
        produce_transaction(rig.source, rig.topic, some, commit=turn != 1)
        copy(rig)
    alter_topic_configs(rig.target, rig.remote, CLEAN_SOON)
    count = 0

    def is_compacted() -> bool:
        nonlocal count
        produce(rig.target, rig.remote, [Outgoing(b"f%d" % count, FOREIGN)])
        count += 1
        ours = [one for one in read_all(rig.target, rig.remote) if one.value != FOREIGN]
        return len(ours) == 7

    eventually(is_compacted, what="compaction")
    is_exact(source_rows(spark, rig), target_rows(spark, rig), 7, foreign=count)


def test_a_stream_of_a_topic_that_other_clients_write_to(
    spark: SparkSession, rig: Rig, tmp_path: Path
) -> None:
    """Another client writes between this flow's batches, and after them, where the offset map does
    not show it. The other client's rows must have no source record, and this flow's rows must have
    the right one.
    """
    rig.prefixed = False
    rig.create()
    foreign = [Outgoing(b"f", FOREIGN)] * 3
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        produce(rig.target, rig.remote, foreign)
        # written before the lane's next check, so these records follow the other client's
        rig.put(range(10, 20))
        rig.copied(23)
        rig.put(range(20, 30))
        rig.copied(33)
        mirror.stop()
    produce(rig.target, rig.remote, foreign)
    limit = {"maxOffsetsPerTrigger": "7"} if HAS_LIMITS else {}
    options = target_options(rig, startingOffsets="earliest", **limit)
    rows = spark.readStream.format("twinlog").options(**options).load()
    writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    source = source_rows(spark, rig)
    is_exact(source, spark.read.parquet(str(tmp_path / "rows")), 30, foreign=6)
    is_exact(source, target_rows(spark, rig, minPartitions="9"), 30, foreign=6)


def test_a_topic_without_upstream_records_is_refused(spark: SparkSession, rig: Rig) -> None:
    create_topic(rig.target, rig.remote, partitions=3)
    rig.create()
    rig.put(range(10))
    with rig.mirror(once=True, keys=KEYED) as mirror:
        mirror.wait()
    with pytest.raises(
        Exception, match="by their keys, and the offset map does not have their positions"
    ):
        target_rows(spark, rig).collect()
    with pytest.raises(Exception, match=r"has no topic mm2-twinlog-offset-map\.nobody\.internal"):
        target_rows(spark, rig, upstream="nobody").collect()
