"""Cancels Spark jobs of the transforms that run for too long, because a function hangs or is slow.

The time before the first task of a job begins does not count. In this time, tasks of other jobs
have all cores, for example because their records hang, so the job's own records are not the cause.
If no core becomes free, the lanes get no answer, and the driver ends the application.

One thread watches all jobs, because each thread that calls Spark keeps a connection to the JVM.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError

from twinlog.spark.lease import has_task

LOOK_S: Final = 1.0
"""Interval in seconds at which the running jobs are checked."""


@dataclass(slots=True, kw_only=True, eq=False)
class LimitedJob:
    """The running job of a group."""

    context: Any
    group: str
    left_s: float
    """Time in seconds after which the job is cancelled."""
    has_begun: bool = False
    """True if a task of the job has begun."""
    is_late: bool = False
    """True if the job was cancelled."""

    def check(self) -> None:
        """Subtract LOOK_S from the job's time if a task has begun. Cancel the job if no time is
        left. Must be called every LOOK_S seconds.
        """
        self.has_begun = self.has_begun or has_task(self.context, self.group)
        self.left_s -= LOOK_S if self.has_begun else 0.0
        if self.left_s <= 0 and not self.is_late:
            self.is_late = True
            self.context.cancelJobGroup(self.group)


class JobWatch:
    """Cancels late jobs. Thread-safe."""

    def __init__(self) -> None:
        self._jobs: list[LimitedJob] = []
        self._lock = threading.Lock()
        self._is_started = False

    def begin(self, context: Any, group: str, limit_s: float) -> LimitedJob:
        """Watch the job that begins now. `limit_s`: how many seconds the job may run."""
        job = LimitedJob(context=context, group=group, left_s=limit_s)
        with self._lock:
            self._jobs.append(job)
            if not self._is_started:
                threading.Thread(target=self._run, name="twinlog-jobs", daemon=True).start()
                self._is_started = True
        return job

    def end(self, job: LimitedJob) -> None:
        """Stop watching the job, because it has ended."""
        with self._lock:
            self._jobs.remove(job)

    def _run(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                jobs = [*self._jobs]
            for job in jobs:
                # if the JVM has ended or the context was stopped, the job has ended, too
                with suppress(Py4JError, OSError, AttributeError):
                    job.check()
