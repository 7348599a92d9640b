"""A pool of threads for jobs that may block.

A job blocks for as long as its cluster does not respond, and must not delay other jobs. So the
number of threads has no limit: if no thread is idle, a job gets a new one. An idle thread ends
after `IDLE_S`. The process therefore has only as many threads as jobs recently ran at the same
time, instead of one for each flow and each of its duties. All threads are daemons, so that the
process can end while a job still blocks.
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
    """A job that is to run at a given time."""

    due: float
    """When to run it, by `time.monotonic`."""
    name: str = field(compare=False)
    job: Job | None = field(compare=False)

    def cancel(self) -> None:
        """Prevent the job from running, unless it has already begun."""
        self.job = None


class ThreadPool:
    """Runs jobs now or at a given time. Thread-safe."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._jobs: deque[tuple[str, Job]] = deque()
        self._idle = 0
        """Threads that wait for a job, or are about to. There are never fewer than `_jobs`."""
        self._changed = threading.Condition()
        self._alarms: list[Alarm] = []
        self._has_timer = False

    def run(self, name: str, job: Job) -> None:
        """Run a job now, in a thread that gets this name. An exception ends the thread."""
        with self._ready:
            self._jobs.append((name, job))
            if self._idle >= len(self._jobs):
                self._ready.notify()
                return
            self._idle += 1
        threading.Thread(target=self._work, daemon=True).start()

    def run_at(self, due: float, name: str, job: Job) -> Alarm:
        """Run a job at this time (by `time.monotonic`)."""
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
            del job  # it may reference large objects
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
    """Return True if a job has lowered the priority of its thread, which cannot be undone."""
    if sys.platform != "linux":
        return False
    thread, process = threading.get_native_id(), os.getpid()
    return os.getpriority(os.PRIO_PROCESS, thread) > os.getpriority(os.PRIO_PROCESS, process)


THREADS: Final = ThreadPool()
