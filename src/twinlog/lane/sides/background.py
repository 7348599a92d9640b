"""Runs a lane's blocking work outside its loop: connecting, metadata, cold starts.

Jobs run on threads. The loop collects their results and is woken through a socket pair. Each kind
of job has its own threads, so that no kind waits for another. For example, a cold start may read
for minutes under a quota, and connecting to an unreachable broker blocks for seconds. A cluster
client is used by one job at a time.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from typing import Any, Final

from twinlog.errors import Disconnected, TwinlogError

Job = Callable[[], Any]
Then = Callable[[Any], None]
Otherwise = Callable[[TwinlogError], None]


class JobKind(StrEnum):
    """The kinds of jobs, each with its own threads."""

    METADATA = "metadata"
    CONNECTION = "connection"
    SEARCH = "search"
    WATCH = "watch"


THREADS: Final = {
    JobKind.METADATA: 2,  # one query at a time per cluster
    JobKind.CONNECTION: 16,
    JobKind.SEARCH: 9,  # three searches of each sort (`lane.cold_starts`)
    JobKind.WATCH: 5,
}
"""Maximum threads per kind of job. A thread starts when a job finds no idle thread."""


class LaneJobs:
    """Runs jobs on threads, and passes their results to the loop's thread, which calls
    `deliver`.
    """

    def __init__(self) -> None:
        self._pools = {
            kind: ThreadPoolExecutor(threads, thread_name_prefix=f"lane-{kind}")
            for kind, threads in THREADS.items()
        }
        self._done: deque[Callable[[], None]] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._stopping = threading.Event()

    def fileno(self) -> int:
        return self._wake_out.fileno()

    @property
    def is_closed(self) -> bool:
        """True if the lane ends, so that results of jobs are no longer needed."""
        return self._stopping.is_set()

    def pause(self, seconds: float) -> None:
        """Sleep within a job. Raises Disconnected if the lane ends in the meantime."""
        if self._stopping.wait(seconds):
            raise Disconnected("the lane has ended")

    def submit(self, kind: JobKind, job: Job, then: Then, otherwise: Otherwise) -> None:
        """Run `job` on a thread. Its result is passed to `then` and a TwinlogError to `otherwise`,
        both in the loop's thread.
        """
        if self._stopping.is_set():
            return
        future = self._pools[kind].submit(job)
        future.add_done_callback(lambda done: self.post(lambda: _hand(done, then, otherwise)))

    def post(self, call: Callable[[], None]) -> None:
        """Call `call` in the loop's thread. Thread-safe."""
        self._done.append(call)
        try:
            self._wake_in.send(b"\0")
        except BlockingIOError:
            pass  # the socket is full, so the loop wakes up anyway
        except OSError:
            if not self._stopping.is_set():
                raise

    def deliver(self) -> None:
        """Call the callbacks of finished jobs. If a job raised an exception that is no
        TwinlogError, raise it here, because it is a bug.
        """
        try:
            while self._wake_out.recv(4096):
                pass
        except BlockingIOError:
            pass
        while self._done:
            self._done.popleft()()

    def close(self) -> None:
        self._stopping.set()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._wake_in.close()
        self._wake_out.close()


def _hand(future: Future[Any], then: Then, otherwise: Otherwise) -> None:
    if future.cancelled():
        return
    error = future.exception()
    if error is None:
        then(future.result())
    elif isinstance(error, TwinlogError):
        otherwise(error)
    else:
        raise error
