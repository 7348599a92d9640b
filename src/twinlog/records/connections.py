"""Connections of a process to clusters, kept from one task, or one step of planning, to the next.

Spark's Python workers live on, and each task of a micro-batch would dial a broker, say who it is,
and ask who leads. Settings are compared, not remembered: who comes with another password or a
renewed key gets new connections. An error closes them, since nobody knows what it leaves behind.
Only Spark's own processes use this: one that a user forks would share sockets with its child.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings

MOST_KEPT: Final = 4
"""Clusters, or users of one; those that were used last."""

_kept: list[ClusterClient] = []


@contextmanager
def connected(settings: ClusterSettings) -> Iterator[ClusterClient]:
    """A client of one's own for as long as this lasts, with open connections if there are any."""
    client = _take(settings)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _kept.append(client)
    while len(_kept) > MOST_KEPT:
        _kept.pop(0).close()


def _take(settings: ClusterSettings) -> ClusterClient:
    for client in [one for one in _kept if one.settings == settings]:
        with suppress(ValueError):  # another thread was quicker
            _kept.remove(client)
            return client
    client = ClusterClient(settings)
    client.keep_leaders()
    return client
