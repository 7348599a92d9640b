"""One Spark session of this process, which knows `format("twinlog")`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from twinlog.records import register
from twinlog.spark.gateway import start_jvm
from twinlog.spark.session import forget_gateway

__all__ = ["spark_session"]

ROOT: Final = Path(__file__).parents[2]
DAEMON: Final = "twinlog.records.daemon"
ROWS: Final = 20
"""Of an Arrow batch: a task that fails has written some of its rows by then."""


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """On two cores, where a task may fail twice; in the small JVM that mirrors have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")  # where workers find their daemon
        patch.setenv("PYSPARK_PYTHON", sys.executable)  # of it Spark 4.0 finds the source
        jvm = start_jvm([])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[2,3]")
            .appName("data frames")
            .config("spark.ui.enabled", "false")
            .config("spark.python.daemon.module", DAEMON)
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS))
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        jvm.restore_environment()
        session.sparkContext.setLogLevel("OFF")
        register(session)
        yield session
    session.stop()
    forget_gateway()
    jvm.stop()
