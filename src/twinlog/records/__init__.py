"""Records as DataFrames: `spark.read`, `df.write` and streams of `format("twinlog")`.

    from twinlog.records import partitioned, register
    register(spark)

Read `source`, then `options` and `bounds` (what a user writes), `planning` and `ranges` (which
offsets that is), `upstreams` (of which records they are copies), `batch_reader`, `stream_reader`,
`filters`; `tasks`, `log_reader` and `decoding` run on executors, over kept `connections`; `gaps` is
about what is gone. `write` is the other direction. `daemon` is for who wants workers sooner.
Nothing that mirrors loads any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.extras import require_extra

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["partitioned", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("twinlog")` known to a session, classic or Spark Connect, which it is by itself
    where Spark's Python has Twinlog installed.

    Warns if Spark's workers run another Python, without Twinlog (PYSPARK_PYTHON). Raises
    EnvironmentMissing if PyArrow is not installed.
    """
    require_extra("pyarrow", "records", 'format("twinlog")')
    from twinlog.records import source

    source.register(spark)


def partitioned(df: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Return the rows as record batches, with all rows of one topic partition in one task.

    `df.write` and `df.writeStream` of `format("twinlog")` need this if several tasks have rows.

    Call it last: its columns are `partition`, `record_batch` and `least_timestamp`, and `topic` if
    there is no option `topic`. `options` are the writer's (`topic`, `kafka.bootstrap.servers`,
    `kafka.compression.type`). Rows with a key are partitioned as by Java's producer, rows without a
    key by their content. Rows that name a `partition` keep it.
    Raises ConfigError, and ClusterError if the topic cannot be found.
    """
    from twinlog.records.write import partitioning

    return partitioning.partitioned(df, options)
