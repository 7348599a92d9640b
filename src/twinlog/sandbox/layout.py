"""Settings of a local cluster's brokers, and its state for other processes in `cluster.json`."""

from __future__ import annotations

import base64
import json
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

HOST = "127.0.0.1"
CONTROLLER = "CONTROLLER"

Stores = Literal["PEM", "PKCS12", "JKS"]
"""Formats of a client's key files."""

# Below Linux's range of ephemeral ports, so that a killed broker's port is still free when the
# broker is restarted.
_PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The listeners of a cluster, and the settings that secure them."""

    names: tuple[str, ...] = ("PLAINTEXT",)
    """Listeners for clients. The first is the cluster's `bootstrap`."""
    internal: str = "PLAINTEXT"
    """Listener for inter-broker traffic and the readiness probe. It may be one of `names`."""
    protocols: Mapping[str, str] = field(
        default_factory=lambda: {"PLAINTEXT": "PLAINTEXT", CONTROLLER: "PLAINTEXT"}
    )
    properties: Mapping[str, str] = field(default_factory=dict)
    credentials: tuple[str, str] | None = None
    """SASL/PLAIN user and password for the internal listener."""

    @property
    def on_brokers(self) -> tuple[str, ...]:
        """All listeners except the controller's, without duplicates."""
        return tuple(dict.fromkeys((*self.names, self.internal)))


class ClusterSecurity(Protocol):
    """Secures the listeners of a cluster."""

    def prepare(self, folder: Path) -> Listeners:
        """Write the key files, and return the brokers' side of all settings."""

    def format_arguments(self) -> list[str]:
        """Return arguments of Kafka's storage tool, such as users."""

    def client_properties(
        self, listener: str, user: str | None, *, mechanism: str | None, stores: Stores
    ) -> dict[str, str]:
        """Return Java client keys for a listener, without `bootstrap.servers`."""


def hold_ports(count: int) -> list[socket.socket]:
    """Return sockets bound to free ports. They reserve the ports until they are closed, even while
    the broker that listens there is down.
    """
    # not `random`: test runs seed it equally in every process, which would then pick the same ports
    draw = secrets.SystemRandom()
    held: list[socket.socket] = []
    while len(held) < count:
        sock = socket.socket()
        try:
            sock.bind((HOST, draw.choice(_PORTS)))
        except OSError:
            sock.close()
            continue
        # a broker, which sets this option as well, may listen on a port that is bound but not
        # listening
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.append(sock)
    return held


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago; callers must be ready to retry."""
    held = hold_ports(count)
    ports = [int(sock.getsockname()[1]) for sock in held]
    for sock in held:
        sock.close()
    return ports


def new_id() -> str:
    """Return a random Kafka UUID without a leading dash, which a command line would misread."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def server_properties(
    node_id: int,
    ports: Mapping[int, Mapping[str, int]],
    listeners: Listeners,
    data: Path,
) -> dict[str, str]:
    """Return the settings of a combined broker and controller; `ports` are by node."""
    own_ports = ports[node_id]
    replicas = str(min(len(ports), 3))
    in_sync = "2" if len(ports) >= 3 else "1"
    voters = ",".join(f"{node}@{HOST}:{owned[CONTROLLER]}" for node, owned in sorted(ports.items()))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": CONTROLLER,
        "listeners": ",".join(
            f"{name}://{HOST}:{own_ports[name]}" for name in (*listeners.on_brokers, CONTROLLER)
        ),
        "advertised.listeners": ",".join(
            f"{name}://{HOST}:{own_ports[name]}" for name in listeners.on_brokers
        ),
        "inter.broker.listener.name": listeners.internal,
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in listeners.protocols.items()
        ),
        "log.dirs": str(data),
        "default.replication.factor": replicas,
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # fewer than the default 50, whose creation takes most of the time of the first use
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.num.partitions": "8",
        "group.initial.rebalance.delay.ms": "0",
        # a member of a share group gets its partitions with the second heartbeat (default 5 s)
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.heartbeat.interval.ms": "500",
        "auto.create.topics.enable": "false",
        # an idle controller writes a record every 500 ms by default
        "metadata.max.idle.interval.ms": "5000",
        # the default of 128 MB is allocated at start, a third of a small broker's heap
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        # a killed broker's partitions move after this long (default 9 s)
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        **listeners.properties,
    }


def to_properties(values: Mapping[str, str]) -> str:
    """Return the text of a .properties file. Only backslashes need escaping in these values."""
    lines = (key + "=" + value.replace("\\", "\\\\") for key, value in values.items())
    return "\n".join(lines) + "\n"


def log_settings() -> str:
    """Return log4j2 settings: warnings and errors to stdout, which is the node's log file."""
    return to_properties(
        {
            "status": "error",
            "appender.out.type": "Console",
            "appender.out.name": "out",
            "appender.out.layout.type": "PatternLayout",
            "appender.out.layout.pattern": "%d{HH:mm:ss.SSS} %p %c{1}: %m%n",
            "rootLogger.level": "warn",
            # hides up to 20 warnings a second that another node, which is down, cannot be reached
            "logger.network.name": "org.apache.kafka.clients.NetworkClient",
            "logger.network.level": "error",
            # hides a line per segment and check, if records have timestamps in the future
            "logger.future.name": "LogFutureTimestampLogger",
            "logger.future.level": "error",
            "rootLogger.appenderRef.out.ref": "out",
        }
    )


STATE_FILE = "cluster.json"


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Store the settings a cluster was started with; process IDs are in the nodes' folders."""
    file = folder / STATE_FILE
    scratch = file.with_suffix(".new")
    scratch.write_text(json.dumps(state, indent=1), encoding="utf-8")
    scratch.chmod(0o600)
    scratch.replace(file)  # readers see the old state or the new one


def read_state(folder: Path) -> dict[str, Any]:
    """Return the settings that were stored, with the types that they had before JSON."""
    state: dict[str, Any] = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    for key in ("node_config", "ports"):  # JSON keys are always strings
        state[key] = {int(node): value for node, value in state[key].items()}
    state["jvm_flags"] = tuple(state["jvm_flags"])
    listeners = state["listeners"]
    listeners["names"] = tuple(listeners["names"])
    listeners["credentials"] = tuple(listeners["credentials"] or ()) or None
    state["listeners"] = Listeners(**listeners)
    return state
