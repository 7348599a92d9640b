"""Spark for this process: a session that is quick to start, small and silent."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from twinlog.spark.gateway import Gateway

log = logging.getLogger(__name__)

TASK_FAILURES: Final = 1000
"""Without it one killed worker fails every lane of its lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A running Spark."""

    session: SparkSession
    gateway: Gateway
    slots: int | None
    """Task slots of a given master; None here, where there are as many as are needed."""


def local_master(lanes: int) -> str:
    """Slots for a lease and its successor, and two to spare."""
    return f"local[{2 * lanes + 2},{TASK_FAILURES}]"


def build_session(master: str | None, lanes: int) -> Engine:
    """Start Spark here, or connect to a master; `lanes` is what all flows together want."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master is None or master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    log_config = Path(__file__).with_name("log4j2.properties")
    gateway = Gateway([f"-Dlog4j2.configurationFile={log_config.as_uri()}"], {})
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("pyspark").setLevel(logging.ERROR)
    try:
        session = (
            SparkSession.builder.appName("twinlog")
            .master(master or local_master(lanes))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.speculation", "false")
            .config("spark.task.maxFailures", str(TASK_FAILURES))
            .config("spark.python.worker.faulthandler.enabled", "false")
            .config("spark.sql.execution.pyspark.udf.hideTraceback.enabled", "false")
            .getOrCreate()
        )
    except BaseException:
        gateway.stop()
        raise
    slots = None if master is None else _slots(session, lanes)
    return Engine(session=session, gateway=gateway, slots=slots)


def _slots(session: SparkSession, lanes: int) -> int:
    """The task slots of a given master; a lease and its successor run side by side on them."""
    slots = session.sparkContext.defaultParallelism
    if slots < 2 * lanes:
        log.warning(
            "the Spark master offers %d task slots, but %d lanes with their successors need %d: "
            "fewer lanes are used; add cores, or set tasks.max or --lanes lower",
            slots,
            lanes,
            2 * lanes,
        )
    return slots


def stop_session(engine: Engine) -> None:
    """End Spark and its JVM, whatever state they are in."""
    try:
        engine.session.stop()
    except Exception as error:  # noqa: BLE001 (py4j raises anything when the JVM is gone)
        log.info("Spark had ended already: %s", type(error).__name__)
    context: Any = SparkContext
    context._gateway = context._jvm = None
    engine.gateway.stop()
