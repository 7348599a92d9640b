"""REST of a process, asked over a real socket."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from tests.support.monitor import LOCAL, Told
from twinlog.addresses import Address
from twinlog.cli.terminal.monitoring import Sources, web_server
from twinlog.config.flow.schema import MirrorConfig
from twinlog.control.watch.events import EventLog
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.current_config import CurrentConfig

__all__ = ["Rest", "few", "rest_of"]


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
    ) -> Told:
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
            return Told(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The JSON of an answer, which must be one."""
        told = self.ask(path)
        assert told.status == 200, told
        return told.json

    def post(self, path: str, **body: Any) -> Any:
        told = self.ask(path, "POST", body)
        assert told.status == 200, told
        return told.json


@contextmanager
def rest_of(
    config: MirrorConfig, file: Path, monitor: Monitor, address: Address = LOCAL
) -> Iterator[Rest]:
    """Served as `twinlog mirror` serves it."""
    events, current = EventLog(file), CurrentConfig(config)
    server = web_server(monitor, address, current, Sources(events=events, file=file))
    logging.getLogger().addHandler(events)
    server.start()
    try:
        yield Rest(address=server.address, events=events, current=current)
    finally:
        logging.getLogger().removeHandler(events)
        server.close()
