"""One node of a local cluster: its folder, its process, operations on it, and its readiness."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twinlog.errors import EnvironmentMissing
from twinlog.java import archive_flags, class_archive, find_java
from twinlog.private_files import own_folder, write_own
from twinlog.sandbox.layout import HOST, log_settings, new_id, to_properties
from twinlog.sandbox.processes import MarkedProcess, spawn

BOOTSTRAP: Final = "bootstrap.checkpoint"
"""The features of a new cluster, which its first controller reads."""
META: Final = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaNode:
    """A node, whose private folder has `server.properties`, `data`, `broker.log` and `pid`."""

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


# Readiness. The requests are written by hand over a blocking socket, because the sandbox must not
# depend on the client that it is used to test. An open port is not enough, because a KRaft broker
# listens before it has joined the cluster.

_METADATA, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 3, 17, 36


def known_brokers(port: int, credentials: tuple[str, str] | None) -> set[int]:
    """Return the IDs of brokers that this one lists as alive. Raises OSError until it responds."""
    with socket.create_connection((HOST, port), timeout=2.0) as connection:
        if credentials is not None:
            _log_in(connection, *credentials)
        # version 9 (Kafka 2.4), header version 2: no topics, no creation, no authorized operations
        # of cluster or topics, no tags
        answer = _ask(connection, _METADATA, 9, b"\x00" + b"\x01\x00\x00\x00\x00")
        return _broker_ids(answer[1:])  # response header version 1 ends with its tags


def _log_in(connection: socket.socket, user: str, password: str) -> None:
    mechanism = b"PLAIN"
    answer = _ask(connection, _SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
    _refuse_errors(answer)
    token = f"\0{user}\0{password}".encode()
    _refuse_errors(_ask(connection, _SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token))


def _refuse_errors(answer: bytes) -> None:
    (code,) = struct.unpack_from(">h", answer)
    if code:
        raise OSError(f"the broker rejected the readiness probe's log-in with error {code}")


def _ask(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    client = b"sandbox"
    request = struct.pack(">hhih", api, version, 7, len(client)) + client + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, size)[4:]  # without the correlation ID


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the broker closed the readiness probe's connection")
        received += piece
    return bytes(received)


def _broker_ids(body: bytes) -> set[int]:
    """Parse the throttle time, then the array of (id, host, port, rack, tags)."""
    position = 4
    count, position = _unsigned_varint(body, position)
    ids = set()
    for _ in range(count - 1):
        ids.add(struct.unpack_from(">i", body, position)[0])
        host, position = _unsigned_varint(body, position + 4)
        rack, position = _unsigned_varint(body, position + host - 1 + 4)
        position += max(rack - 1, 0) + 1  # no tags
    return ids


def _unsigned_varint(body: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
