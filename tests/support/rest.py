"""REST of a process, asked over a real socket."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from tests.support.monitor import LOCAL, Answer
from twinlog.addresses import Address
from twinlog.cli.terminal.monitoring import web_server
from twinlog.config.flow.schema import MirrorConfig
from twinlog.control.watch.events import EventLog
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.current_config import CurrentConfig

__all__ = ["Rest", "StreamReader", "few", "rest_of"]


def few(examples: int) -> settings:
    """So many requests of schemathesis for each operation."""
    return settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """One process's server."""

    address: Address
    events: EventLog
    current: CurrentConfig

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; a body is sent as JSON."""
        connection = http.client.HTTPConnection(self.address.host, self.address.port, timeout=60)
        given = dict(headers or {})
        sent = None
        if body is not None:
            given.setdefault("Content-Type", "application/json")
            sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, sent, given)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The JSON of an answer, which must be one."""
        answer = self.ask(path)
        assert answer.status == 200, answer
        return answer.json

    def post(self, path: str, **body: Any) -> Any:
        answer = self.ask(path, "POST", body)
        assert answer.status == 200, answer
        return answer.json


class StreamReader:
    """Reads the stream of server-sent events in a thread; `last`: the number of the last event."""

    def __init__(self, rest: Rest, last: str = "") -> None:
        self._connection = http.client.HTTPConnection(rest.address.host, rest.address.port)
        self._connection.request("GET", "/api/v1/stream", headers={"Last-Event-ID": last})
        self.answer = self._connection.getresponse()
        self.found: list[tuple[str, Any]] = []
        """Kind and data, as they came."""
        self.ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        kind = ""
        try:
            for line in self.answer:
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    self.found.append((kind, json.loads(line[6:])))
        except (OSError, ValueError, AttributeError):
            pass  # closed by the test
        self.ended = True

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.found]

    def events(self) -> list[Any]:
        """Those that came, without the flows."""
        return [one for kind, one in self.found if kind == "event"]

    def close(self) -> None:
        self._connection.close()


@contextmanager
def rest_of(
    config: MirrorConfig, file: Path, monitor: Monitor, address: Address = LOCAL
) -> Iterator[Rest]:
    """Served as `twinlog mirror` serves it."""
    events, current = EventLog(file), CurrentConfig(config)
    server = web_server(monitor, address, current, events, file)
    logging.getLogger().addHandler(events)
    server.start()
    try:
        yield Rest(address=server.address, events=events, current=current)
    finally:
        logging.getLogger().removeHandler(events)
        server.close()
