"""Spark's Python daemon with the modules of tasks already loaded, for `spark.python.daemon.module`
of a separate session.

Spark forks the Python workers of an executor from one daemon. If a query is stopped early by
`limit` or `show()`, Spark kills its worker. The next query then waits until another worker has
loaded PyArrow and this package. Modules loaded before the fork are loaded once. Steps of planning
have other daemons, whose workers are reused, so nothing is loaded for them here.
"""

from __future__ import annotations

import gc
import itertools
import os
import resource
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Final

from pyspark.daemon import manager

OF_TASKS: Final = "pyspark.worker"
NEEDED: Final = (
    OF_TASKS,
    "twinlog.records.source",
    "twinlog.records.tasks",
    "twinlog.records.lent",
    "twinlog.records.write.writers",
)
ALLOCATOR: Final = "JE_ARROW_MALLOC_CONF"
DATA_BYTES: Final = "TWINLOG_WORKER_DATA_BYTES"
"""Environment variable with the maximum data of each worker; without it there is no limit."""
FULL: Final = 2
"""The oldest generation of the garbage collector."""
FROZEN_AFTER: Final = 10
"""Number of full collections after which objects are excluded. Later ones must stay collectable."""
NO_THREAD: Final = "background_thread:false"
"""Disables a thread that PyArrow's allocator starts on load, and that a fork would lose."""


def load() -> None:
    """Load everything that a task may need. Raises ImportError if PyArrow is not installed."""
    allocator = os.environ.get(ALLOCATOR)
    os.environ[ALLOCATOR] = ",".join(filter(None, (allocator, NO_THREAD)))
    try:
        for name in NEEDED:
            import_module(name)
    finally:
        del os.environ[ALLOCATOR]
        if allocator is not None:
            os.environ[ALLOCATOR] = allocator


def limit_data() -> None:
    """Limit the data of this process, and of processes that it forks, to DATA_BYTES."""
    if limit := os.environ.get(DATA_BYTES):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        data = int(limit) if hard == resource.RLIM_INFINITY else min(int(limit), hard)
        resource.setrlimit(resource.RLIMIT_DATA, (data, data))


def seed(daemon: int) -> None:
    """Seed NumPy's random numbers in a worker that the daemon with this process ID has forked.
    NumPy before 2 seeds them when it is loaded, so all workers of the daemon would get the same
    numbers. Processes that a worker forks are not changed.
    """
    loaded = sys.modules.get("numpy.random")
    if loaded is not None and os.getppid() == daemon:
        loaded.seed()


_full_collections = itertools.count()


def freeze(phase: str, collection: Mapping[str, int]) -> None:
    """Exclude all existing objects from later garbage collections, after each of the first
    FROZEN_AFTER full ones. A callback for `gc.callbacks`.

    Spark's workers collect garbage after each task. The modules that a worker has loaded for users'
    functions, such as NumPy, would be searched each time.
    """
    is_full = phase == "stop" and collection["generation"] == FULL
    if is_full and next(_full_collections) < FROZEN_AFTER:
        gc.freeze()


if __name__ == "__main__":
    if sys.argv[1:2] == [OF_TASKS]:
        try:
            load()
        except ImportError as error:  # other Python code of the session may not need these modules
            sys.stderr.write(f"twinlog.records.daemon: no modules are preloaded: {error}\n")
        os.register_at_fork(after_in_child=partial(seed, os.getpid()))
        limit_data()
    # otherwise a garbage collection in a worker would touch, and so copy, all inherited objects
    gc.freeze()
    gc.callbacks.append(freeze)
    manager()
