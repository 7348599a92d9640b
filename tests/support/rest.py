"""REST of a process, over a real socket. Every response is compared with docs/openapi.json."""

from __future__ import annotations

import http.client
import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
from hypothesis import HealthCheck, Phase, settings

from tests.support.monitor import LOCAL, Answer
from twinlog.addresses import Address
from twinlog.cli.terminal.monitoring import web_server
from twinlog.config.flow.schema import MirrorConfig
from twinlog.control.watch.events import EventLog
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.current_config import CurrentConfig

__all__ = ["DOCUMENT", "Rest", "StreamReader", "few", "problems_of", "rest_of"]

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "openapi.json"


@cache
def document() -> Any:
    return json.loads(DOCUMENT.read_text(encoding="utf-8"))


@cache
def validator(reference: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for({"$ref": reference, "components": document()["components"]})


def problems_of(path: str, method: str, answer: Answer) -> list[str]:
    """Return how a response differs from the OpenAPI document. A path that is not in the document
    is a difference, too.
    """
    plain = path.partition("?")[0]
    known: dict[str, Any] = {}
    if answer.status == 304 or plain == "/api/v1/openapi.json":
        return []
    for template, operations in document()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), plain):
            known = operations.get({"HEAD": "get"}.get(method, method.lower()), {})
    if not known and answer.status < 400:
        return [f"{method} {path} is not in the document"]
    kind = answer.headers.get_content_type()
    responses = known.get("responses", document()["paths"]["/api/v1/flows"]["get"]["responses"])
    content = responses.get(str(answer.status), responses["default"])["content"]
    if kind not in content:
        return [f"{answer.status} with {kind}"]
    if method == "HEAD" or "$ref" not in content[kind]["schema"]:
        return []
    found = validator(content[kind]["schema"]["$ref"]).iter_errors(answer.json)
    return [f"{one.instance_path}: {one.message}" for one in found]


def few(examples: int) -> settings:
    """Return settings with which schemathesis sends this many requests to each operation."""
    return settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The REST server of a process, as a client sees it."""

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
        """Send one request, with `body` as JSON, and return the response."""
        connection = http.client.HTTPConnection(self.address.host, self.address.port, timeout=60)
        given = dict(headers or {})
        sent = None
        if body is not None:
            given.setdefault("Content-Type", "application/json")
            sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, sent, given)
            found = connection.getresponse()
            answer = Answer(found.status, found.headers, found.read())
        finally:
            connection.close()
        if path.startswith("/api/v1/") and not answer.headers["Content-Encoding"]:
            assert problems_of(path, method, answer) == []
        return answer

    def get(self, path: str) -> Any:
        """Return the JSON of a successful response."""
        answer = self.ask(path)
        assert answer.status == 200, answer
        return answer.json

    def put(self, path: str, **body: Any) -> Any:
        answer = self.ask(path, "PUT", body)
        assert answer.status == 200, answer
        return answer.json

    def post(self, path: str, **body: Any) -> Any:
        answer = self.ask(path, "POST", body)
        assert answer.status == 200, answer
        return answer.json


class StreamReader:
    """Reads the stream of server-sent events in a thread. `last`: the ID of the last event that the
    client has received before.
    """

    def __init__(self, rest: Rest, last: str = "") -> None:
        self._connection = http.client.HTTPConnection(rest.address.host, rest.address.port)
        self._connection.request("GET", "/api/v1/stream", headers={"Last-Event-ID": last})
        self.answer = self._connection.getresponse()
        self.found: list[tuple[str, Any]] = []
        """Kind and data of each event, in order of arrival."""
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
            pass  # the test has closed the connection
        self.ended = True

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.found]

    def events(self) -> list[Any]:
        """Return the data of the events that have arrived, except those of the kind `flows`."""
        return [one for kind, one in self.found if kind == "event"]

    def close(self) -> None:
        self._connection.close()


@contextmanager
def rest_of(
    config: MirrorConfig, file: Path, monitor: Monitor, address: Address = LOCAL
) -> Iterator[Rest]:
    """Serve REST as `twinlog mirror` does, until the block ends."""
    events, current = EventLog(file), CurrentConfig(config)
    server = web_server(monitor, address, current, events, file)
    logging.getLogger().addHandler(events)
    server.start()
    try:
        yield Rest(address=server.address, events=events, current=current)
    finally:
        logging.getLogger().removeHandler(events)
        server.close()
