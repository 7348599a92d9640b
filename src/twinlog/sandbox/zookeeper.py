"""ZooKeeper for a broker older than KRaft: one server beside it, and the settings that differ."""

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
    """Whether brokers of this version need ZooKeeper here."""
    major, minor, *_ = version.split(".")
    return (int(major), int(minor)) < FIRST_KRAFT


def zookeeper_properties(settings: Mapping[str, str], port: int) -> dict[str, str]:
    """A KRaft node's settings as a broker with ZooKeeper takes them."""
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
    """The cluster's one ZooKeeper server; its folder looks like a node's, for the watchdog."""

    folder: Path
    port: int

    def start(self, jars: Path) -> None:
        """Start it, and return when it listens."""
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
                f"ZooKeeper did not start within {_READY_SECONDS} s; look at "
                f"{self.folder / 'zookeeper.log'}"
            )

    def kill(self) -> None:
        """End it; harmless when it does not run."""
        file = self.folder / "pid"
        if file.exists():
            pid = int(file.read_text(encoding="ascii"))
            MarkedProcess(pid=pid, marker=str(self.folder)).kill()
