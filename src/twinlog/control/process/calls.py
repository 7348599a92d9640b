"""The queue of the one thread that decides, and jobs beside it.

channel thread --events--.
worker threads --calls---+--> queue --> supervisor thread --> flows (no locks)
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from twinlog.errors import Disconnected, TwinlogError

T = TypeVar("T")
E = TypeVar("E")

ANSWER_WITHIN_S: Final = 5.0


class Calls(Generic[E]):
    """Events of type E, and calls."""

    def __init__(self, on_event: Callable[[E], None]) -> None:
        self._on_event = on_event
        self._queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    def deliver(self, event: E) -> None:
        """An event; from any thread."""
        self._queue.put(lambda: self._on_event(event))

    def call(self, action: Callable[[], object]) -> None:
        """Do it in the thread that decides; from any thread."""
        self._queue.put(action)

    def fail(self, error: BaseException) -> None:
        """Nothing works without what is broken: that thread raises it; from any thread."""
        self._queue.put(lambda: _raise(error))

    def ask(self, question: Callable[[], T]) -> T:
        """Its answer from the thread that decides; from any other. Raises Disconnected."""
        answer: Future[T] = Future()
        self._queue.put(lambda: answer.set_result(question()))
        try:
            return answer.result(ANSWER_WITHIN_S)
        except TimeoutError:
            raise Disconnected("the supervisor does not answer: the process is ending") from None

    def background(
        self,
        job: Callable[[], Any],
        then: Callable[[Any], None],
        otherwise: Callable[[TwinlogError], None],
    ) -> None:
        """Do a job that may block, then call back; an error that is no TwinlogError is a bug."""

        def work() -> None:
            try:
                value = job()
            except TwinlogError as error:
                caught = error
                self.call(lambda: otherwise(caught))
            except BaseException as error:  # noqa: BLE001 (raised again by the supervisor)
                self.fail(error)
            else:
                self.call(lambda: then(value))

        # a thread a job: they are few, and a cluster that does not answer must not delay the end of
        # the process
        threading.Thread(target=work, name="twinlog-job", daemon=True).start()

    def take(self, within_s: float) -> None:
        """All that is there; waits so long for the first."""
        while True:
            try:
                action = self._queue.get(timeout=within_s)
            except queue.Empty:
                return
            within_s = 0.0
            action()


def _raise(error: BaseException) -> None:
    raise error
