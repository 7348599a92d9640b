"""A Kafka cluster (KRaft) of real brokers on this machine, which can be killed, frozen and
restarted.

    with LocalCluster("source") as cluster:
        connect_to(cluster.bootstrap)

Every node is both broker and controller. One node is sufficient for most tests. With three nodes,
partitions have replicas, so that leaders can move.

`LocalCluster` is the cluster, and `KafkaNode` one of its nodes: a folder and a process.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Final, Self

from twinlog.errors import EnvironmentMissing, UsageError
from twinlog.folders import own_folder, temporary_folder, write_own
from twinlog.java import archive_flags, class_archive, find_java
from twinlog.sandbox import kafka_jars
from twinlog.sandbox.layout import (
    CONTROLLER,
    HOST,
    STATE_FILE,
    ClusterSecurity,
    Listeners,
    Stores,
    log_settings,
    new_id,
    read_state,
    reserve_ports,
    server_properties,
    to_properties,
    write_state,
)
from twinlog.sandbox.processes import NO_PROCESS, MarkedProcess, spawn, wait_until

BOOTSTRAP: Final = "bootstrap.checkpoint"
"""File with the feature levels of a new cluster, which its first controller reads."""
META: Final = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaNode:
    """A node, with a private folder for `server.properties`, `data`, `broker.log` and `pid`."""

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
    def process(self) -> MarkedProcess:
        """The process that was last started for the node, running or not."""
        pid = NO_PROCESS
        with suppress(FileNotFoundError, ValueError):
            pid = int((self.folder / "pid").read_text(encoding="ascii"))
        return MarkedProcess(pid=pid, marker=str(self.settings))

    def write(self, properties: Mapping[str, str]) -> None:
        # private folders, because the settings of a secured cluster have passwords, and its data
        # has records and credentials
        own_folder(self.folder)
        own_folder(self.data)
        write_own(self.settings, to_properties(properties))
        (self.folder / "log4j2.properties").write_text(log_settings(), encoding="utf-8")

    def spawn(self, jars: Path, jvm: Iterable[str]) -> None:
        """Start the broker's process. Does not wait until the broker is ready."""
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

    def log_tail(self, lines: int = 40) -> str:
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def format_storage(
    nodes: list[KafkaNode], cluster_id: str, jars: Path, arguments: Iterable[str] = ()
) -> None:
    """Format the data folders of a cluster. Folders that are already formatted are not changed.

    The output of Kafka's storage tool for two nodes or clusters differs only in the IDs in
    `meta.properties`. Each run starts a JVM, so the tool runs only once for a set of jars, and its
    output is stored in the folder of the jars. With `arguments`, which are credentials, the tool
    runs once for each cluster.
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
    """Copy a file atomically, because other processes may copy it at the same time."""
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


# The readiness probe. It encodes requests itself and uses a blocking socket, because the sandbox is
# used to test Twinlog's client and so must not depend on it. The probe asks for metadata, because a
# KRaft broker listens on its port before it has joined the cluster.

_METADATA, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 3, 17, 36


def known_brokers(port: int, credentials: tuple[str, str] | None) -> set[int]:
    """Return the IDs of the brokers in this broker's metadata. Raises OSError until it responds."""
    with socket.create_connection((HOST, port), timeout=2.0) as connection:
        if credentials is not None:
            _log_in(connection, *credentials)
        # version 9 (Kafka 2.4), header version 2; the body requests no topics, no creation, and no
        # authorized operations of cluster or topics, and has no tags
        answer = _ask(connection, _METADATA, 9, b"\x00" + b"\x01\x00\x00\x00\x00")
        return _broker_ids(answer[1:])  # response header version 1 ends with tags


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
    return _receive(connection, size)[4:]  # skips the correlation ID


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the broker closed the readiness probe's connection")
        received += piece
    return bytes(received)


def _broker_ids(body: bytes) -> set[int]:
    """Return the broker IDs from the body of a Metadata response: the throttle time, then an array
    of (id, host, port, rack, tags).
    """
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


QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""JVM flags that halve a broker's start-up time, for tests. They would distort measurements."""

_HEAP_MB = {1: 512, 3: 320}
_READY_SECONDS = 300
_STOP_SECONDS = 15
_PORT_ATTEMPTS = 3
_STORED = ("name", "brokers", "config", "node_config", "heap_mb", "jvm_flags", "version")
"""Fields of a LocalCluster that are stored for `attach`."""


@dataclass
class LocalCluster:
    """A local cluster. With `folder` None it uses a temporary folder, which `stop` removes."""

    name: str
    folder: Path | None = None
    brokers: int = 1
    _: KW_ONLY
    config: Mapping[str, str] = field(default_factory=dict)
    """Additional settings of all brokers. `restart` applies changed values to a node."""
    node_config: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Additional settings of single nodes, by node ID."""
    heap_mb: int | None = None
    jvm_flags: tuple[str, ...] = ()
    security: ClusterSecurity | None = None
    version: str = kafka_jars.KAFKA_VERSION
    """Kafka version, 3.3 or newer. Clusters of several brokers support only the default version."""
    owner: int | None = field(default_factory=os.getpid)
    """ID of the process whose end also ends the brokers. None if they must outlive this process."""

    listeners: Listeners = field(init=False, default_factory=Listeners)
    ports: dict[int, dict[str, int]] = field(init=False, default_factory=dict)
    cluster_id: str = field(init=False, default_factory=new_id)
    _temporary: bool = field(init=False, default=False)
    _port_sockets: list[socket.socket] = field(init=False, default_factory=list)
    """Sockets that reserve the cluster's ports, so that they are free when a node is restarted."""

    @classmethod
    def attach(cls, folder: Path) -> Self:
        """Return the cluster that was started in this folder, perhaps by another process."""
        state = read_state(folder)
        cluster = cls(folder=folder, **{name: state[name] for name in _STORED})
        cluster.listeners, cluster.ports = state["listeners"], state["ports"]
        cluster.cluster_id, cluster._temporary = state["cluster_id"], state["temporary"]
        return cluster

    def start(self) -> None:
        """Start every node, and wait until the metadata of each node has all nodes."""
        if self.brokers < 1:
            raise UsageError(f"a cluster of {self.brokers} brokers cannot start; ask for 1 or more")
        jars = self._jars()
        if self.folder is None:
            self.folder = temporary_folder(f"twinlog-{self.name}-")
            self._temporary = True
        self.folder = self.folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / STATE_FILE).exists():  # resume with an earlier run's data
            earlier = self.attach(self.folder)
            self.cluster_id, self.ports = earlier.cluster_id, earlier.ports
        if self.security is not None:
            self.listeners = self.security.prepare(self.folder)
        try:
            if self.owner is not None:
                start_watchdog(self.folder, owner=self.owner, temporary=self._temporary)
            self._start_nodes(jars)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all nodes within seconds. Removes a temporary folder."""
        if self.folder is None:
            return
        nodes = self._nodes()
        for node in nodes:  # signal all before waiting: a controlled shutdown needs a controller
            node.process.send(signal.SIGKILL if self._temporary else signal.SIGTERM)
            node.process.send(signal.SIGCONT)
        wait_until(lambda: not any(node.process.alive for node in nodes), within=_STOP_SECONDS)
        for node in nodes:
            node.process.kill()
        self._release_ports()
        stop_watchdog(self.folder)
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for the first listener: `host:port` of every node."""
        return self.bootstrap_for(self.listeners.names[0])

    def bootstrap_for(self, listener: str) -> str:
        return ",".join(f"{HOST}:{owned[listener]}" for _, owned in sorted(self.ports.items()))

    def client_properties(
        self,
        listener: str | None = None,
        user: str | None = None,
        *,
        mechanism: str | None = None,
        stores: Stores = "PEM",
    ) -> dict[str, str]:
        """Return all settings of a Java client of this cluster, including `bootstrap.servers`."""
        listener = listener or self.listeners.names[0]
        properties = {}
        if self.security is not None:
            properties = self.security.client_properties(
                listener, user, mechanism=mechanism, stores=stores
            )
        return {"bootstrap.servers": self.bootstrap_for(listener), **properties}

    @property
    def broker_pids(self) -> dict[int, int]:
        """Process IDs of the nodes that run or are frozen, by node ID."""
        nodes = self._nodes() if self.folder is not None else []
        return {node.node_id: node.process.pid for node in nodes if node.process.alive}

    def kill(self, node_id: int) -> None:
        """Kill a node (SIGKILL), and wait until it has ended."""
        self._node(node_id).process.kill()

    def freeze(self, node_id: int) -> None:
        """Freeze a node's process (SIGSTOP). Its connections stay open, but it does not respond."""
        self._node(node_id).process.freeze()

    def thaw(self, node_id: int) -> None:
        self._node(node_id).process.send(signal.SIGCONT)

    def restart(self, node_id: int) -> None:
        """Shut down a node if it runs, start it on the same ports, and wait until it is ready."""
        node = self._node(node_id)
        node.process.end(patience=_STOP_SECONDS)
        self._spawn(node, self._jars())
        self._wait_ready([node])

    def data_folder(self, node_id: int) -> Path:
        """Return the folder with the node's partitions, each in `<topic>-<partition>`."""
        return self._node(node_id).data

    def logs(self) -> str:
        """Return the last lines of each broker's log, for the report of a failed test."""
        return "\n".join(
            f"--- {self.name}, node {node.node_id} ---\n{node.log_tail()}" for node in self._nodes()
        )

    def _jars(self) -> Path:
        if self.brokers > 1 and self.version != kafka_jars.KAFKA_VERSION:
            raise UsageError(
                f"a cluster of {self.brokers} brokers runs Kafka {kafka_jars.KAFKA_VERSION} only"
            )
        return kafka_jars.find_or_fetch(version=self.version)

    @property
    def home(self) -> Path:
        """The folder of a cluster that was started."""
        if self.folder is None:
            raise UsageError(f"the cluster {self.name!r} has not been started; call start() first")
        return self.folder

    def _node(self, node_id: int) -> KafkaNode:
        if node_id not in range(1, self.brokers + 1):
            raise UsageError(f"{self.name!r} has nodes 1 to {self.brokers}, not {node_id}")
        return KafkaNode(node_id=node_id, folder=self.home / f"node-{node_id}")

    def _nodes(self) -> list[KafkaNode]:
        return [self._node(node_id) for node_id in range(1, self.brokers + 1)]

    def _start_nodes(self, jars: Path) -> None:
        nodes = self._nodes()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            if attempt > 1 or not self.ports:
                self._take_ports()
            for node in nodes:
                node.log.unlink(missing_ok=True)
                node.write(self._properties(node))
            self._prepare(nodes, jars)
            self._write_state()
            for node in nodes:
                self._spawn(node, jars)
            try:
                self._wait_ready(nodes)
            except EnvironmentMissing:
                if attempt == _PORT_ATTEMPTS or not self._may_start_better(nodes):
                    raise
                for node in nodes:
                    node.process.kill()
            else:
                return

    def _may_start_better(self, nodes: Iterable[KafkaNode]) -> bool:
        """Return True if another start may succeed, because another process took a port before the
        broker bound it, or because a process ended without output. A wrong configuration causes
        output.
        """
        ended_silent = any(not node.process.alive and not node.log_tail() for node in nodes)
        return ended_silent or "Address already in use" in self.logs()

    def _prepare(self, nodes: list[KafkaNode], jars: Path) -> None:
        arguments = self.security.format_arguments() if self.security else []
        format_storage(nodes, self.cluster_id, jars, arguments)

    def _take_ports(self) -> None:
        names = (*self.listeners.on_brokers, CONTROLLER)
        self._release_ports()
        self._port_sockets = reserve_ports(self.brokers * len(names))
        ports = iter([int(sock.getsockname()[1]) for sock in self._port_sockets])
        self.ports = {
            node: {name: next(ports) for name in names} for node in range(1, self.brokers + 1)
        }

    def _release_ports(self) -> None:
        for sock in self._port_sockets:
            sock.close()
        self._port_sockets.clear()

    def _properties(self, node: KafkaNode) -> dict[str, str]:
        return {
            **server_properties(node.node_id, self.ports, self.listeners, node.data),
            **self.config,
            **self.node_config.get(node.node_id, {}),
        }

    def _spawn(self, node: KafkaNode, jars: Path) -> None:
        heap = self.heap_mb or _HEAP_MB.get(self.brokers, _HEAP_MB[3])
        node.write(self._properties(node))
        archive = archive_flags(class_archive(jars))
        node.spawn(jars, (f"-Xmx{heap}m", *self.jvm_flags, *archive))

    def _wait_ready(self, nodes: Iterable[KafkaNode]) -> None:
        waiting = list(nodes)
        expected = {node.node_id for node in waiting}

        def all_ready() -> bool:
            waiting[:] = [node for node in waiting if not self._knows(node, expected)]
            return not waiting or any(not node.process.alive for node in waiting)

        wait_until(all_ready, within=_READY_SECONDS)
        if waiting:
            ids = ", ".join(str(node.node_id) for node in waiting)
            raise EnvironmentMissing(
                f"node {ids} of the local cluster {self.name!r} did not become ready;"
                f" its log ends in:\n{waiting[0].log_tail()}"
            )

    def _knows(self, node: KafkaNode, expected: set[int]) -> bool:
        port = self.ports[node.node_id][self.listeners.internal]
        try:
            return known_brokers(port, self.listeners.credentials) >= expected
        except OSError:
            return False

    def _write_state(self) -> None:
        known = {name: getattr(self, name) for name in _STORED}
        known |= {"listeners": asdict(self.listeners), "ports": self.ports}
        known |= {"cluster_id": self.cluster_id, "temporary": self._temporary}
        write_state(self.home, known)


# The watchdog ends a cluster whose owner died without stopping it. It is a shell script that waits
# until the owner has exited. The kernel's parent-death signal is not used, because it would be sent
# when the thread that started a broker ends. It would also tie a shared cluster to the first
# process.

_SCRIPT = """
owner=$1 folder=$2 temporary=$3
while kill -0 "$owner" 2>/dev/null; do sleep 1; done
for file in "$folder"/node-*/pid; do
  pid=$(cat "$file" 2>/dev/null) || continue
  if grep -qsF "$folder/" "/proc/$pid/cmdline"; then kill -9 "$pid"; fi
done
if [ "$temporary" = yes ]; then sleep 1; rm -rf "$folder"; fi
"""


def start_watchdog(folder: Path, *, owner: int, temporary: bool) -> None:
    """Start a watchdog that kills the folder's brokers when process `owner` has ended, and then
    removes a temporary folder.
    """
    command = ["sh", "-c", _SCRIPT, "twinlog-watchdog", str(owner), str(folder)]
    command.append("yes" if temporary else "no")
    process = spawn(command, marker=str(folder), output=Path(os.devnull))
    (folder / "watchdog.pid").write_text(str(process.pid), encoding="ascii")


def stop_watchdog(folder: Path) -> None:
    file = folder / "watchdog.pid"
    if not file.exists():
        return
    process = MarkedProcess(pid=int(file.read_text(encoding="ascii")), marker=str(folder))
    file.unlink()
    if process.alive:
        # kills the watchdog's process group, which includes the process `sleep`
        os.killpg(process.pid, signal.SIGKILL)
        process.kill()
