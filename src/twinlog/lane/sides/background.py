"""The lane's blocking work, kept away from its loop: connecting, metadata, cold starts.

Jobs run on threads; what they return is collected by the loop, which is woken through a socket
pair. Each kind of work has threads of its own, so that none waits for another kind: a start may
read for minutes where a quota binds, and a broker that is away keeps who connects to it for
seconds. A client of a cluster is used by one job at a time.
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
    """What a job does."""

    METADATA = "metadata"
    CONNECTION = "connection"
    SEARCH = "search"
    WATCH = "watch"


THREADS: Final = {
    JobKind.METADATA: 2,  # each side asks once at a time, as does each watch
    JobKind.CONNECTION: 16,
    JobKind.SEARCH: 9,  # three of each sort (`lane.cold_starts`)
    JobKind.WATCH: 5,
}
"""The most of each kind; a thread begins with the first job that finds none idle."""


class LaneJobs:
    """Runs jobs elsewhere and brings their results back to the thread that calls `deliver`."""

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
        """Results are not wanted any more."""
        return self._stopping.is_set()

    def pause(self, seconds: float) -> None:
        """Sleep within a job; raises Disconnected once results are not wanted any more."""
        if self._stopping.wait(seconds):
            raise Disconnected("the lane has ended")

    def submit(self, kind: JobKind, job: Job, then: Then, otherwise: Otherwise) -> None:
        """Run `job`; its value goes to `then`, a TwinlogError to `otherwise`, both in the loop's
        thread.
        """
        if self._stopping.is_set():
            return
        future = self._pools[kind].submit(job)
        future.add_done_callback(lambda done: self.post(lambda: _hand(done, then, otherwise)))

    def post(self, call: Callable[[], None]) -> None:
        """Have `call` made in the loop's thread; from any thread."""
        self._done.append(call)
        try:
            self._wake_in.send(b"\0")
        except BlockingIOError:
            pass  # the pair is full of wake-ups already
        except OSError:
            if not self._stopping.is_set():
                raise

    def deliver(self) -> None:
        """Hand out finished results; an error that is not ours is raised: it is a bug."""
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
