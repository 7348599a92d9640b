"""Records as DataFrames: `spark.read` and `spark.readStream` of `format("twinlog")`.

    from twinlog.records import register
    register(spark)

Read `source`, then `options` and `places` (what a user writes), `planning` and `ranges` (which
offsets that is), `batch_reader`, `stream_reader`, `filters`; `tasks`, `log_reader` and `decoding`
run on executors; `gaps` is about what is gone. Nothing that mirrors loads any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.errors import EnvironmentMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("twinlog")` known to a session, classic or Spark Connect.

    It also sets `spark.sql.python.filterPushdown.enabled`, without which Spark passes no filters to
    sources written in Python. Raises EnvironmentMissing without PyArrow.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise EnvironmentMissing(
            f'format("twinlog") needs PyArrow ({error}): pip install "twinlog[records]"'
        ) from None
    from twinlog.records import source

    source.register(spark)
