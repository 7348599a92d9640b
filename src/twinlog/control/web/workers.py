"""Runs what takes long beside the event loop, a few at a time; the rest waits, or is told to come
again.

In daemon threads: a mirror that ends does not wait for an answer that nobody will read.
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
    """Of one event loop."""

    def __init__(self, at_once: int, at_most: int) -> None:
        """`at_most`: those that run and those that wait."""
        self._room = asyncio.Semaphore(at_once)
        self._at_most = at_most
        self._pending = 0

    async def run(self, work: Callable[[], T]) -> T:
        """What it returns or raises; raises REST_BUSY. Work whose client went away still takes its
        place until it is done.
        """
        if self._pending >= self._at_most:
            raise RequestRefused(
                "too many questions of this kind wait already; ask again in some seconds",
                code="REST_BUSY",
            )
        self._pending += 1
        task = asyncio.ensure_future(self._run(work))
        task.add_done_callback(_heard)
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
                    except BaseException as error:  # noqa: BLE001 (raised again in the loop)
                        done = partial(future.set_exception, error)
                    with suppress(RuntimeError):  # the loop has ended meanwhile
                        loop.call_soon_threadsafe(finish, done)

                threading.Thread(target=run, name="twinlog-web-work", daemon=True).start()
                return await future
        finally:
            self._pending -= 1


def _heard(task: asyncio.Future[T]) -> None:
    """Its client may have gone: then nobody else asks for the error."""
    if not task.cancelled():
        task.exception()
