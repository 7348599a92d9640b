"""Clusters that exist for the whole test run, shared by its processes.

Processes of one run (pytest-xdist) use the same two brokers. The first process that needs them
starts them, and the last one stops them; a locked file has the number of processes. If the run is
killed, the clusters' watchdogs stop the brokers.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from tests.support.settings import settings_for
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import ensure_compacted_topic
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.sandbox import QUICK_JVM, LocalCluster
from twinlog.sandbox.layout import HOST
from twinlog.survey.capabilities import ensure_probe_topic

T = TypeVar("T")

__all__ = ["LENT", "private_cluster", "running_cluster", "session_owner", "shared_cluster"]


@contextmanager
def shared_cluster(name: str, folder: Path, owner: int) -> Iterator[LocalCluster]:
    """Return a cluster of one broker, which is the same for every process that uses the same
    folder.
    """
    users = folder.with_suffix(".users")
    with _locked(users):
        if _count(users, +1) == 1:
            shutil.rmtree(folder, ignore_errors=True)
            cluster = LocalCluster(
                name, folder, jvm_flags=QUICK_JVM, owner=owner, config=SOON_CLEAN | KEEPS
            )
            try:
                cluster.start()
            except BaseException:
                _count(users, -1)
                raise
        else:
            cluster = LocalCluster.attach(folder)
    try:
        yield cluster
    finally:
        with _locked(users):
            if _count(users, -1) == 0:
                for node_id in cluster.broker_pids:
                    # the data is not needed any more, so a clean shutdown would waste time
                    cluster.kill(node_id)
                cluster.stop()
                shutil.rmtree(folder, ignore_errors=True)


SOON_CLEAN: Final = {"log.cleaner.backoff.ms": "1000"}
"""Config with which the log cleaner runs each second, so that tests do not wait 15 s for
compaction.
"""


KEEPS: Final = {"log.retention.ms": "-1"}
"""Config that disables retention. Otherwise brokers would delete segments whose records have
timestamps of years ago.
"""


@contextmanager
def private_cluster(name: str, brokers: int) -> Iterator[LocalCluster]:
    """A cluster of this process only, whose brokers tests may kill."""
    with _private(name, brokers) as cluster:
        yield cluster


def _private(name: str, brokers: int) -> LocalCluster:
    return LocalCluster(name, brokers=brokers, jvm_flags=QUICK_JVM)


class Lent:
    """Clusters of this process, and a Spark session, by name. They run only while tests need them.

    Without this, six idle brokers would use a fifth of a core while all later tests run.
    """

    def __init__(self) -> None:
        self._running: dict[str, ExitStack] = {}
        self._lent: dict[str, Any] = {}

    def lend(self, name: str, made: Callable[[], AbstractContextManager[T]]) -> T:
        """Return the object of this name. If it does not run, start it with `made`."""
        if name not in self._running:
            with ExitStack() as starting:
                self._lent[name] = starting.enter_context(made())
                self._running[name] = starting.pop_all()
        lent: T = self._lent[name]
        return lent

    def three(self, name: str) -> LocalCluster:
        """Return a cluster of three brokers, and start it if it does not run."""
        is_new = name not in self._running
        cluster = self.lend(name, lambda: _private(name, 3))
        if is_new:
            _keeps_its_state(cluster)
        return cluster

    def give_back(self, name: str) -> None:
        """Stop the object of this name, because no later test needs it."""
        if name in self._running:
            self._running.pop(name).close()

    def give_back_all(self, *, but: Iterable[str] = ()) -> None:
        """Stop all running objects except those named in `but`."""
        for name in {*self._running} - {*but}:
            self.give_back(name)


LENT: Final = Lent()


def _keeps_its_state(cluster: LocalCluster) -> None:
    """Create the topics that all flows share with three replicas, so that they survive the loss of
    a broker.
    """
    with ClusterClient(settings_for(cluster.bootstrap)) as client:
        ensure_compacted_topic(
            client, STATE_TOPIC, partitions=1, replication_factor=3, on_unseen=lambda _: None
        )
        ensure_probe_topic(client, 3)


def running_cluster(name: str, bootstrap: str) -> LocalCluster:
    """Return a plaintext cluster that was started separately on this machine. Using it is faster
    for a single test.
    """
    cluster = LocalCluster(name, owner=None)
    for node_id, address in enumerate(bootstrap.split(","), start=1):
        host, _, port = address.strip().rpartition(":")
        if host not in {HOST, "localhost"}:
            pytest.exit(f"tests create and delete topics: {address} is not on this machine")
        cluster.ports[node_id] = {"PLAINTEXT": int(port)}
    return cluster


@contextmanager
def _locked(users: Path) -> Iterator[None]:
    with users.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _count(users: Path, change: int) -> int:
    count = (int(users.read_text()) if users.exists() else 0) + change
    users.write_text(str(count))
    return count


def session_owner() -> int:
    """Return the ID of the process that outlives all others of the test run. This is pytest itself,
    also with xdist.
    """
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
