"""Spark for this process: a session that is quick to start, small and silent."""

from __future__ import annotations

import logging
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from twinlog.spark.gateway import Gateway, start_jvm, submit_jvm
from twinlog.spark.masters import TASK_FAILURES, is_local, local_master, task_slots, usable_cores

log = logging.getLogger(__name__)

STOP_WITHIN_S: Final = 5.0
"""A JVM that does not answer is ended the hard way after this."""

LOG_CONFIG: Final = Path(__file__).with_name("log4j2.properties")

SETTINGS: Final = {
    # a copy of a lane that is merely slow would be a second writer
    "spark.speculation": "false",
    "spark.task.cpus": "1",
    "spark.task.maxFailures": str(TASK_FAILURES),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.python.daemon.module": "twinlog.spark.daemon",
    "spark.python.worker.faulthandler.enabled": "false",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "false",
    # a lease is a plan of two steps: compiling Java for it costs more than it could save
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A running Spark."""

    session: SparkSession
    gateway: Gateway
    slots: int | None
    """Task slots of a given master; None here, where there are as many as are needed."""


def build_session(master: str | None, lanes: int) -> Engine:
    """Start Spark here, or connect to a master; `lanes` is what all flows together want."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("pyspark").setLevel(logging.ERROR)
    options = [f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}"]
    if is_local(master):
        # executors of a cluster may have another interpreter, and must find our address
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        url = local_master(master, lanes, usable_cores())
        gateway = start_jvm(options)
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        url = str(master)
        gateway = submit_jvm(options, {"spark.master": url, **SETTINGS})
    try:
        builder = SparkSession.builder.appName("twinlog").master(url)
        for key, value in SETTINGS.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        slots = None if master is None else task_slots(session.sparkContext, 2 * lanes)
    except BaseException:
        forget_gateway()
        gateway.stop()
        raise
    return Engine(session=session, gateway=gateway, slots=slots)


def stop_session(engine: Engine) -> None:
    """End Spark and its JVM, whatever state they are in."""
    stopping = threading.Thread(target=_stop, args=(engine.session,), daemon=True)
    stopping.start()
    stopping.join(STOP_WITHIN_S)
    forget_gateway()
    engine.gateway.stop()


def _stop(session: SparkSession) -> None:
    try:
        session.stop()
    except Exception as error:  # noqa: BLE001 (py4j raises anything when the JVM is gone)
        log.info("Spark had ended already: %s", type(error).__name__)


def forget_gateway() -> None:
    """Let the next session of this process begin with a JVM of its own."""
    context: Any = SparkContext
    context._gateway = context._jvm = context._active_spark_context = None
