"""A lease is one Spark job: a partition, a task and a lane for each of its numbers.

The job is an RDD's and not a DataFrame's: a lane needs no columns, and without Spark's SQL engine
and Arrow a mirror is smaller by a fifth and starts with half the CPU (docs/adr/0008).
"""

from __future__ import annotations

import functools
import importlib
import logging
import re
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from pyspark import RDD, SparkContext, TaskContext

from twinlog.errors import TwinlogError
from twinlog.lane.messages import Receipt
from twinlog.spark.framing import ChannelAddress

log = logging.getLogger(__name__)

_OURS: Final = re.compile(r"^twinlog\.[\w.]+: (.*) \[([A-Z][A-Z0-9_]*)\]\s*$", re.MULTILINE)
_LAST_WORDS: Final = re.compile(r"^[\w.]+(?:Error|Exception|Interrupt|Exit): .*$", re.MULTILINE)


def run_lane_task(
    lane: int, nothing: Iterator[object], *, entry: str, lease: int, address: ChannelAddress
) -> Iterator[Receipt]:
    """The task of one lane, on an executor; the lane's code is loaded here and not pickled."""
    # the end of Spark's (empty) input must be read, or it does not use the worker process again
    deque(nothing, maxlen=0)
    module, _, function = entry.partition(":")
    run = getattr(importlib.import_module(module), function)
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    yield from run(lane, lease, attempt, address)


class LeaseJob:
    """One lease as a running Spark job."""

    def __init__(
        self, context: SparkContext, entry: str, address: ChannelAddress, lease: int, lanes: int
    ) -> None:
        self.error: TwinlogError | None = None
        self.receipts: tuple[Receipt, ...] = ()
        self.done = threading.Event()
        self._context = context
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
            self._context.setJobGroup(self._group, self._group, interruptOnCancel=True)
            lanes: RDD[object] = self._context.parallelize([], self._lanes)
            self.receipts = tuple(lanes.mapPartitionsWithIndex(self._task).collect())
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
            scala: Any = self._context._jsc.sc()
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


class LeaseStarter:
    """Starts leases on one Spark."""

    def __init__(self, context: SparkContext, entry: str, address: ChannelAddress) -> None:
        self._context = context
        self._entry = entry
        self._address = address

    def start(self, lease: int, lanes: int) -> LeaseJob:
        return LeaseJob(self._context, self._entry, self._address, lease, lanes)
