"""One Spark session of this process, which knows `format("twinlog")`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from twinlog.records import register
from twinlog.spark.session import forget_gateway

__all__ = ["spark_session"]


@contextmanager
def spark_session(master: str = "local[2]", **configs: str) -> Iterator[SparkSession]:
    """`configs`: with `_` for `.` in their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = (
            SparkSession.builder.master(master)
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
        )
        for name, value in configs.items():
            builder = builder.config(name.replace("_", "."), value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        register(session)
        yield session
        gateway: Any = SparkContext._gateway
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # at whose end the JVM ends
        gateway.proc.wait()
        forget_gateway()
