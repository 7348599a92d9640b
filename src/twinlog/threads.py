"""A pool of threads for jobs that may block.

A job blocks for as long as its cluster does not respond, and must not delay other jobs. So the
number of threads has no limit: if no thread is idle, a job gets a new one, else the thread that
became idle last. A thread that was idle for `IDLE_S` ends. The process therefore has only as many
threads as jobs recently ran at the same time, instead of one for each flow and each of its duties.
(If the thread that is idle for longest got the job, none would end while jobs are frequent.) All
threads are daemons, so that the process can end while a job still blocks.

`ThreadWatch` watches the threads that must live as long as the process: the first one that dies
ends it with a code. Without this, a dead thread's work would stop while the process looks healthy
from outside. If any Twinlog thread dies for any reason, the supervisor raises the error, the
process ends with exit code 1, and service managers restart it. Until then `/healthz` reports
unhealthy.
"""

from __future__ import annotations

import heapq
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
        self._lock = threading.Lock()
        self._idle: list[_Inbox] = []
        """The inboxes of idle threads. The last of these threads became idle last."""
        self._changed = threading.Condition()
        self._alarms: list[Alarm] = []
        self._has_timer = False

    def run(self, name: str, job: Job) -> None:
        """Run a job now, in a thread that gets this name. An exception ends the thread."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            threading.Thread(target=self._work, args=[name, job], daemon=True).start()
        else:
            inbox.put((name, job))

    def submit(self, name: str, job: Callable[[], _T]) -> Future[_T]:
        """Run a job now, and return its future. Unlike with a ThreadPoolExecutor, the process can
        end before the job, so Ctrl-C does not wait for a cluster that does not respond.
        """
        future: Future[_T] = Future()

        def work() -> None:
            try:
                future.set_result(job())
            except BaseException as error:  # noqa: BLE001 (raised where the result is read)
                future.set_exception(error)

        self.run(name, work)
        return future

    def add(self, alarm: Alarm) -> None:
        """Run the job of this alarm when it is due."""
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
            del job  # it may reference large objects
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
                name, job = inbox.get()  # `run` has taken this thread in the meantime

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
"""The thread pool of this process."""


class RepeatedJob:
    """A job of the pool that runs again and again, one run at a time. While it pauses between two
    runs, it needs no thread. Thread-safe.
    """

    def __init__(self, name: str, run: Callable[[], float], end: Job = lambda: None) -> None:
        """`run` returns the seconds until the next run. `end` is called after the last one."""
        self._name = name
        self._run = run
        self._end = end
        self._lock = threading.Lock()
        self._next: Alarm | None = None
        """The next run. It is None while the job runs, before `start`, and after the end."""
        self._is_started = False
        self._is_hurried = False
        self._is_stopped = False
        self._ended = threading.Event()

    def start(self, after_s: float = 0.0) -> None:
        """Begin the first run after this time."""
        with self._lock:
            self._is_started = True
            self._pause(after_s)

    def run_now(self) -> None:
        """End the pause now, or leave out the next one if the job runs."""
        with self._lock:
            if self._next is None:
                self._is_hurried = True
            elif self._next.due > time.monotonic():  # a run that is due must not be put off
                self._next.cancel()
                self._pause(0.0)

    def stop(self) -> None:
        """Begin no further run. This does not wait for a run that has begun."""
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
        """Wait for the end of a job that was stopped, for at most this time."""
        if self._is_started:
            self._ended.wait(within_s)

    def _pause(self, seconds: float) -> None:
        """Set the alarm of the next run. The caller has the lock."""
        due = time.monotonic() + (0.0 if self._is_hurried else seconds)
        self._is_hurried = False
        self._next = alarm = Alarm(due, self._name, lambda: self._turn(alarm))
        THREADS.add(alarm)

    def _turn(self, alarm: Alarm) -> None:
        with self._lock:
            if self._next is not alarm:
                return  # replaced by `run_now` after the timer had taken it
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


OURS: Final = ("twinlog-", "group-")
"""Prefixes of the names of Twinlog's threads; libraries handle their own."""


class ThreadDied(TwinlogError):
    """A thread of this process ended with an uncaught error."""

    code = "THREAD_DIED"


class ThreadWatch:
    """Detects threads that die."""

    def __init__(self) -> None:
        self.dead: str | None = None
        """The first thread that died, and its error."""

    @contextmanager
    def guarding(self, fail: Callable[[BaseException], None]) -> Iterator[None]:
        """Call `fail` with the error in a thread that dies during this block."""
        before = threading.excepthook

        def on_death(arguments: threading.ExceptHookArgs) -> None:
            name = "" if arguments.thread is None else arguments.thread.name
            if name.startswith(OURS):
                of = f"{arguments.exc_type.__name__}: {arguments.exc_value}".rstrip(": ")
                self.dead = self.dead or f"thread {name} died of {of}"
                fail(
                    ThreadDied(
                        f"thread {name} died of {of}; this process ends so that it is restarted: "
                        "report it with the traceback"
                    )
                )
            before(arguments)

        threading.excepthook = on_death
        try:
            yield
        finally:
            threading.excepthook = before


# Priority of driver threads below lanes, for when all cores are busy.


def lower_priority(nice: int) -> None:
    """Lower the priority of this thread and those that it starts. Only Linux has a priority per
    thread, see sched(7). The main thread is left alone, because everything that it starts would
    inherit the priority.
    """
    if sys.platform == "linux" and threading.current_thread() is not threading.main_thread():
        thread = threading.get_native_id()
        wanted = max(nice, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, wanted)
