"""A lease is one Spark job: a row, a task and a lane for each of its numbers."""

from __future__ import annotations

import functools
import importlib
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.pandas import functions
from pyspark.util import PythonEvalType

from twinlog.errors import TwinlogError
from twinlog.lane.messages import Receipt
from twinlog.spark.framing import ChannelAddress
from twinlog.spark.receipts import SPARK_SCHEMA, from_rows, to_arrow

log = logging.getLogger(__name__)

_OURS: Final = re.compile(r"^twinlog\.[\w.]+: (.*) \[([A-Z][A-Z0-9_]*)\]\s*$", re.MULTILINE)
_LAST_WORDS: Final = re.compile(r"^[\w.]+(?:Error|Exception|Interrupt|Exit): .*$", re.MULTILINE)


def run_lane_task(
    arrow_batches: Iterator[pa.RecordBatch], *, entry: str, lease: int, address: ChannelAddress
) -> Iterator[pa.RecordBatch]:
    """The task of one lane, on an executor; the lane's code is loaded here and not pickled."""
    module, _, function = entry.partition(":")
    run = getattr(importlib.import_module(module), function)
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    for lanes in arrow_batches:
        for lane in lanes.column(0).to_pylist():
            yield to_arrow(run(lane, lease, attempt, address))


class LeaseJob:
    """One lease as a running Spark job."""

    def __init__(
        self, session: SparkSession, entry: str, address: ChannelAddress, lease: int, lanes: int
    ) -> None:
        self.error: TwinlogError | None = None
        self.receipts: tuple[Receipt, ...] = ()
        self.done = threading.Event()
        self._session = session
        self._group = f"twinlog-lease-{lease}"
        self._task = functools.partial(run_lane_task, entry=entry, lease=lease, address=address)
        self._lanes = lanes
        self._cancelled = False
        self._thread = threading.Thread(target=self._run, name=self._group, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return self.done.is_set()

    def _run(self) -> None:
        try:
            context = self._session.sparkContext
            context.setJobGroup(self._group, self._group, interruptOnCancel=True)
            lanes = self._session.range(0, self._lanes, 1, self._lanes)
            self.receipts = from_rows(_map_in_arrow(lanes, self._task, SPARK_SCHEMA).collect())
        except Exception as error:  # noqa: BLE001 (Spark's errors have no common base)
            if not self._cancelled:
                self.error = error_of(self._group, str(error))
        finally:
            self.done.set()

    def cancel(self) -> None:
        """End the job's tasks, or keep them from starting; harmless when it has ended."""
        self._cancelled = True
        try:
            # a lease that is cancelled before its thread has come to start the job must not run
            scala: Any = self._session.sparkContext._jsc.sc()
            scala.cancelJobGroupAndFutureJobs(self._group)
        except Exception as error:  # noqa: BLE001 (py4j raises anything when the JVM is gone)
            log.info("%s could not be cancelled: %s", self._group, type(error).__name__)


def error_of(job: str, text: str) -> TwinlogError:
    """What ended a Spark job; of a worker's exception Spark hands on the traceback's text only."""
    ours = _OURS.findall(text)
    if ours:
        message, code = ours[-1]
        return TwinlogError(f"{job}: {message}", code=code)
    words = _LAST_WORDS.findall(text) or text.strip().splitlines() or ["no reason given"]
    return TwinlogError(f"{job} failed on Spark: {words[-1].strip()[:500]}", code="LEASE")


def _map_in_arrow(frame: Any, task: Any, schema: str) -> DataFrame:
    """`frame.mapInArrow(task, schema)` without its check for pandas, which this does not use (and
    which is large).
    """
    make_udf: Any = functions  # `vectorized_udf` is not in its stubs
    udf: Any = make_udf.vectorized_udf(
        task, returnType=schema, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = udf(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


class LeaseStarter:
    """Starts leases on one session."""

    def __init__(self, session: SparkSession, entry: str, address: ChannelAddress) -> None:
        self._session = session
        self._entry = entry
        self._address = address

    def start(self, lease: int, lanes: int) -> LeaseJob:
        return LeaseJob(self._session, self._entry, self._address, lease, lanes)
