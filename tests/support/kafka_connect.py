"""A real Kafka Connect worker in distributed mode, which can run MirrorMaker 2's connectors."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.eventually import eventually
from tests.support.mirror_maker import java_process
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.layout import HOST, free_ports

__all__ = ["ConnectWorker", "connect_worker"]

_ANSWER_S = 30.0
_BAD = 400
_SOURCE_CONNECTOR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectWorker:
    """The REST interface of a worker."""

    port: int
    process: subprocess.Popen[bytes]

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a source connector of MirrorMaker 2. Retry until the worker accepts it."""
        whole = {"connector.class": _SOURCE_CONNECTOR, "tasks.max": "1", **config}
        whole |= {"key.converter": _BYTES, "value.converter": _BYTES}
        # the worker refuses (409) while its group rebalances
        eventually(lambda: self._ask("PUT", _path(name, "config"), whole))

    def request(self, name: str, verb: str) -> None:
        """Send `pause`, `resume` or `stop` for the connector. Retry until the worker accepts it."""
        eventually(lambda: self._ask("PUT", _path(name, verb)))

    def state(self, name: str) -> str:
        """Return the connector's state in the status topic. Raises AssertionError while it is
        unknown.
        """
        return str(self._ask("GET", _path(name, "status"))["connector"]["state"])

    def is_up(self) -> bool:
        assert self.process.poll() is None, "the worker has ended"
        try:
            return bool(self._ask("GET", "/"))
        except OSError:
            return False

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """Return the JSON response. Raises AssertionError for an error, so that callers retry."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=_ANSWER_S)
        try:
            headers = {"Content-Type": "application/json"}
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        assert answer.status < _BAD, f"{method} {path}: {answer.status} {data!r}"
        return json.loads(data) if data else True


def _path(name: str, what: str) -> str:
    return f"/connectors/{quote(name, safe='')}/{what}"


@contextmanager
def connect_worker(
    folder: Path, cluster: LocalCluster, *, group: str, prefix: str
) -> Iterator[ConnectWorker]:
    """Run a worker on this cluster of one broker until the block ends. Its topics are
    `<prefix>-offsets`, `<prefix>-configs` and `<prefix>-status`.
    """
    (port,) = free_ports(1)
    lines = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "listeners": f"http://{HOST}:{port}",
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "offset.flush.interval.ms": "2000",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
        "plugin.discovery": "service_load",
    }
    topics = {"offset": "offsets", "config": "configs", "status": "status"}
    for key, name in topics.items():
        lines[f"{key}.storage.topic"] = f"{prefix}-{name}"
        lines[f"{key}.storage.replication.factor"] = "1"
    file = folder / "worker.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    with java_process("org.apache.kafka.connect.cli.ConnectDistributed", file) as process:
        worker = ConnectWorker(port=port, process=process)
        eventually(worker.is_up, what="the worker answers")
        yield worker
