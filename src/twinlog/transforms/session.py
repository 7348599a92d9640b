"""A local SparkSession for processes that run users' DataFrame code.

Unlike in the Spark of a mirror, no lanes run in this session, and PySpark is not patched.
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
from twinlog.spark.session import LOG_CONFIG, reset_pyspark

EXCLUDED_RULES: Final = "spark.sql.optimizer.excludedRules"
SETTINGS: Final = {
    **USUAL,
    "spark.ui.enabled": "false",  # the UI would show plans, which contain the options
    # so that `SparkContext.statusTracker` shows a task as soon as it begins (`rounds`)
    "spark.ui.liveUpdate.period": "0",
    "spark.python.daemon.module": "twinlog.records.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    # few rows, because Spark computes the size of the whole batch again after each row; with 10,000
    # rows, this takes half of a round's time
    "spark.sql.execution.arrow.maxRecordsPerBatch": "256",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    # these rules can replace a plan without rows by a plan without tasks, but each range needs a
    # task that answers it
    EXCLUDED_RULES: ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in ("PruneFilters", "PropagateEmptyRelation")
    ),
}

UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
"""Setting of Spark 4.1 and later: the JVM and its Python workers use Unix sockets in the JVM's
temporary folder. TCP delays the first rows of each job by 40 ms (Nagle's algorithm). With Unix
sockets, a round with few records takes 0.06 instead of 0.10 s, and a backlog has 8 % more rows/s.
"""

LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of PySpark that are disabled, because they log each error with values of the record."""


@contextmanager
def local_session(
    name: str,
    *,
    cores: int = 2,
    flags: Sequence[str] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SparkSession]:
    """Start Spark in this process, and stop it at the end of the `with` block. Raises
    EnvironmentMissing. `flags`: additional JVM flags. `settings`: additional Spark settings, which
    override SETTINGS.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable  # for workers, which the JVM starts
    for logger in LOGGERS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    log_config = f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}"
    gateway = start_jvm(SparkOptions(), [log_config, *flags])
    try:
        if gateway.has_room_for_sockets:
            settings = {UNIX_SOCKETS: "true", **settings}
        builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
        session = builder.config(map={**SETTINGS, **settings}).getOrCreate()
        gateway.restore_environment()
        try:
            yield session
        finally:
            session.stop()
    finally:
        reset_pyspark()
        gateway.stop()
