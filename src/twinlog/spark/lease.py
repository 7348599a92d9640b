"""A lease is one Spark job. Each of its lanes is one task, for one partition of an RDD.

The results of tasks are counted in Spark's JVM and never read in this process. PySpark would
unpickle them, and a pickle can run code (docs/adr/0011). Lanes report over the channel instead, in
messages that contain only data.

The job uses an RDD instead of a DataFrame, because a lane needs no columns. Without Spark's SQL
engine and Arrow, a mirror needs a fifth less memory and half the CPU to start (docs/adr/0008).
"""

from __future__ import annotations

import functools
import importlib
import logging
import re
import threading
import time
import uuid
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
"""Maximum number of partitions of a lease that Spark's page lists."""
NOTED_WITHIN_S: Final = 2.0
LOOK_EVERY_S: Final = 5.0
LAST_JOBS: Final = 100

_OURS: Final = re.compile(r"^twinlog\.[\w.]+: (.*) \[([A-Z][A-Z0-9_]*)\]\s*$", re.MULTILINE)
_LAST_WORDS: Final = re.compile(r"^[\w.]+(?:Error|Exception|Interrupt|Exit): .*$", re.MULTILINE)
_NO_START: Final = re.compile(
    r'Cannot run program "(.+?)"[^:\n]*: (?:error=\d+, )?(.+)$', re.MULTILINE
)
_WORKER_SAID: Final = re.compile(r"Error from python worker:\n(.*?)\nPYTHONPATH was:", re.DOTALL)
_CAUSE: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_SHUT_DOWN: Final = "because SparkContext was shut down"
_THROWN: Final = re.compile(r"^: [\w.$]+: (.+)$", re.MULTILINE)
"""The first line of a Java error in py4j's message."""
_LOST_TASK: Final = re.compile(r"most recent failure: Lost task .*?\): (.+)$", re.MULTILINE)


def run_lane_task(
    lane: int, own: Iterator[str], *, entry: str, lease: int, address: ChannelAddress
) -> Iterator[object]:
    """Run the task of one lane on an executor. `entry`: module and function of the lane's code,
    which is imported on the executor instead of being pickled.
    """
    # read the input to its end, because otherwise Spark does not reuse the worker process
    (secret,) = own
    module, _, function = entry.partition(":")
    run = getattr(importlib.import_module(module), function)
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    run(lane, lease, attempt, replace(address, token=secret))
    return iter(())


class LeaseJob:
    """One lease as a Spark job, which runs in a thread of this process."""

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
        """`description`: the text of the job on Spark's page."""
        self.error: TwinlogError | None = None
        self.done = threading.Event()
        self._context = context
        self._name = f"twinlog-lease-{lease}"
        # unique, because leases of other runs in a caller's session have the same numbers, and
        # Spark also cancels later jobs of a group that was cancelled
        self._group = f"{self._name}-{uuid.uuid4().hex[:8]}"
        self._description = description or self._name
        self._noting: threading.Thread | None = None
        self._looking: threading.Thread | None = None
        self._looked_at = 0.0
        self._awaits_slot = False
        self._task = functools.partial(run_lane_task, entry=entry, lease=lease, address=address)
        self._lease = lease
        self._secrets = secrets
        self._own = secrets.open(lease, lanes)
        self._cancelled = False
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return self.done.is_set()

    @property
    def awaits_slot(self) -> bool:
        """Return True if no task of the job has begun. Spark is queried in a thread every
        LOOK_EVERY_S, and the value is False until the query ends.
        """
        is_looking = self._looking is not None and self._looking.is_alive()
        if not is_looking and time.monotonic() - self._looked_at > LOOK_EVERY_S:
            self._looked_at, self._awaits_slot = time.monotonic(), False
            self._looking = threading.Thread(target=self._look, daemon=True)
            self._looking.start()
        return self._awaits_slot

    def _look(self) -> None:
        with suppress(Exception):  # Spark's application may have ended
            self._awaits_slot = not has_task(self._context, self._group)

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
            # sets the name of the stage on Spark's page, which would otherwise be a line of py4j's
            # code
            self._context.setLocalProperty("callSite.short", self._description)
            # the secrets are the RDD's elements, so each secret is sent only with its own task. The
            # closure must not contain a secret, because Spark stores it as a block for all
            # executors
            lanes: RDD[str] = self._context.parallelize(self._own, len(self._own))
            lanes.mapPartitionsWithIndex(self._task)._jrdd.count()
        except Exception as error:  # noqa: BLE001 (Spark's errors have no common base)
            if not self._cancelled:
                has_ended = self._context._jsc is None or _SHUT_DOWN in str(error)
                text = "its application has ended" if has_ended else str(error)
                self.error = error_of(self._name, text)
        finally:
            self._secrets.close(self._lease)
            self.done.set()

    def note(self, copied: Sequence[LeaseCopy]) -> None:
        """Show what the lanes have copied on Spark's page, as a separate job with one small task.
        Does nothing if Spark has neither a page nor a history.

        The description of the job has the sum, and the details of its stage have a row for each
        partition. The metrics of the lanes' tasks cannot show this, because only code in an
        executor's JVM can set them.
        """
        if copied:
            self._noting = threading.Thread(target=self._note_copies, args=[copied], daemon=True)
            self._noting.start()

    def _note_copies(self, copied: Sequence[LeaseCopy]) -> None:
        records, total = sum(topic.records for topic in copied), sum(copy.bytes for copy in copied)
        lease = self._description.rpartition(", ")[0] or self._name
        description = f"{lease} copied {plural(records, 'record')}, {size(total)}"
        shown = ["\t".join(LeaseCopy._fields)]
        shown += [
            "\t".join("?" if at is None else str(at) for at in copy) for copy in copied[:SHOWN]
        ]
        if len(copied) > SHOWN:
            shown.append(f"and {plural(len(copied) - SHOWN, 'more partition')}")
        with suppress(Exception):  # Spark's application may have ended
            conf = self._context.getConf()
            has_page = conf.get("spark.ui.enabled", "true") == "true"
            if not has_page and conf.get("spark.eventLog.enabled", "false") != "true":
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
        """Wait until the job of `note` has ended, or for at most `within_s`."""
        if self._noting is not None:
            self._noting.join(within_s)

    def cancel(self) -> None:
        """End the job's tasks, or prevent their start. Has no effect if the job has already ended.

        The call does not wait, because a stopped JVM must not block the rest of this process.
        """
        if not self._cancelled:
            self._cancelled = True
            threading.Thread(target=self._cancel, name=f"{self._name}-end", daemon=True).start()

    def _cancel(self) -> None:
        try:
            # cancel future jobs too, because this lease's thread may not have started the job yet
            scala: Any = self._context._jsc.sc()
            scala.cancelJobGroupAndFutureJobs(self._group)
        except Exception as error:  # noqa: BLE001 (py4j raises anything when the JVM is gone)
            log.info("%s could not be canceled: %s", self._name, type(error).__name__)


def has_task(context: SparkContext, group: str) -> bool:
    """Return True if a task of this group's jobs has begun."""
    tracker = context.statusTracker()
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
    stages = filter(None, (tracker.getStageInfo(at) for job in jobs for at in job.stageIds))
    return any(
        stage.numActiveTasks or stage.numCompletedTasks or stage.numFailedTasks for stage in stages
    )


def error_of(job: str, text: str) -> TwinlogError:
    """Return the error of a failed Spark job. It has the code and message of the last Twinlog error
    in `text`, or else the code LEASE and Spark's reason.
    """
    messages = _OURS.findall(text)
    if messages:
        message, code = messages[-1]
        return TwinlogError(f"{job}: {message}", code=code)
    return TwinlogError(f"{job} failed on Spark: {reason_of(text)[:500]}", code="LEASE")


def reason_of(text: str) -> str:
    """Return the line of a Java stack trace that contains the reason."""
    if unstarted := _NO_START.search(text):
        python, why = unstarted.groups()
        return (
            f"the lanes' Python cannot be started: {python}: {why}; PYSPARK_PYTHON sets this path, "
            "and each executor's user must be able to run it"
        )
    if said := _WORKER_SAID.search(text):
        words = said.group(1).strip().splitlines() or ["it printed nothing"]
        return f"the lanes' Python ended: {words[-1].strip()}"
    for pattern in (_LAST_WORDS, _CAUSE, _LOST_TASK, _THROWN):
        if matches := pattern.findall(text):
            return str(matches[-1]).strip()
    return (text.strip().splitlines() or ["no reason given"])[-1].strip()


class SparkLeaseStarter:
    """Starts leases as jobs of one SparkContext."""

    def __init__(
        self, context: SparkContext, entry: str, address: ChannelAddress, secrets: LaneSecrets
    ) -> None:
        self._begin = functools.partial(
            LeaseJob, context, entry=entry, address=address, secrets=secrets
        )
        self._jobs: deque[LeaseJob] = deque(maxlen=LAST_JOBS)

    def start(self, lease: int, lanes: int, description: str = "") -> LeaseJob:
        job = self._begin(lease=lease, lanes=lanes, description=description)
        self._jobs.append(job)
        return job

    @property
    def is_leasing(self) -> bool:
        """Return True if a lease (a Spark job) is running, or waits for an executor."""
        return any(not job.is_done for job in list(self._jobs))

    def finish(self) -> None:
        """Wait up to NOTED_WITHIN_S for the jobs of `LeaseJob.note`. If Spark stopped earlier, its
        history would show these jobs as failed.
        """
        until = time.monotonic() + NOTED_WITHIN_S
        for job in self._jobs:
            job.await_note(max(0.0, until - time.monotonic()))


def await_executor(context: SparkContext, *, has_python: bool = False) -> None:
    """In the background, run a small job, which ends once an executor has run it. While the job
    waits, Spark logs why it has no executor, or requests one with dynamic allocation. `has_python`:
    the job also starts the Python daemon from which lanes are forked.
    """

    def run() -> None:
        context.setJobGroup("twinlog-waits", "twinlog waits for an executor")
        with suppress(Exception):  # Spark's application may have ended
            numbers: RDD[str] = context.parallelize([""], 1)
            (numbers.mapPartitions(_identity) if has_python else numbers)._jrdd.count()

    threading.Thread(target=run, name="twinlog-waits", daemon=True).start()


def _identity(own: Iterable[str]) -> Iterable[str]:
    return own
