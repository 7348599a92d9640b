"""The data source `format("twinlog")`.

Options are parsed when a query is planned, so that an invalid option fails the planning and not a
task. Only a given schema (`spark.read.schema(...)`) restricts the columns that are read, because
PySpark does not pass a Python source the columns that a query uses.

Spark starts a process for each step of planning, and the first step only needs the name and schema.
So readers and writers are imported when they are used, because PyArrow and the Kafka client take
half a second to load.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from twinlog.records.bounds import wants_headers
from twinlog.records.columns import all_columns, ddl
from twinlog.records.spark_api import HAS_FILTERS, HAS_LIMITS, HAS_STREAM_WRITERS, needs
from twinlog.wire.kernels.chosen import CHOSEN, KERNELS_MISSING, ChosenKernels

log = logging.getLogger(__name__)

FORMAT: Final = "twinlog"
KNOWN_ALREADY: Final = "DATA_SOURCE_ALREADY_EXISTS"


class TwinlogSource(DataSource):
    """A source of records of Kafka topics, and a sink for them."""

    is_copy = False
    """True for the copy that Spark pickles for the process that commits a micro-batch. A copy does
    not begin a transaction.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "is_copy": True}

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """Return the columns of Spark's own Kafka source, and `_upstream` if requested."""
        headers = wants_headers(self.options)
        return ddl(all_columns(headers=headers, upstream="upstream" in self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from twinlog.records.batch_reader import BatchReader, FilteringReader
        from twinlog.records.options import parse_options
        from twinlog.records.planning import columns_of

        options = parse_options(self.options, is_stream=False)
        needs("pushFilters", "4.1", is_there=HAS_FILTERS or not options.pushes_filters)
        warn_of_slow_kernels()
        reader = FilteringReader if options.pushes_filters else BatchReader
        return reader(options, columns_of(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from twinlog.records.options import parse_options
        from twinlog.records.planning import columns_of
        from twinlog.records.stream_reader import StreamReader

        options = parse_options(self.options, is_stream=True)
        is_limited = options.max_offsets is not None or options.max_bytes is not None
        needs("a limit of micro-batches", "4.2", is_there=HAS_LIMITS or not is_limited)
        warn_of_slow_kernels()
        return StreamReader(options, columns_of(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from twinlog.records.write.options import parse_write_options
        from twinlog.records.write.writers import BatchWriter, begin_write

        options = parse_write_options(self.options, is_stream=False)
        warn_of_slow_kernels()
        return BatchWriter(options, begin_write(options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from twinlog.records.write.options import parse_write_options
        from twinlog.records.write.writers import StreamWriter, begin_write

        needs("df.writeStream", "4.1", is_there=HAS_STREAM_WRITERS)
        options = parse_write_options(self.options, is_stream=True)
        if self.is_copy:
            return StreamWriter(options, None)
        warn_of_slow_kernels()
        # overwrite means outputMode("complete"), whose rows are appended, as in Spark's Kafka sink
        return StreamWriter(options, begin_write(options, schema, overwrite=False))


def warn_of_slow_kernels(chosen: ChosenKernels = CHOSEN) -> None:
    """Warn about slow kernels when a query is planned, although tasks may run in another Python."""
    if not chosen.is_compiled:
        text = chosen.warning("reading and writing rows take")
        log.warning("%s", text, extra={"code": KERNELS_MISSING})


def register(spark: SparkSession) -> None:
    """Register `format("twinlog")` in a session, classic or Spark Connect. If Spark has already
    found the source itself (`pyspark_twinlog`), the class is the same, so Spark's error is ignored.
    """
    warn_of_another_python(spark)
    try:
        spark.dataSource.register(TwinlogSource)
    except AnalysisException as error:
        if error.getCondition() != KNOWN_ALREADY:
            raise


def warn_of_another_python(spark: SparkSession) -> None:
    """Warn if Spark's workers run another Python on this host that cannot import Twinlog.

    Spark also plans queries with that Python, on the driver. Nothing is checked over Spark Connect,
    whose server chooses the Python, or for a path that only executors have.
    """
    try:
        python = spark.sparkContext.pythonExec
    except PySparkException:
        return  # with Spark Connect, the server chooses the Python
    path = shutil.which(python)
    if path is None or Path(path).parent == Path(sys.executable).parent:
        return
    done = subprocess.run([path, "-c", "import twinlog.records"], capture_output=True, check=False)
    if done.returncode:
        log.warning(
            'format("twinlog"): Spark\'s workers run %s, which cannot import twinlog; this process '
            "runs %s. Set the environment variable PYSPARK_PYTHON=%s before the session starts, or "
            "install Twinlog in the workers' Python",
            *(path, sys.executable, sys.executable),
        )
