"""Threads that jobs share.

A job may block for as long as a cluster does not respond, and must not delay other jobs. So the
number of threads has no limit: a job that finds no idle thread gets a new one. An idle thread ends
after `IDLE_S`. Hence there are as many threads as there were jobs at the same time lately, and not
one for each flow and each of its duties. All threads are daemons, so that a process can end while
a job still waits.
"""

from __future__ import annotations

import heapq
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

Job = Callable[[], object]
IDLE_S: Final = 10.0


@dataclass(slots=True, order=True)
class Alarm:
    """A job that runs at a time."""

    due: float
    """By `time.monotonic`."""
    name: str = field(compare=False)
    job: Job | None = field(compare=False)

    def cancel(self) -> None:
        """Do not run the job, unless it has begun."""
        self.job = None


class ThreadPool:
    """Thread-safe."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._jobs: deque[tuple[str, Job]] = deque()
        self._idle = 0
        """Threads that will take a job; never fewer than `_jobs`."""
        self._changed = threading.Condition()
        self._alarms: list[Alarm] = []
        self._has_timer = False

    def run(self, name: str, job: Job) -> None:
        """Run a job now, in a thread that has this name meanwhile. An exception ends the thread."""
        with self._ready:
            self._jobs.append((name, job))
            if self._idle >= len(self._jobs):
                self._ready.notify()
                return
            self._idle += 1
        threading.Thread(target=self._work, daemon=True).start()

    def run_at(self, due: float, name: str, job: Job) -> Alarm:
        """Run a job at this time, by `time.monotonic`."""
        alarm = Alarm(due, name, job)
        with self._changed:
            heapq.heappush(self._alarms, alarm)
            self._changed.notify()
            has_timer, self._has_timer = self._has_timer, True
        if not has_timer:
            threading.Thread(target=self._keep_time, name="twinlog-timer", daemon=True).start()
        return alarm

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._jobs, IDLE_S)
                self._idle -= 1
                if not self._jobs:
                    return
                thread.name, job = self._jobs.popleft()
            job()
            del job  # it may refer to much
            if _is_lowered():
                return
            thread.name = "twinlog-idle"
            with self._ready:
                self._idle += 1

    def _keep_time(self) -> None:
        while True:
            with self._changed:
                while (left_s := self._left_s()) is None or left_s > 0:
                    self._changed.wait(left_s)
                alarm = heapq.heappop(self._alarms)
            if (job := alarm.job) is not None:
                self.run(alarm.name, job)
            del alarm, job

    def _left_s(self) -> float | None:
        return self._alarms[0].due - time.monotonic() if self._alarms else None


def _is_lowered() -> bool:
    """Return True if the last job has lowered the priority of this thread (`thread_priority`)."""
    if sys.platform != "linux":
        return False
    thread, process = threading.get_native_id(), os.getpid()
    return os.getpriority(os.PRIO_PROCESS, thread) > os.getpriority(os.PRIO_PROCESS, process)


THREADS: Final = ThreadPool()
"""Those of this process."""
