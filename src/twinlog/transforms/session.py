"""An ordinary local session of Spark, for processes that run users' DataFrame code.

Unlike the Spark of a mirror it has no lanes, and nothing of PySpark is replaced in it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from twinlog.spark.gateway import start_jvm
from twinlog.spark.options import USUAL, SparkOptions
from twinlog.spark.session import LOG_CONFIG, forget_gateway

EXCLUDED_RULES: Final = "spark.sql.optimizer.excludedRules"
SETTINGS: Final = {
    **USUAL,
    "spark.ui.enabled": "false",  # the UI shows plans, with the options in them
    "spark.python.daemon.module": "twinlog.records.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    # few rows, because for each row Spark computes the size of a batch for its limit, which takes
    # time in proportion to its rows: with 10,000 rows that is half of the time of a round
    "spark.sql.execution.arrow.maxRecordsPerBatch": "256",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    # a plan without rows would have no tasks, and each range needs the task that answers it
    EXCLUDED_RULES: ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in ("PruneFilters", "PropagateEmptyRelation")
    ),
}

LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers to which PySpark writes each error that it raises, with values of the record."""


@contextmanager
def local_session(
    name: str,
    *,
    cores: int = 2,
    flags: Sequence[str] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SparkSession]:
    """Start Spark in this process, and end it with the `with` block. Raises EnvironmentMissing.
    `flags`: additional flags of its JVM. `settings`: additional settings, which override SETTINGS.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the JVM also reads this
    for logger in LOGGERS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    log_config = f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}"
    gateway = start_jvm(SparkOptions(), [log_config, *flags])
    try:
        builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
        for key, value in (SETTINGS | {**settings}).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        gateway.restore_environment()
        try:
            yield session
        finally:
            session.stop()
    finally:
        forget_gateway()
        gateway.stop()
