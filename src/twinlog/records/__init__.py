"""Records as DataFrames: `spark.read`, `df.write` and streams of `format("twinlog")`.

    from twinlog.records import register, save, stream_writer
    register(spark)

Read `source` first. `options` and `bounds` parse the user's options. `planning` finds the offsets
to read, and `upstreams` finds the source records of which records are copies. Then read
`batch_reader`, which also has the filters, and `stream_reader`. `tasks` and `decoding` run on
executors, over cached `connections`. `gaps` explains missing offsets. `write` appends records to
topics. `lent` has the tasks of a mirror's transforms, and `ranges` decodes and encodes their rows.
`daemon` optionally makes workers start faster. The mirror itself does not load this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.extras import require_extra

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["partitioned", "register", "save", "stream_writer"]


def register(spark: SparkSession) -> None:
    """Register `format("twinlog")` in a session, classic or Spark Connect. This is not needed if
    Twinlog is installed in Spark's Python.

    Warns if Spark's workers run another Python (PYSPARK_PYTHON) that lacks Twinlog. Raises
    EnvironmentMissing if PyArrow is not installed.
    """
    require_extra("pyarrow", "records", 'format("twinlog")')
    from twinlog.records import source

    source.register(spark)


def save(df: DataFrame, options: Mapping[str, str]) -> None:
    """Append the rows to a topic, or to the topics that the rows name, in one transaction.

    `options` are the writer's (`topic`, `kafka.bootstrap.servers`, `writeId`). Rows are shuffled
    (`partitioned`) unless they keep the partition from which `format("twinlog")` read them. Raises
    ConfigError for invalid options, and Spark's errors if the write fails.
    """
    from twinlog.records.write import partitioning

    rows = partitioning.by_partition(df, options)
    rows.write.format("twinlog").options(**options).mode("append").save()


def stream_writer(df: DataFrame, options: Mapping[str, str]) -> DataStreamWriter:
    """Return a writer that appends a stream's rows as `save` does. Set its trigger, and start it.

    `options` include `checkpointLocation`, or `kafka.transactional.id`. Raises ConfigError.
    """
    from twinlog.records.write import partitioning

    rows = partitioning.by_partition(df, options)
    return rows.writeStream.format("twinlog").options(**options)


def partitioned(df: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Return the rows as record batches, with all rows of one topic partition in one task.

    `df.write` and `df.writeStream` of `format("twinlog")` need this if several tasks have rows.

    Call this function last, because its columns are `partition`, `record_batch` and
    `least_timestamp`, and `topic` if there is no option `topic`. `options` are the writer's
    (`topic`, `kafka.bootstrap.servers`, `kafka.compression.type`). Rows with a key are partitioned
    as by Java's producer, rows without a key by their content. Rows that name a `partition` keep
    it. Raises ConfigError, and ClusterError if the topic cannot be found.
    """
    from twinlog.records.write import partitioning

    return partitioning.partitioned(df, options)
