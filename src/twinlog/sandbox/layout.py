"""Settings of a local cluster's brokers, and `cluster.json`, which `LocalCluster.attach` reads."""

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

# Ports below Linux's range of ephemeral ports, so that no outgoing connection takes a killed
# broker's port before the broker is restarted.
_PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The listeners of a cluster, and the settings that secure them."""

    names: tuple[str, ...] = ("PLAINTEXT",)
    """Names of the listeners for clients. `bootstrap` of the cluster uses the first one."""
    internal: str = "PLAINTEXT"
    """Name of the listener for other brokers and the readiness probe. It may be one of `names`."""
    protocols: Mapping[str, str] = field(
        default_factory=lambda: {"PLAINTEXT": "PLAINTEXT", CONTROLLER: "PLAINTEXT"}
    )
    properties: Mapping[str, str] = field(default_factory=dict)
    credentials: tuple[str, str] | None = None
    """SASL/PLAIN user and password for the internal listener."""

    @property
    def on_brokers(self) -> tuple[str, ...]:
        """Names of all listeners except the controller's, without duplicates."""
        return tuple(dict.fromkeys((*self.names, self.internal)))


class ClusterSecurity(Protocol):
    """Secures the listeners of a cluster."""

    def prepare(self, folder: Path) -> Listeners:
        """Write the key files, and return the listeners with the brokers' settings."""

    def format_arguments(self) -> list[str]:
        """Return arguments for Kafka's storage tool, for example to create SCRAM users."""

    def client_properties(
        self, listener: str, user: str | None, *, mechanism: str | None, stores: Stores
    ) -> dict[str, str]:
        """Return the keys of a Java client for a listener, without `bootstrap.servers`."""


def reserve_ports(count: int) -> list[socket.socket]:
    """Return sockets that are bound to free ports. A socket reserves its port until it is closed,
    even while the broker that uses the port is down.
    """
    # SystemRandom, because tests seed `random` equally in every process, and all processes would
    # then choose the same ports
    draw = secrets.SystemRandom()
    held: list[socket.socket] = []
    while len(held) < count:
        sock = socket.socket()
        try:
            sock.bind((HOST, draw.choice(_PORTS)))
        except OSError:
            sock.close()
            continue
        # with this option, which brokers also set, a broker can listen on the port while this
        # socket is bound but not listening
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.append(sock)
    return held


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago. Callers must retry if one is no longer free."""
    held = reserve_ports(count)
    ports = [int(sock.getsockname()[1]) for sock in held]
    for sock in held:
        sock.close()
    return ports


def new_id() -> str:
    """Return a random Kafka UUID, without a leading dash, which commands read as an option."""
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
    """Return the settings of a node (broker and controller). `ports`: by node ID and listener."""
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
        # fewer than the default of 50, whose creation makes the first use slow
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.num.partitions": "8",
        "group.initial.rebalance.delay.ms": "0",
        # short, because a share group's member gets its partitions with its second heartbeat
        # (default interval 5 s)
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.heartbeat.interval.ms": "500",
        "auto.create.topics.enable": "false",
        # by default, an idle controller writes a record every 500 ms
        "metadata.max.idle.interval.ms": "5000",
        # brokers allocate it at their start, and the default of 128 MB is a third of a small
        # broker's heap
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        # time after which a killed broker's partitions move (default 9 s)
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        **listeners.properties,
    }


def to_properties(values: Mapping[str, str]) -> str:
    """Return the text of a .properties file. In these values, only backslashes need escapes."""
    lines = (key + "=" + value.replace("\\", "\\\\") for key, value in values.items())
    return "\n".join(lines) + "\n"


def log_settings() -> str:
    """Return log4j2 settings: warnings and errors are written to stdout, a node's log file."""
    return to_properties(
        {
            "status": "error",
            "appender.out.type": "Console",
            "appender.out.name": "out",
            "appender.out.layout.type": "PatternLayout",
            "appender.out.layout.pattern": "%d{HH:mm:ss.SSS} %p %c{1}: %m%n",
            "rootLogger.level": "warn",
            # hides up to 20 warnings per second that another node cannot be reached while it is
            # down
            "logger.network.name": "org.apache.kafka.clients.NetworkClient",
            "logger.network.level": "error",
            # hides a line per segment and check about records with timestamps in the future
            "logger.future.name": "LogFutureTimestampLogger",
            "logger.future.level": "error",
            "rootLogger.appenderRef.out.ref": "out",
        }
    )


STATE_FILE = "cluster.json"


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Store the settings of a started cluster. (The nodes' folders have the process IDs.)"""
    file = folder / STATE_FILE
    scratch = file.with_suffix(".new")
    scratch.write_text(json.dumps(state, indent=1), encoding="utf-8")
    scratch.chmod(0o600)
    scratch.replace(file)  # atomic, so that readers see either the old or the new state


def read_state(folder: Path) -> dict[str, Any]:
    """Return the stored settings. Types that JSON does not have are restored."""
    state: dict[str, Any] = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    for key in ("node_config", "ports"):  # JSON keys are always strings
        state[key] = {int(node): value for node, value in state[key].items()}
    state["jvm_flags"] = tuple(state["jvm_flags"])
    listeners = state["listeners"]
    listeners["names"] = tuple(listeners["names"])
    listeners["credentials"] = tuple(listeners["credentials"] or ()) or None
    state["listeners"] = Listeners(**listeners)
    return state
