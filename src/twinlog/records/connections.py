"""Keeps connections and loaded modules in a process, between tasks or steps of planning.

Spark's Python workers are reused. Without this cache, each task of a micro-batch would connect to a
broker, authenticate, and query the leaders. A client is reused only if the settings are equal, so
another password or a renewed key gets new connections. An error closes the connections, because
their state is then unknown. Only Spark's own processes use this cache, because a process that the
user forks would share sockets with its child.

After each task, Spark's daemon collects garbage (`gc.collect()` in pyspark/daemon.py) over all
objects of the worker. The worker's next task waits until this is done. In a reading worker of Spark
4.3, 74,000 objects took 178 ms, while a small micro-batch is read in a few milliseconds. If objects
that live as long as the process are excluded, a collection takes less than 1 ms.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final

from pyspark import TaskContext

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings

MOST_KEPT: Final = 4
"""Maximum number of clients that are kept. Each user of a cluster has one client, and the least
recently used client is closed.
"""

_kept: list[ClusterClient] = []

_SETTLED: Final = 1
"""Index (from 0) of the first of a worker's tasks at whose start all modules of tasks are loaded.
No garbage is left at this time, because the daemon has just collected it.
"""
_tasks = count()


def task_begins() -> None:
    """Exclude the objects that exist at the start of a worker's second task from later garbage
    collections. Each task must call this function. If such objects become garbage later, cycles of
    them are not freed. Objects that are created later are freed. Does nothing outside of tasks.
    """
    if TaskContext.get() is not None and next(_tasks) == _SETTLED:
        gc.freeze()


FIRST_REFUSED_S: Final = 5.0
"""Seconds for which planning retries while all addresses of the cluster refuse connections, as with
a wrong port. A user waits for planning. If the cluster has responded before, requests are retried
until the time-out of the call.
"""


@contextmanager
def connected(
    settings: ClusterSettings, *, refused_at_first_s: float = math.inf
) -> Iterator[ClusterClient]:
    """Yield a client for exclusive use, with open connections if there are any.
    `refused_at_first_s` is how long a new client retries refused connections before its first
    response.
    """
    client = _take(settings, refused_at_first_s)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _kept.append(client)
    while len(_kept) > MOST_KEPT:
        _kept.pop(0).close()


def _take(settings: ClusterSettings, refused_at_first_s: float) -> ClusterClient:
    for client in [client for client in _kept if client.settings == settings]:
        with suppress(ValueError):  # another thread has already removed the client
            _kept.remove(client)
            return client
    client = ClusterClient(settings, refused_at_first_s=refused_at_first_s)
    client.keep_leaders()
    return client
