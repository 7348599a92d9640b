"""One node of a local cluster: its folder, its process, and operations on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twinlog.errors import EnvironmentMissing
from twinlog.java import archive_flags, class_archive, find_java
from twinlog.private_files import own_folder, write_own
from twinlog.sandbox.layout import log_settings, new_id, to_properties
from twinlog.sandbox.processes import MarkedProcess, spawn

BOOTSTRAP: Final = "bootstrap.checkpoint"
"""The features of a new cluster, which its first controller reads."""
META: Final = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaNode:
    """A node, whose folder has `server.properties`, `data`, `broker.log` and `pid`, for this user
    only.
    """

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
        """The node's last process, running or not."""
        try:
            pid = int((self.folder / "pid").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None
        return MarkedProcess(pid=pid, marker=str(self.settings))

    @property
    def alive(self) -> bool:
        return (process := self.process) is not None and process.alive

    def write(self, properties: Mapping[str, str]) -> None:
        # the settings have passwords of a secured cluster, and the data has records and credentials
        own_folder(self.folder)
        own_folder(self.data)
        write_own(self.settings, to_properties(properties))
        (self.folder / "log4j2.properties").write_text(log_settings(), encoding="utf-8")

    def spawn(self, jars: Path, jvm: Iterable[str]) -> None:
        """Start the broker, without waiting until it is ready."""
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

    def freeze(self) -> None:
        if (process := self.process) is not None:
            process.freeze()

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
    nodes: list[KafkaNode], cluster_id: str, jars: Path, arguments: Iterable[str] = ()
) -> None:
    """Format the empty data folders of a cluster.

    The output of Kafka's tool differs between nodes and clusters only in the IDs in
    `meta.properties`. So it runs once for a set of jars, and its output is kept beside them. With
    arguments, which are credentials, it runs once for each cluster. Each run costs another JVM.
    """
    features = jars / BOOTSTRAP
    extra = list(arguments)
    if extra or not features.exists():
        features = nodes[0].data / BOOTSTRAP
        _run_storage_tool(nodes[0], cluster_id, jars, extra)
        if not extra and features.exists() and os.access(jars, os.W_OK):
            _keep(features, jars / BOOTSTRAP)
    for node in nodes:
        if (node.data / META).exists():
            continue
        shutil.copy(features, node.data)
        identity = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(node.node_id),
            "directory.id": new_id(),
        }
        (node.data / META).write_text(to_properties(identity), encoding="utf-8")


def _keep(file: Path, at: Path) -> None:
    """Copy atomically, because other processes do the same."""
    new = at.with_name(f".{at.name}.{os.getpid()}")
    shutil.copy(file, new)
    new.replace(at)


def _run_storage_tool(
    node: KafkaNode, cluster_id: str, jars: Path, arguments: Iterable[str]
) -> None:
    command = [str(find_java()), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"]
    command += archive_flags(class_archive(jars))
    command += ["-cp", f"{jars}/*", "kafka.tools.StorageTool", "format", "-t", cluster_id]
    command += ["-c", str(node.settings), "--ignore-formatted", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if answer.returncode != 0:
        raise EnvironmentMissing(
            f"Kafka could not format {node.data}: {(answer.stderr or answer.stdout).strip()}"
        )
