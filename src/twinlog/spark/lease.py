"""A lease is one Spark job: a row, a task and a lane for each of its numbers."""

from __future__ import annotations

import functools
import importlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row, SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.pandas import functions
from pyspark.util import PythonEvalType

from twinlog.errors import TwinlogError
from twinlog.spark.framing import ChannelAddress

log = logging.getLogger(__name__)

RECEIPT_SCHEMA = (
    "lease long, lane long, topic string, partition long, outcome string, records long, bytes "
    "long, "
    "next_upstream_offset long, next_downstream_offset long"
)
_ARROW = pa.schema(
    [
        ("lease", pa.int64()),
        ("lane", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("outcome", pa.string()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("next_upstream_offset", pa.int64()),
        ("next_downstream_offset", pa.int64()),
    ]
)


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
            rows = [asdict(receipt) for receipt in run(lane, lease, attempt, address)]
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


class LeaseJob:
    """One lease as a running Spark job."""

    def __init__(
        self, session: SparkSession, entry: str, address: ChannelAddress, lease: int, lanes: int
    ) -> None:
        self.error: TwinlogError | None = None
        self.receipts: list[Row] = []
        self._session = session
        self._group = f"twinlog-lease-{lease}"
        self._task = functools.partial(run_lane_task, entry=entry, lease=lease, address=address)
        self._lanes = lanes
        self._thread = threading.Thread(target=self._run, name=self._group, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        context = self._session.sparkContext
        context.setJobGroup(self._group, self._group, interruptOnCancel=True)
        lanes = self._session.range(0, self._lanes, 1, self._lanes)
        try:
            self.receipts = _map_in_arrow(lanes, self._task, RECEIPT_SCHEMA).collect()
        except Exception as error:  # noqa: BLE001 (Spark's errors have no common base)
            self.error = TwinlogError(
                f"the Spark job of {self._group} failed: {error}", code="LEASE"
            )

    def cancel(self) -> None:
        """End the job's tasks; harmless when it has ended."""
        try:
            self._session.sparkContext.cancelJobGroup(self._group)
        except Exception as error:  # noqa: BLE001 (py4j raises anything when the JVM is gone)
            log.info("%s could not be cancelled: %s", self._group, type(error).__name__)


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
