"""The lane's blocking work, kept away from its loop: connecting, metadata, cold starts.

Jobs run on a few threads; what they return is collected by the loop, which is woken through a
socket pair. A client of a cluster is used by one job at a time.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from twinlog.errors import TwinlogError

THREADS: Final = 4

Job = Callable[[], Any]
Then = Callable[[Any], None]
Otherwise = Callable[[TwinlogError], None]


class Background:
    """Runs jobs elsewhere and brings their results back to the thread that calls `deliver`."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="lane")
        self._done: deque[tuple[Future[Any], Then, Otherwise]] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._stopping = threading.Event()

    def fileno(self) -> int:
        return self._wake_out.fileno()

    @property
    def stopping(self) -> threading.Event:
        """Set when results are not wanted any more: long waits look at it."""
        return self._stopping

    def submit(self, job: Job, then: Then, otherwise: Otherwise) -> None:
        """Run `job`; its value goes to `then`, a TwinlogError to `otherwise`, both in the loop's
        thread.
        """
        if self._stopping.is_set():
            return
        future = self._pool.submit(job)
        future.add_done_callback(lambda done: self._finished(done, then, otherwise))

    def _finished(self, future: Future[Any], then: Then, otherwise: Otherwise) -> None:
        self._done.append((future, then, otherwise))
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
            future, then, otherwise = self._done.popleft()
            if future.cancelled():
                continue
            error = future.exception()
            if error is None:
                then(future.result())
            elif isinstance(error, TwinlogError):
                otherwise(error)
            else:
                raise error

    def close(self) -> None:
        self._stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._wake_in.close()
        self._wake_out.close()
