"""A lease is one Spark job with one partition, task and lane per number.

Results of executors are counted in Spark's JVM and never read here: PySpark would unpickle them,
and a pickle is code (docs/adr/0011). Lanes report over the channel, in messages that are data.

The job is an RDD's and not a DataFrame's: a lane needs no columns, and without Spark's SQL engine
and Arrow a mirror is smaller by a fifth and starts with half the CPU (docs/adr/0008).
"""

from __future__ import annotations

import functools
import importlib
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from pyspark import RDD, SparkContext, TaskContext

from twinlog.channel.frames import ChannelAddress
from twinlog.channel.lane_secrets import LaneSecrets
from twinlog.errors import TwinlogError
from twinlog.model import LeaseCopy
from twinlog.quantities import plural, size

log = logging.getLogger(__name__)

SHOWN: Final = 1000
"""Maximum number of partitions of a lease on Spark's page."""
NOTED_WITHIN_S: Final = 2.0
LAST_JOBS: Final = 100

_OURS: Final = re.compile(r"^twinlog\.[\w.]+: (.*) \[([A-Z][A-Z0-9_]*)\]\s*$", re.MULTILINE)
_LAST_WORDS: Final = re.compile(r"^[\w.]+(?:Error|Exception|Interrupt|Exit): .*$", re.MULTILINE)
_NO_START: Final = re.compile(
    r'Cannot run program "(.+?)"[^:\n]*: (?:error=\d+, )?(.+)$', re.MULTILINE
)
_WORKER_SAID: Final = re.compile(r"Error from python worker:\n(.*?)\nPYTHONPATH was:", re.DOTALL)
_CAUSE: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_SHUT_DOWN: Final = "because SparkContext was shut down"
_LOST_TASK: Final = re.compile(r"most recent failure: Lost task .*?\): (.+)$", re.MULTILINE)


def run_lane_task(
    lane: int, own: Iterator[str], *, entry: str, lease: int, address: ChannelAddress
) -> Iterator[object]:
    """Run the task of one lane on an executor. The lane's code is loaded here and not pickled."""
    # read Spark's input to its end, or Spark does not reuse the worker process
    (secret,) = own
    module, _, function = entry.partition(":")
    run = getattr(importlib.import_module(module), function)
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    run(lane, lease, attempt, replace(address, token=secret))
    return iter(())


class LeaseJob:
    """One lease as a running Spark job."""

    def __init__(
        self,
        context: SparkContext,
        *,
        entry: str,
        address: ChannelAddress,
        secrets: LaneSecrets,
        lease: int,
        lanes: int,
        description: str = "",
    ) -> None:
        """`description`: the text on Spark's page."""
        self.error: TwinlogError | None = None
        self.done = threading.Event()
        self._context = context
        self._group = f"twinlog-lease-{lease}"
        self._description = description or self._group
        self._noting: threading.Thread | None = None
        self._task = functools.partial(run_lane_task, entry=entry, lease=lease, address=address)
        self._lease = lease
        self._secrets = secrets
        self._own = secrets.open(lease, lanes)
        self._cancelled = False
        self._thread = threading.Thread(target=self._run, name=self._group, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return self.done.is_set()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
            # sets the name of the stage; otherwise it would be a line of py4j's code
            self._context.setLocalProperty("callSite.short", self._description)
            # each secret is sent in its own task's description: the closure, which Spark keeps as a
            # block for all executors, has none
            lanes: RDD[str] = self._context.parallelize(self._own, len(self._own))
            lanes.mapPartitionsWithIndex(self._task)._jrdd.count()
        except Exception as error:  # noqa: BLE001 (Spark's errors have no common base)
            if not self._cancelled:
                has_ended = self._context._jsc is None or _SHUT_DOWN in str(error)
                text = "its application has ended" if has_ended else str(error)
                self.error = error_of(self._group, text)
        finally:
            self._secrets.close(self._lease)
            self.done.set()

    def note(self, copied: Sequence[LeaseCopy]) -> None:
        """Show what the lanes have copied, if anybody can see it, as a job of one small task.

        Its description has the sum, the details of its stage a row for each partition. The metrics
        of the lanes' own tasks are of no use for that: only code in an executor's JVM can set them.
        """
        if copied:
            self._noting = threading.Thread(target=self._note_copies, args=[copied], daemon=True)
            self._noting.start()

    def _note_copies(self, copied: Sequence[LeaseCopy]) -> None:
        records, total = sum(topic.records for topic in copied), sum(copy.bytes for copy in copied)
        lease = self._description.rpartition(", ")[0] or self._group
        description = f"{lease} copied {plural(records, 'record')}, {size(total)}"
        shown = ["\t".join(LeaseCopy._fields)]
        shown += [
            "\t".join("?" if at is None else str(at) for at in copy) for copy in copied[:SHOWN]
        ]
        if len(copied) > SHOWN:
            shown.append(f"and {plural(len(copied) - SHOWN, 'more partition')}")
        with suppress(Exception):  # the application has ended
            if not _is_shown(self._context):
                return
            self._context.setJobGroup(f"{self._group}-copied", description)
            for key, value in {
                "callSite.short": description,
                "callSite.long": "\n".join(shown),
                "twinlog.lease": str(self._lease),
                "twinlog.records": str(records),
                "twinlog.bytes": str(total),
            }.items():
                self._context.setLocalProperty(key, value)
            self._context.parallelize([""], 1)._jrdd.count()

    def await_note(self, within_s: float) -> None:
        """Wait until Spark's page shows what the lease has copied."""
        if self._noting is not None:
            self._noting.join(within_s)

    def cancel(self) -> None:
        """End the job's tasks, or prevent them from starting. Has no effect if the job has ended.

        It does not wait: a JVM that has stopped must not block the rest of this process.
        """
        if not self._cancelled:
            self._cancelled = True
            threading.Thread(target=self._cancel, name=f"{self._group}-end", daemon=True).start()

    def _cancel(self) -> None:
        try:
            # a lease that is cancelled before its thread has started the job must not run
            scala: Any = self._context._jsc.sc()
            scala.cancelJobGroupAndFutureJobs(self._group)
        except Exception as error:  # noqa: BLE001 (py4j raises anything when the JVM is gone)
            log.info("%s could not be cancelled: %s", self._group, type(error).__name__)


def _is_shown(context: SparkContext) -> bool:
    """Return True if Spark has a page or a history."""
    conf = context.getConf()
    page = conf.get("spark.ui.enabled", "true")
    return "true" in (page, conf.get("spark.eventLog.enabled", "false"))


def error_of(job: str, text: str) -> TwinlogError:
    """Return why a Spark job ended. Spark returns only the text of a worker's traceback."""
    messages = _OURS.findall(text)
    if messages:
        message, code = messages[-1]
        return TwinlogError(f"{job}: {message}", code=code)
    return TwinlogError(f"{job} failed on Spark: {reason_of(text)[:500]}", code="LEASE")


def reason_of(text: str) -> str:
    """Return the line with the reason, which is neither the first nor the last of a Java trace."""
    if unstarted := _NO_START.search(text):
        python, why = unstarted.groups()
        return (
            f"the lanes' Python cannot be started: {python}: {why}; it is set by PYSPARK_PYTHON, "
            "and every executor must be able to run it as its own user"
        )
    if said := _WORKER_SAID.search(text):
        words = said.group(1).strip().splitlines() or ["without a word"]
        return f"the lanes' Python ended: {words[-1].strip()}"
    for pattern in (_LAST_WORDS, _CAUSE, _LOST_TASK):
        if matches := pattern.findall(text):
            return str(matches[-1]).strip()
    return (text.strip().splitlines() or ["no reason given"])[-1].strip()


class SparkLeaseStarter:
    """Starts leases on one Spark."""

    def __init__(
        self, context: SparkContext, entry: str, address: ChannelAddress, secrets: LaneSecrets
    ) -> None:
        self._context = context
        self._entry = entry
        self._address = address
        self._secrets = secrets
        self._jobs: deque[LeaseJob] = deque(maxlen=LAST_JOBS)

    def start(self, lease: int, lanes: int, description: str = "") -> LeaseJob:
        job = LeaseJob(
            self._context,
            entry=self._entry,
            address=self._address,
            secrets=self._secrets,
            lease=lease,
            lanes=lanes,
            description=description,
        )
        self._jobs.append(job)
        return job

    @property
    def is_leasing(self) -> bool:
        """Return True if a lease runs, or waits for an executor."""
        return any(not job.is_done for job in list(self._jobs))

    def finish(self) -> None:
        """Wait until the rows of the last leases are shown, because otherwise a history would call
        them failed.
        """
        until = time.monotonic() + NOTED_WITHIN_S
        for job in self._jobs:
            job.await_note(max(0.0, until - time.monotonic()))


def await_executor(context: SparkContext, *, has_python: bool = False) -> None:
    """Start a job that ends when an executor has run it, in the background. While it waits, Spark
    logs why it has no executor; with dynamic allocation it requests one. `has_python`: it also
    starts the daemon from which lanes are forked.
    """

    def run() -> None:
        context.setJobGroup("twinlog-waits", "twinlog waits for an executor")
        with suppress(Exception):  # the application has ended
            numbers: RDD[str] = context.parallelize([""], 1)
            (numbers.mapPartitions(_identity) if has_python else numbers)._jrdd.count()

    threading.Thread(target=run, name="twinlog-waits", daemon=True).start()


def _identity(own: Iterable[str]) -> Iterable[str]:
    return own
