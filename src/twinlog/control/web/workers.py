"""Runs slow work outside the event loop, a few tasks at a time. Further tasks wait, or are refused
if too many wait.

The threads are daemons, so a mirror that shuts down does not wait for unwanted answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from twinlog.control.web.problem import RequestRefused

T = TypeVar("T")


class RequestWorkers:
    """The workers of one event loop."""

    def __init__(self, at_once: int, at_most: int) -> None:
        """`at_most` limits running and waiting tasks together."""
        self._room = asyncio.Semaphore(at_once)
        self._at_most = at_most
        self._pending = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Return or raise what `work` does. Raises REST_BUSY. A task keeps its slot until it ends,
        even if its client disconnects.
        """
        if self._pending >= self._at_most:
            raise RequestRefused(
                "too many requests of this kind are waiting; retry in a few seconds",
                code="REST_BUSY",
            )
        self._pending += 1
        task = asyncio.ensure_future(self._run(work))
        task.add_done_callback(_retrieve_error)
        return await asyncio.shield(task)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            async with self._room:
                loop = asyncio.get_running_loop()
                future: asyncio.Future[T] = loop.create_future()

                def finish(done: Callable[[], None]) -> None:
                    if not future.done():
                        done()

                def run() -> None:
                    try:
                        done = partial(future.set_result, work())
                    except BaseException as error:  # noqa: BLE001 (re-raised in the loop)
                        done = partial(future.set_exception, error)
                    with suppress(RuntimeError):  # the loop has ended
                        loop.call_soon_threadsafe(finish, done)

                threading.Thread(target=run, name="twinlog-web-work", daemon=True).start()
                return await future
        finally:
            self._pending -= 1


def _retrieve_error(task: asyncio.Future[T]) -> None:
    """Mark the error as retrieved, because the client may have disconnected."""
    if not task.cancelled():
        task.exception()
