"""Spark's Python daemon with what tasks read and write with already loaded; for
`spark.python.daemon.module` of a session of one's own.

Spark forks each Python worker of an executor from one daemon. It ends a worker that a `limit` or
`show()` has stopped in the middle, so the next query waits until another one has loaded PyArrow and
this package. What is loaded before the fork is loaded once. Steps of planning have daemons of their
own, whose workers live on: those load nothing here that they may not need.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from importlib import import_module
from typing import Final

from pyspark.daemon import manager

OF_TASKS: Final = "pyspark.worker"
NEEDED: Final = (
    OF_TASKS,
    "twinlog.records.source",
    "twinlog.records.tasks",
    "twinlog.records.write.tasks",
)
ALLOCATOR: Final = "JE_ARROW_MALLOC_CONF"
NO_THREAD: Final = "background_thread:false"
"""PyArrow's allocator begins one when it is loaded, and a fork would lose it."""


def load() -> None:
    """All that a task may need. Raises ImportError where there is no PyArrow."""
    given = os.environ.get(ALLOCATOR)
    os.environ[ALLOCATOR] = ",".join(filter(None, (given, NO_THREAD)))
    try:
        for name in NEEDED:
            import_module(name)
    finally:
        del os.environ[ALLOCATOR]
        if given is not None:
            os.environ[ALLOCATOR] = given


def seed(daemon: int) -> None:
    """In a worker. NumPy before 2 seeds its random numbers when it is loaded: all that this daemon,
    a process id, forks behind it would have the same ones. What a worker forks is left as it is.
    """
    loaded = sys.modules.get("numpy.random")
    if loaded is not None and os.getppid() == daemon:
        loaded.seed()


if __name__ == "__main__":
    if sys.argv[1:2] == [OF_TASKS]:
        try:
            load()
        except ImportError as error:  # other Python code of the session may do without
            sys.stderr.write(f"twinlog.records.daemon: nothing is loaded beforehand: {error}\n")
        os.register_at_fork(after_in_child=partial(seed, os.getpid()))
    gc.freeze()  # else a collection in a worker touches, and so copies, all that it has inherited
    manager()
