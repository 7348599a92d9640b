"""One node of a local cluster: its folder, its process, and what can be done to it."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from twinlog.errors import EnvironmentMissing
from twinlog.sandbox.java import find_java
from twinlog.sandbox.layout import log_settings, new_id, to_properties
from twinlog.sandbox.processes import MarkedProcess, spawn

__all__ = ["Node", "format_storage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node's folder holds `server.properties`, `data`, `broker.log` and `pid`."""

    node_id: int
    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def settings(self) -> Path:
        return self.folder / "server.properties"

    @property
    def process(self) -> MarkedProcess | None:
        """The node's last process, dead or alive."""
        try:
            pid = int((self.folder / "pid").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None
        return MarkedProcess(pid=pid, marker=str(self.settings))

    @property
    def alive(self) -> bool:
        return (process := self.process) is not None and process.alive

    def write(self, properties: Mapping[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings.write_text(to_properties(properties), encoding="utf-8")
        (self.folder / "log4j2.properties").write_text(log_settings(), encoding="utf-8")

    def spawn(self, jars: Path, jvm: Iterable[str]) -> None:
        """Start the broker; it is not ready yet when this returns."""
        process = spawn(
            [
                str(find_java()),
                *jvm,
                f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
                "-cp",
                f"{jars}/*",
                "kafka.Kafka",
                str(self.settings),
            ],
            marker=str(self.settings),
            output=self.log,
        )
        (self.folder / "pid").write_text(str(process.pid), encoding="ascii")

    def signal(self, number: signal.Signals) -> None:
        if (process := self.process) is not None:
            process.send(number)

    def kill(self) -> None:
        if (process := self.process) is not None:
            process.kill()

    def end(self, *, patience: float) -> None:
        if (process := self.process) is not None:
            process.end(patience=patience)

    def log_tail(self, lines: int = 40) -> str:
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def format_storage(
    nodes: list[Node], cluster_id: str, jars: Path, arguments: Iterable[str] = ()
) -> None:
    """Prepare empty data folders for one cluster.

    Kafka's tool runs for the first node only. What it writes for another one differs in two ids in
    `meta.properties`, and each run would cost another JVM.
    """
    first, *others = nodes
    command = [str(find_java()), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"]
    command += ["-cp", f"{jars}/*", "kafka.tools.StorageTool", "format", "-t", cluster_id]
    command += ["-c", str(first.settings), "--ignore-formatted", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if answer.returncode != 0:
        raise EnvironmentMissing(
            f"Kafka could not format {first.data}: {(answer.stderr or answer.stdout).strip()}"
        )
    for node in others:
        if (node.data / "meta.properties").exists():
            continue
        node.data.mkdir(parents=True)
        shutil.copy(first.data / "bootstrap.checkpoint", node.data)
        identity = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(node.node_id),
            "directory.id": new_id(),
        }
        (node.data / "meta.properties").write_text(to_properties(identity), encoding="utf-8")
