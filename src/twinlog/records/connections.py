"""What a process keeps from one task, or one step of planning, to the next: its connections.

Spark's Python workers live on, and each task of a micro-batch would dial a broker, say who it is,
and ask who leads. Settings are compared, not remembered: who comes with another password or a
renewed key gets new connections. An error closes them, since nobody knows what it leaves behind.
Only Spark's own processes use this: one that a user forks would share sockets with its child.

And what a worker has loaded. Behind each task Spark's daemon collects garbage (`gc.collect()` in
pyspark/daemon.py) in all objects of the worker, and its next task waits for that. In a worker of
Spark 4.3 that reads, 74,000 objects took 178 ms, beside some milliseconds in which a small
micro-batch is read; without those that live as long as the process, it is less than 1 ms.
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
"""Clusters, or users of one; those that were used last."""

_kept: list[ClusterClient] = []

_SETTLED: Final = 1
"""The task, counted from 0, at whose begin all that tasks load is loaded, and no garbage is left:
the daemon has just collected it."""
_tasks = count()


def task_begins() -> None:
    """To be called by each task: the second of a worker takes what lives already out of all later
    collections. Cycles among that which die later stay, once in the life of a worker; all else is
    freed as before. Does nothing outside of tasks.
    """
    if TaskContext.get() is not None and next(_tasks) == _SETTLED:
        gc.freeze()


FIRST_REFUSED_S: Final = 5.0
"""Of a question that somebody waits for before a job runs: so long a cluster is asked where nobody
listens at any of its addresses, which a wrong port is as well. One that has answered is waited for
as long as a call may take."""


@contextmanager
def connected(
    settings: ClusterSettings, *, refused_at_first_s: float = math.inf
) -> Iterator[ClusterClient]:
    """A client of one's own for as long as this lasts, with open connections if there are any.
    `refused_at_first_s`: how long a new one asks where nobody listens, until it has been answered.
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
    for client in [one for one in _kept if one.settings == settings]:
        with suppress(ValueError):  # another thread was quicker
            _kept.remove(client)
            return client
    client = ClusterClient(settings, refused_at_first_s=refused_at_first_s)
    client.keep_leaders()
    return client
