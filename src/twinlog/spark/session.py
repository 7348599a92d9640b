"""Starts Spark for this process, with settings for a quick start and little memory and output. Or
uses the Spark session of a caller of `twinlog.run`. Twinlog neither changes nor stops a caller's
session, so it only checks if the session has the settings that lanes need.
"""

from __future__ import annotations

import logging
import os
import struct
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from py4j.protocol import INPUT_CONVERTER, Py4JError
from pyspark import SparkConf, SparkContext, accumulators

from twinlog.errors import ConfigError, Disconnected, EnvironmentMissing
from twinlog.machine import usable_cores
from twinlog.spark.authentication import (
    AUTHENTICATED,
    FLAG,
    NEEDED_BECAUSE,
    OPEN,
    security_settings,
)
from twinlog.spark.gateway import Gateway, SubmittedGateway, start_jvm, submit_jvm
from twinlog.spark.lease import reason_of
from twinlog.spark.masters import (
    TASK_FAILURES,
    cores_setting,
    local_master,
    memory_setting,
    standby_settings,
)
from twinlog.spark.options import (
    NEEDED,
    SparkOptions,
    is_local,
    is_submitted,
    log_replaced_settings,
)
from twinlog.spark.pack import UNPACKED_FOLDER

log = logging.getLogger(__name__)


STOP_WITHIN_S: Final = 5.0
"""Time after which a JVM that does not stop is killed, in seconds."""

_LENGTH: Final = struct.Struct("!i")

LOG_CONFIG: Final = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A running Spark."""

    context: SparkContext
    gateway: Gateway
    is_ours: bool = True
    """False for a caller's session, which Twinlog must not stop."""


def start_spark(
    options: SparkOptions | None,
    lanes: int,
    name: str = "twinlog",
    *,
    jvm_options: Sequence[str] = (),
    task_failures: int = TASK_FAILURES,
) -> Engine:
    """Start Spark on this machine, or connect to the master of a cluster.

    `lanes`: number of lanes of all flows, or 0 if tasks use the slots that are available. `name`:
    the name of the application unless the user has set one. `task_failures`: number of failures of
    a task after which its job fails.
    """
    jvm = DriverJvm(
        options or SparkOptions(), name, jvm_options=jvm_options, task_failures=task_failures
    )
    with jvm.ending_on_error():
        return jvm.begin(lanes)


class DriverJvm:
    """The JVM of Spark's driver. It has no application, and so no executor, until `begin`."""

    def __init__(
        self,
        options: SparkOptions,
        name: str,
        *,
        jvm_options: Sequence[str] = (),
        task_failures: int = TASK_FAILURES,
    ) -> None:
        self._options = options
        self._name = options.name or name
        self._task_failures = task_failures
        master, conf = options.master, options.user_settings
        hush_libraries()
        ignore_accumulators()
        remove_sql_converters()
        needed = {**NEEDED, "spark.task.maxFailures": str(task_failures)}
        log_replaced_settings(conf, needed)
        self._settings = {**options.usual, **needed, **_archive_settings(options.archive, conf)}
        flags = [f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}", *jvm_options]
        archive = options.archive
        self.gateway: Gateway
        if is_local(master):
            self._settings = {"spark.ui.enabled": "false", **conf, **self._settings}
            # lanes use this interpreter; executors of a cluster may have another interpreter
            os.environ["PYSPARK_PYTHON"] = sys.executable
        else:
            os.environ.setdefault(
                "PYSPARK_PYTHON", sys.executable if archive is None else "python3"
            )
        if is_submitted():
            self.gateway = SubmittedGateway()
        elif is_local(master):
            self.gateway = start_jvm(options, flags)
        else:
            settings = {**self._settings, "spark.master": str(master)}
            self.gateway = submit_jvm(options, flags, settings, self._name)
        with self.ending_on_error():
            # start py4j first, because without the JVM a SparkConf does not contain the settings of
            # Spark's files
            SparkContext._ensure_initialized()
            self.gateway.restore_environment()
            self._configured = {**dict(SparkConf().getAll()), **conf}
            security = security_settings(master, self._configured, may_be_open=options.may_be_open)
            if security == OPEN:
                log.warning("%s: %s (%s)", master, NEEDED_BECAUSE, FLAG)
            log_replaced_settings(self._configured, security)
            self._settings |= security

    def begin(
        self, lanes: int, *, slots: int = 0, lane_bytes: int = 0, is_warm: bool = False
    ) -> Engine:
        """Start the application. `slots`: task slots to use of a standalone cluster, or 0 for all.
        `lane_bytes`: memory of a lane, or 0 if unknown. `is_warm`: the application keeps one
        executor while it is idle. Raises EnvironmentMissing if a setting is wrong, and Disconnected
        after a minute if the cluster cannot be reached.
        """
        url = str(self._options.master)
        if is_local(self._options.master):
            url = local_master(self._options.master, lanes, usable_cores(), self._task_failures)
        conf = SparkConf().setAppName(self._name).setMaster(url)
        conf.setAll([*self._settings.items()])
        conf.setAll([*cores_setting(url, slots, self._configured).items()])
        conf.setAll([*memory_setting(url, lane_bytes, self._configured).items()])
        conf.setAll([*standby_settings(self._configured).items()] if is_warm else [])
        try:
            return Engine(context=SparkContext(conf=conf), gateway=self.gateway)
        except Py4JError as error:
            message = f"Spark does not start: {reason_of(str(error))}"
            is_wrong = "IllegalArgumentException" in str(error)
            raise (EnvironmentMissing if is_wrong else Disconnected)(message) from error

    @contextmanager
    def ending_on_error(self) -> Iterator[None]:
        """End the JVM if the block raises an error."""
        try:
            yield
        except BaseException:
            reset_pyspark()
            self.gateway.stop()
            raise


def submitted_options() -> SparkOptions:
    """Return the options of the `spark-submit` that has started this process."""
    SparkContext._ensure_initialized()
    conf = dict(SparkConf().getAll())
    return SparkOptions(
        master=conf["spark.master"], name=conf.get("spark.app.name"), user_settings=conf
    )


def hush_libraries() -> None:
    """Disable log messages of py4j and pyspark about errors that they also raise.

    Otherwise a traceback would be logged when the JVM ends during a call. The same applies to every
    unknown client of the port on which PySpark receives accumulator updates.
    """
    # before Spark 4.1, the class has another name
    known = vars(accumulators)
    server: Any = known.get("AccumulatorTCPServer") or known["AccumulatorServer"]
    server.handle_error = _log_broken_connection
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("pyspark").setLevel(logging.ERROR)
    logging.getLogger().addFilter(_is_not_of_py4j)


def ignore_accumulators() -> None:
    """Make PySpark ignore accumulator updates, which lanes do not use, so that it unpickles no data
    from executors.

    PySpark receives accumulator updates with each finished task. It would unpickle them in this
    process, which has the secrets of both clusters in its memory.
    """
    serializer: Any = _Unread()
    accumulators.pickleSer = serializer


def remove_sql_converters() -> None:
    """Remove the converters of `pyspark.sql` from py4j, because no call in this process passes a
    date or an array.

    To check if a value is an array, the NumPy converter imports PySpark's test tools, which import
    Pandas and PyArrow if installed. This would cost 85 MB and 1 s at the start of a mirror.
    """
    INPUT_CONVERTER[:] = [
        kept for kept in INPUT_CONVERTER if type(kept).__module__ != "pyspark.sql.types"
    ]


class _Unread:
    def _read_with_length(self, stream: BinaryIO) -> tuple[int, None]:
        (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
        stream.read(length)
        return -1, None  # no accumulator has this ID


def _log_broken_connection(_server: object, _request: object, address: object) -> None:
    log.debug("a connection of %s to PySpark's accumulators broke off", address, exc_info=True)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return False for log records of py4j, which writes some tracebacks to the root logger, and so
    ignores the level of its own logger.
    """
    return "py4j" not in Path(record.pathname).parts


def _archive_settings(archive: Path | None, conf: Mapping[str, str]) -> dict[str, str]:
    if archive is None:
        return {}
    own_archive = f"{archive.resolve().as_uri()}#{UNPACKED_FOLDER}"
    return {
        "spark.archives": ",".join(filter(None, (conf.get("spark.archives"), own_archive))),
        # relative to an executor's working directory, into which Spark unpacks archives
        "spark.executorEnv.PYTHONPATH": ":".join(
            filter(None, (UNPACKED_FOLDER, conf.get("spark.executorEnv.PYTHONPATH")))
        ),
    }


def stop_spark(engine: Engine) -> None:
    """Stop Spark, and stop or kill its JVM. Has no effect if they belong to a caller's session."""
    if not engine.is_ours:
        return
    stopping = threading.Thread(target=_stop, args=(engine.context,), daemon=True)
    stopping.start()
    stopping.join(STOP_WITHIN_S)
    reset_pyspark()
    engine.gateway.stop()


def _stop(context: SparkContext) -> None:
    try:
        context.stop()
    except Exception as error:  # noqa: BLE001 (py4j raises anything when the JVM is gone)
        log.info("Spark had ended already: %s", type(error).__name__)


def reset_pyspark() -> None:
    """Reset PySpark's state, so that the next session of this process starts a new JVM."""
    context: Any = SparkContext
    context._gateway = context._jvm = context._active_spark_context = None


SPECULATION: Final = "spark.speculation"


def session_options(spark: Any, *, may_be_open: bool) -> SparkOptions:
    """Return the options of a caller's SparkSession or SparkContext. Raises EnvironmentMissing or
    ConfigError if lanes cannot run in it.
    """
    context = _context_of(spark)
    conf = dict(context.getConf().getAll())
    if conf.get(SPECULATION) == "true":
        raise ConfigError(
            f"this session has {SPECULATION} true, which could start a second writer for a lane: "
            f"create the session with {SPECULATION} false"
        )
    missing = [f"{k} {v}" for k, v in AUTHENTICATED.items() if conf.get(k) != v]
    if missing and not may_be_open:
        raise ConfigError(
            f"this session lacks {', '.join(missing)}, but {NEEDED_BECAUSE}. Create the session "
            "with these settings. If no other client can reach Spark's ports, pass "
            "allow_unauthenticated_spark=True instead",
            code="SPARK_UNAUTHENTICATED",
        )
    return SparkOptions(master=context.master, user_settings=conf, context=context)


def _context_of(spark: Any) -> SparkContext:
    if isinstance(spark, SparkContext):
        return spark
    try:
        context = spark.sparkContext
    except Exception:  # noqa: BLE001 (each version of Spark Connect raises another error)
        context = None
    if not isinstance(context, SparkContext):
        raise EnvironmentMissing(
            "this session has no SparkContext, which lanes need (a session of Spark Connect has "
            "none): use a session of the cluster's own driver, or `twinlog mirror --master`"
        )
    return context


class AttachedJvm:
    """The JVM and the application of a caller's session."""

    def __init__(self, options: SparkOptions) -> None:
        self._context = options.context
        self.gateway = SessionGateway()

    def begin(self, _lanes: int, **_: object) -> Engine:
        """Return the session's application, which already runs."""
        return Engine(context=self._context, gateway=self.gateway, is_ours=False)


class SessionGateway(SubmittedGateway):
    """The JVM of a caller's session."""

    @property
    def has_ended(self) -> bool:
        """Return False. If the JVM has ended, calls of the context fail."""
        return False
