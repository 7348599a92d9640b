"""Clusters that exist for the whole test session, shared by its processes.

Two processes of one run (pytest-xdist) use the same two brokers: the first to ask starts them, the
last to leave stops them, and a count in a locked file says who that is. If the run is killed, the
clusters' watchdogs end them.
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
    """One broker, the same for every process that names the same folder."""
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
                    cluster.kill(node_id)  # nobody wants the data: no shutdown to wait for
                cluster.stop()
                shutil.rmtree(folder, ignore_errors=True)


SOON_CLEAN: Final = {"log.cleaner.backoff.ms": "1000"}
"""Lets tests that wait for compaction not wait for 15 s."""


KEEPS: Final = {"log.retention.ms": "-1"}
"""Keeps records with timestamps that are years old. Brokers would delete such segments."""


@contextmanager
def private_cluster(name: str, brokers: int) -> Iterator[LocalCluster]:
    """Return a cluster of this process only, whose brokers a test may kill."""
    with _private(name, brokers) as cluster:
        yield cluster


def _private(name: str, brokers: int) -> LocalCluster:
    return LocalCluster(name, brokers=brokers, jvm_flags=QUICK_JVM)


class Lent:
    """Clusters of this process, and a Spark, which run while tests need them, by name.

    Six idle brokers take a fifth of a core from all tests that follow.
    """

    def __init__(self) -> None:
        self._running: dict[str, ExitStack] = {}
        self._lent: dict[str, Any] = {}

    def lend(self, name: str, made: Callable[[], AbstractContextManager[T]]) -> T:
        """Return the object of this name, and start it if it does not run."""
        if name not in self._running:
            with ExitStack() as starting:
                self._lent[name] = starting.enter_context(made())
                self._running[name] = starting.pop_all()
        lent: T = self._lent[name]
        return lent

    def three(self, name: str) -> LocalCluster:
        """Three brokers."""
        is_new = name not in self._running
        cluster = self.lend(name, lambda: _private(name, 3))
        if is_new:
            _keeps_its_state(cluster)
        return cluster

    def give_back(self, name: str) -> None:
        """Note that no later test needs it."""
        if name in self._running:
            self._running.pop(name).close()

    def give_back_all(self, *, but: Iterable[str] = ()) -> None:
        """Note that no later test needs a running cluster, except those in `but`."""
        for name in {*self._running} - {*but}:
            self.give_back(name)


LENT: Final = Lent()


def _keeps_its_state(cluster: LocalCluster) -> None:
    """Replicate the topics that all flows share, so that they survive the loss of a broker."""
    with ClusterClient(settings_for(cluster.bootstrap)) as client:
        ensure_compacted_topic(
            client, STATE_TOPIC, partitions=1, replication_factor=3, on_unseen=lambda _: None
        )
        ensure_probe_topic(client, 3)


def running_cluster(name: str, bootstrap: str) -> LocalCluster:
    """Return a plaintext cluster that was started separately on this machine, which is faster for a
    single test.
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
    """Return the process that outlives all others of the run: pytest itself, also with xdist."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
