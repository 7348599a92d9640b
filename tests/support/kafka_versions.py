"""The versions of Kafka that are tested as source or target, and brokers of these versions."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from twinlog.errors import EnvironmentMissing
from twinlog.folders import own_folder
from twinlog.java import find_java
from twinlog.sandbox import QUICK_JVM, LocalCluster
from twinlog.sandbox.brokers import KafkaNode
from twinlog.sandbox.kafka_jars import KAFKA_VERSION
from twinlog.sandbox.layout import CONTROLLER, HOST
from twinlog.sandbox.processes import MarkedProcess, spawn, wait_until

SOURCES: Final = ("2.8.2", "3.4.1", "3.9.1", "4.3.0")
TARGETS: Final = ("3.4.1", "3.9.1", "4.3.0")

FAULT_SOURCE, _, FAULT_TARGET = os.environ.get(
    "TWINLOG_FAULT_VERSIONS", f"{KAFKA_VERSION}:{KAFKA_VERSION}"
).partition(":")
"""Versions of the source and the target in the fault tests. The oldest pair is 2.8.2:3.4.1."""

FIRST_KRAFT: Final = (3, 3)
"""The first version in which KRaft is supported for production."""

_ZOOKEEPER_READY_SECONDS: Final = 30


def cluster_of(name: str, version: str, **more: Any) -> LocalCluster:
    """Return a cluster of one broker of this version, with ZooKeeper if the version needs it."""
    major, minor, *_ = version.split(".")
    kind = OldCluster if (int(major), int(minor)) < FIRST_KRAFT else LocalCluster
    return kind(name, version=version, jvm_flags=QUICK_JVM, **more)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@dataclass
class OldCluster(LocalCluster):
    """A cluster whose broker needs ZooKeeper. ZooKeeper listens at the controller's port."""

    def _zookeeper(self) -> ZooKeeper | None:
        if not self.ports:
            return None
        return ZooKeeper(folder=self.home / "node-0", port=self.ports[1][CONTROLLER])

    def _prepare(self, nodes: list[KafkaNode], jars: Path) -> None:
        if (zookeeper := self._zookeeper()) is not None:
            zookeeper.start(jars)

    def _properties(self, node: KafkaNode) -> dict[str, str]:
        return zookeeper_properties(super()._properties(node), self.ports[1][CONTROLLER])

    def _release_ports(self) -> None:
        if (zookeeper := self._zookeeper()) is not None:
            zookeeper.kill()
        super()._release_ports()


def zookeeper_properties(settings: Mapping[str, str], port: int) -> dict[str, str]:
    """Convert the settings of a KRaft node to those of a broker with ZooKeeper."""
    kept = {
        key: value
        for key, value in settings.items()
        if not key.startswith(("process.", "node.", "controller.", "share."))
    }
    for key in ("listeners", "listener.security.protocol.map"):
        parts = kept[key].split(",")
        kept[key] = ",".join(part for part in parts if not part.startswith(CONTROLLER))
    return {**kept, "broker.id": settings["node.id"], "zookeeper.connect": f"{HOST}:{port}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeper:
    """The ZooKeeper server of a cluster. For the watchdog, its folder looks like a node's."""

    folder: Path
    port: int

    def start(self, jars: Path) -> None:
        """Start the server, and wait until it listens."""
        data = self.folder / "data"
        own_folder(self.folder)
        own_folder(data)
        command = [str(find_java()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-Dzookeeper.admin.enableServer=false", "-cp", f"{jars}/*"]
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(self.port), str(data)]
        process = spawn(command, marker=str(self.folder), output=self.folder / "zookeeper.log")
        (self.folder / "pid").write_text(str(process.pid), encoding="ascii")
        if not wait_until(lambda: listens(self.port), within=_ZOOKEEPER_READY_SECONDS):
            raise EnvironmentMissing(
                f"ZooKeeper did not start within {_ZOOKEEPER_READY_SECONDS} s; see "
                f"{self.folder / 'zookeeper.log'}"
            )

    def kill(self) -> None:
        """Kill the server if it runs."""
        file = self.folder / "pid"
        if file.exists():
            pid = int(file.read_text(encoding="ascii"))
            MarkedProcess(pid=pid, marker=str(self.folder)).kill()
