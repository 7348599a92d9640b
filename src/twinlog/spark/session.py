"""Spark for this process: a session that is quick to start, small and silent."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

TASK_FAILURES: Final = 1000
"""Without it one killed worker fails every lane of its lease."""


def local_master(lanes: int) -> str:
    """Slots for a lease and its successor, and two to spare."""
    return f"local[{2 * lanes + 2},{TASK_FAILURES}]"


def build_session(master: str | None, lanes: int) -> SparkSession:
    """Start Spark here, or connect to a master."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log_config = Path(__file__).with_name("log4j2.properties")
    flags = (
        f"-Dlog4j2.configurationFile={log_config.as_uri()} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    )
    builder = (
        SparkSession.builder.appName("twinlog")
        .master(master or local_master(lanes))
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", flags)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.speculation", "false")
        .config("spark.task.maxFailures", str(TASK_FAILURES))
        .config("spark.sql.execution.arrow.pyspark.enabled", "false")
    )
    return builder.getOrCreate()


def stop_session(session: SparkSession) -> None:
    """End Spark and its JVM."""
    gateway = session.sparkContext._gateway
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait(timeout=5)
