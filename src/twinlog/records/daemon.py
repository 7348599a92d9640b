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
from typing import Final

from pyspark.daemon import manager

OF_TASKS: Final = "pyspark.worker"
NO_THREAD: Final = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""PyArrow's allocator begins one when it is loaded, and a fork would lose it."""


def load() -> None:
    """All that a task may need."""
    os.environ.update(NO_THREAD)

    import twinlog.records.source
    import twinlog.records.tasks
    import twinlog.records.write.tasks  # noqa: F401

    for name in NO_THREAD:
        del os.environ[name]


if __name__ == "__main__":
    if sys.argv[1:] == [OF_TASKS]:
        load()
    gc.freeze()  # else a collection in a worker touches, and so copies, all that it has inherited
    manager()
