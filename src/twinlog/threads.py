"""A pool of threads for jobs that may block, and a watch that detects dead threads.

A job blocks as long as its cluster does not respond, and must not delay other jobs. So the number
of threads has no limit. A job gets the thread that became idle last, or a new thread if none is
idle. A thread that was idle for `IDLE_S` ends. So the process has only as many threads as jobs
recently ran at the same time, instead of a thread for each flow and each of its duties. (If a job
got the thread that became idle first, no thread would end while jobs are frequent.) All threads are
daemons, so that the process can end while a job still blocks.

`ThreadWatch` ends the process with a code if one of Twinlog's threads dies. Otherwise the work of
the dead thread would stop while the process looks healthy from outside. The supervisor raises the
error, the process ends with exit code 1, and a service manager restarts it. Until the process has
ended, `/healthz` reports it as unhealthy.
"""

from __future__ import annotations

import heapq
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final, Self, TypeVar

from twinlog.errors import TwinlogError

Job = Callable[[], object]
_T = TypeVar("_T")
_Inbox = SimpleQueue[tuple[str, Job]]
IDLE_S: Final = 2.0


@dataclass(slots=True, order=True)
class Alarm:
    """A job that runs at a given time."""

    due: float
    """When to run the job, by `time.monotonic`."""
    name: str = field(compare=False)
    job: Job | None = field(compare=False)

    def cancel(self) -> None:
        """Prevent the job from running. Has no effect if the job has already begun."""
        self.job = None


class ThreadPool:
    """Runs jobs now or at a given time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Inbox] = []
        """The inboxes of idle threads, in the order in which the threads became idle."""
        self._changed = threading.Condition()
        self._alarms: list[Alarm] = []
        self._has_timer = False

    def run(self, name: str, job: Job) -> None:
        """Run a job now, in a thread with this name. An exception of the job ends the thread."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            threading.Thread(target=self._work, args=[name, job], daemon=True).start()
        else:
            inbox.put((name, job))

    def submit(self, name: str, job: Callable[[], _T]) -> Future[_T]:
        """Run a job now, and return a future of its result. Unlike with a ThreadPoolExecutor, the
        process can end before the job, so that a Ctrl-C does not wait for a cluster that does not
        respond.
        """
        future: Future[_T] = Future()

        def work() -> None:
            try:
                future.set_result(job())
            except BaseException as error:  # noqa: BLE001 (`future.result` raises it)
                future.set_exception(error)

        self.run(name, work)
        return future

    def add(self, alarm: Alarm) -> None:
        """Run the alarm's job when it is due."""
        with self._changed:
            heapq.heappush(self._alarms, alarm)
            self._changed.notify()
            has_timer, self._has_timer = self._has_timer, True
        if not has_timer:
            threading.Thread(target=self._keep_time, name="twinlog-timer", daemon=True).start()

    def _work(self, name: str, job: Job) -> None:
        thread, inbox = threading.current_thread(), _Inbox()
        while True:
            thread.name = name
            job()
            del job  # frees large objects that the job may reference
            if _is_lowered():
                return
            thread.name = "twinlog-idle"
            with self._lock:
                self._idle.append(inbox)
            try:
                name, job = inbox.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                name, job = inbox.get()  # `run` has removed this inbox, and now puts a job into it

    def _keep_time(self) -> None:
        while True:
            with self._changed:
                while (left_s := self._left_s()) > 0:
                    self._changed.wait(left_s)
                alarm = heapq.heappop(self._alarms)
            if (job := alarm.job) is not None:
                self.run(alarm.name, job)
            del alarm, job

    def _left_s(self) -> float:
        # an interval of a configuration may be longer than the longest possible wait
        left_s = self._alarms[0].due - time.monotonic() if self._alarms else math.inf
        return min(left_s, threading.TIMEOUT_MAX)


def _is_lowered() -> bool:
    """Return True if the job has lowered this thread's priority, which cannot be undone."""
    if sys.platform != "linux":
        return False
    thread, process = threading.get_native_id(), os.getpid()
    return os.getpriority(os.PRIO_PROCESS, thread) > os.getpriority(os.PRIO_PROCESS, process)


THREADS: Final = ThreadPool()
"""The thread pool of this process."""


class RepeatedJob:
    """A job of the pool that runs repeatedly, one run at a time. It needs no thread during the
    pause between two runs. Thread-safe.
    """

    def __init__(self, name: str, run: Callable[[], float], end: Job = lambda: None) -> None:
        """`run` must return the seconds until the next run. `end` is called after the last run."""
        self._name = name
        self._run = run
        self._end = end
        self._lock = threading.Lock()
        self._next: Alarm | None = None
        """The alarm of the next run. None before `start`, during a run, and after the end."""
        self._is_started = False
        self._is_hurried = False
        self._is_stopped = False
        self._ended = threading.Event()

    def start(self, after_s: float = 0.0) -> None:
        """Start the job. Its first run begins after `after_s`."""
        with self._lock:
            self._is_started = True
            self._pause(after_s)

    def run_now(self) -> None:
        """Begin the next run now. If the job is running, the next run follows without a pause."""
        with self._lock:
            if self._next is None:
                self._is_hurried = True
            elif self._next.due > time.monotonic():  # a run that is already due must not be delayed
                self._next.cancel()
                self._pause(0.0)

    def stop(self) -> None:
        """Prevent all later runs. Does not wait for the end of a run that has begun."""
        with self._lock:
            self._is_stopped = True
        self.run_now()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_alive(self) -> bool:
        """Return True from the start until `end` has returned."""
        return self._is_started and not self._ended.is_set()

    def join(self, within_s: float) -> None:
        """Wait until a job that was stopped has ended, for at most `within_s`."""
        if self._is_started:
            self._ended.wait(within_s)

    def _pause(self, seconds: float) -> None:
        """Set the alarm of the next run. The caller must have locked `_lock`."""
        due = time.monotonic() + (0.0 if self._is_hurried else seconds)
        self._is_hurried = False
        self._next = alarm = Alarm(due, self._name, lambda: self._turn(alarm))
        THREADS.add(alarm)

    def _turn(self, alarm: Alarm) -> None:
        with self._lock:
            if self._next is not alarm:
                return  # `run_now` has replaced the alarm after the timer had started this call
            self._next = None
        if not self._is_stopped:
            pause_s = self._run()
            with self._lock:
                if not self._is_stopped:
                    self._pause(pause_s)
                    return
        try:
            self._end()
        finally:
            self._ended.set()


THREAD_PREFIXES: Final = ("twinlog-", "group-")
"""Name prefixes of Twinlog's threads. Threads of libraries are not watched."""


class ThreadDied(TwinlogError):
    """A thread of Twinlog has ended with an uncaught error."""

    code = "THREAD_DIED"


class ThreadWatch:
    """Detects Twinlog's threads that die of an uncaught error."""

    def __init__(self) -> None:
        self.dead: str | None = None
        """Text about the first thread that died, with its error. None if none has died."""

    @contextmanager
    def guarding(self, fail: Callable[[BaseException], None]) -> Iterator[None]:
        """During this block: if a thread dies whose name begins with a prefix in `OURS`, call
        `fail` with a ThreadDied, in the dying thread.
        """
        before = threading.excepthook

        def on_death(arguments: threading.ExceptHookArgs) -> None:
            name = "" if arguments.thread is None else arguments.thread.name
            if name.startswith(THREAD_PREFIXES):
                of = f"{arguments.exc_type.__name__}: {arguments.exc_value}".rstrip(": ")
                self.dead = self.dead or f"thread {name} died of {of}"
                fail(
                    ThreadDied(
                        f"thread {name} died of {of}; this process ends so that it is restarted. "
                        "Report this error with the traceback"
                    )
                )
            before(arguments)

        threading.excepthook = on_death
        try:
            yield
        finally:
            threading.excepthook = before


# Driver threads can have a lower priority than lanes, so that lanes are faster if all cores are
# busy.


def lower_priority(nice: int) -> None:
    """Lower the priority of this thread and of threads that it starts. Only Linux has a priority
    per thread (sched(7)). Has no effect in the main thread, because all threads and processes would
    inherit the priority from it.
    """
    if sys.platform == "linux" and threading.current_thread() is not threading.main_thread():
        thread = threading.get_native_id()
        wanted = max(nice, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, wanted)
