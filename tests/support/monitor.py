"""Queries the metrics and the two probes, as Prometheus and Kubernetes do."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from twinlog.addresses import Address
from twinlog.config.rest import RestConfig
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.server import WebServer

__all__ = ["LOCAL", "Answer", "Series", "ask", "labels", "series", "served"]

LOCAL = Address("127.0.0.1", 0)
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextmanager
def served(monitor: Monitor, address: Address = LOCAL) -> Iterator[WebServer]:
    """Run a server until the block ends. Other processes can connect to it."""
    server = WebServer(monitor, address, RestConfig(monitoring_is_open=True))
    server.start()
    try:
        yield server
    finally:
        server.close()


def ask(
    address: Address,
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 5,
) -> Answer:
    """Send one request over a new connection, and return the response."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def series(text: bytes) -> Series:
    """Return the value of every sample by its name and labels, as Prometheus' own parser reads
    them.
    """
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    """Return labels in the form of the keys of `series`. By default they are those of the flow
    A->B.
    """
    return tuple(sorted({"source": "A", "target": "B", **values}.items()))
