"""Runs Spark for this process: quick to start, small and silent."""

from __future__ import annotations

import logging
import os
import struct
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from py4j.protocol import INPUT_CONVERTER
from pyspark import SparkConf, SparkContext, accumulators

from twinlog.errors import EnvironmentMissing
from twinlog.spark.authentication import security_settings
from twinlog.spark.gateway import Gateway, start_jvm, submit_jvm
from twinlog.spark.masters import (
    TASK_FAILURES,
    is_local,
    local_master,
    require_known,
    task_slots,
    usable_cores,
)
from twinlog.spark.pack import ALIAS

log = logging.getLogger(__name__)

STOP_WITHIN_S: Final = 5.0
"""A JVM that does not respond is killed after this time."""

_LENGTH: Final = struct.Struct("!i")

LOG_CONFIG: Final = Path(__file__).with_name("log4j2.properties")

SETTINGS: Final = {
    # a speculative copy of a slow lane would be a second writer
    "spark.speculation": "false",
    "spark.task.cpus": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.python.daemon.module": "twinlog.spark.daemon",
    "spark.python.worker.faulthandler.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A running Spark."""

    context: SparkContext
    gateway: Gateway
    slots: int | None
    """Task slots of a given master; None for the local one, which has as many as needed."""


def start_spark(
    master: str | None,
    lanes: int,
    archive: Path | None = None,
    *,
    may_be_open: bool = False,
    jvm_options: Sequence[str] = (),
    task_failures: int = TASK_FAILURES,
) -> Engine:
    """Start Spark here, or connect to a master.

    `lanes` is the total for all flows; 0 lets tasks use the available slots. `archive` is unpacked
    by executors, which then need a Python but not Twinlog. `may_be_open`: a master without a secret
    is not rejected. `task_failures`: how often a task may fail.
    """
    if master is not None:
        require_known(master)
    hush_libraries()
    read_past_accumulators()
    convert_nothing_of_sql()
    settings = {**SETTINGS, **_archive_settings(archive)}
    settings["spark.task.maxFailures"] = str(task_failures)
    options = [f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}", *jvm_options]
    if is_local(master):
        # executors of a cluster may have another interpreter
        os.environ["PYSPARK_PYTHON"] = sys.executable
        url = local_master(master, lanes, usable_cores(), task_failures)
        gateway = start_jvm(options)
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable if archive is None else "python3")
        url = str(master)
        gateway = submit_jvm(options, {"spark.master": url, **settings})
    try:
        # without the JVM, a SparkConf does not read Spark's files
        SparkContext._ensure_initialized()
        conf = SparkConf()
        settings |= security_settings(master, dict(conf.getAll()), may_be_open=may_be_open)
        conf.setAppName("twinlog").setMaster(url).setAll([*settings.items()])
        context = SparkContext(conf=conf)
        gateway.restore_environment()
        slots = None if master is None or not lanes else task_slots(context, 2 * lanes)
    except BaseException:
        forget_gateway()
        gateway.stop()
        raise
    return Engine(context=context, gateway=gateway, slots=slots)


def hush_libraries() -> None:
    """Silence logging of py4j and pyspark for errors that they also raise.

    A JVM that ended with an unanswered call would otherwise cause a traceback, and so would every
    client that connects to the port on which PySpark waits for accumulators.
    """
    # before Spark 4.1 there is one kind of server, with another name
    known = vars(accumulators)
    server: Any = known.get("AccumulatorTCPServer") or known["AccumulatorServer"]
    server.handle_error = _note_stranger
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("pyspark").setLevel(logging.ERROR)
    logging.getLogger().addFilter(_is_not_of_py4j)


def read_past_accumulators() -> None:
    """Prevent unpickling of data from executors: lanes have no accumulators.

    PySpark receives accumulator updates with each finished task and would unpickle them in this
    process, which holds the secrets of both clusters.
    """
    serializer: Any = _Unread()
    accumulators.pickleSer = serializer


def convert_nothing_of_sql() -> None:
    """Remove `pyspark.sql`'s converters from py4j, because no call here has a date or an array.

    To check whether a value is an array, the NumPy converter imports PySpark's own test tools, and
    these import Pandas and PyArrow if installed: 85 MB and 1 s at the start of a mirror.
    """
    kept = [one for one in INPUT_CONVERTER if type(one).__module__ != "pyspark.sql.types"]
    INPUT_CONVERTER[:] = kept


class _Unread:
    def _read_with_length(self, stream: BinaryIO) -> tuple[int, None]:
        (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
        stream.read(length)
        return -1, None  # not an existing accumulator


def _note_stranger(_server: object, _request: object, address: object) -> None:
    log.debug("a connection of %s to PySpark's accumulators broke off", address, exc_info=True)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a log record is not py4j's, which writes some tracebacks to the root logger,
    whatever its own level is.
    """
    return "py4j" not in Path(record.pathname).parts


def _archive_settings(archive: Path | None) -> dict[str, str]:
    if archive is None:
        return {}
    if not archive.is_file():
        raise EnvironmentMissing(f"{archive}: no such file; create it with `twinlog pack`")
    return {
        "spark.archives": f"{archive.resolve().as_uri()}#{ALIAS}",
        # beside an executor's work, where Spark unpacks archives
        "spark.executorEnv.PYTHONPATH": ALIAS,
    }


def stop_spark(engine: Engine) -> None:
    """End Spark and its JVM, whatever their state."""
    stopping = threading.Thread(target=_stop, args=(engine.context,), daemon=True)
    stopping.start()
    stopping.join(STOP_WITHIN_S)
    forget_gateway()
    engine.gateway.stop()


def _stop(context: SparkContext) -> None:
    try:
        context.stop()
    except Exception as error:  # noqa: BLE001 (py4j raises anything when the JVM is gone)
        log.info("Spark had ended already: %s", type(error).__name__)


def forget_gateway() -> None:
    """Let the next session of this process start a new JVM."""
    context: Any = SparkContext
    context._gateway = context._jvm = context._active_spark_context = None
