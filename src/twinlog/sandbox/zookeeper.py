"""A ZooKeeper server for a broker older than KRaft, and the broker settings that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from twinlog.errors import EnvironmentMissing
from twinlog.java import find_java
from twinlog.private_files import own_folder
from twinlog.sandbox.layout import CONTROLLER, HOST
from twinlog.sandbox.probe import listens
from twinlog.sandbox.processes import MarkedProcess, spawn, wait_until

FIRST_KRAFT = (3, 3)
"""The first version whose KRaft is meant for production."""

_READY_SECONDS = 30


def is_before_kraft(version: str) -> bool:
    """Return whether brokers of this version need ZooKeeper."""
    major, minor, *_ = version.split(".")
    return (int(major), int(minor)) < FIRST_KRAFT


def zookeeper_properties(settings: Mapping[str, str], port: int) -> dict[str, str]:
    """Convert a KRaft node's settings for a broker with ZooKeeper."""
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
    """The cluster's ZooKeeper server; its folder looks like a node's, for the watchdog."""

    folder: Path
    port: int

    def start(self, jars: Path) -> None:
        """Start it, and wait until it listens."""
        data = self.folder / "data"
        own_folder(self.folder)
        own_folder(data)
        command = [str(find_java()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-Dzookeeper.admin.enableServer=false", "-cp", f"{jars}/*"]
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(self.port), str(data)]
        process = spawn(command, marker=str(self.folder), output=self.folder / "zookeeper.log")
        (self.folder / "pid").write_text(str(process.pid), encoding="ascii")
        if not wait_until(lambda: listens(self.port), within=_READY_SECONDS):
            raise EnvironmentMissing(
                f"ZooKeeper did not start within {_READY_SECONDS} s; see "
                f"{self.folder / 'zookeeper.log'}"
            )

    def kill(self) -> None:
        """Kill it, if it runs."""
        file = self.folder / "pid"
        if file.exists():
            pid = int(file.read_text(encoding="ascii"))
            MarkedProcess(pid=pid, marker=str(self.folder)).kill()
