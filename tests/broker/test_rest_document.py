"""schemathesis generates requests from the OpenAPI document, for a flow with running clusters.
Every response matches the document, and none is an internal error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis

from tests.support.client import Outgoing, produce
from tests.support.rest import DOCUMENT, Rest, few, rest_of
from tests.support.topics import create_topic
from twinlog.config.load import load
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.api.endpoints import STREAM
from twinlog.sandbox import LocalCluster

pytestmark = [
    pytest.mark.broker,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

EXAMPLES = 4


@pytest.fixture(scope="module")
def served(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Rest, str]]:
    mark = f"{time.time_ns():x}"[-8:]
    topic, name = f"orders-{mark}", f"s{mark}->t"
    file = tmp_path_factory.mktemp("rest") / "mm2.properties"
    file.write_text(
        f"clusters = s{mark}, t\n"
        f"s{mark}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"t.bootstrap.servers = {target_cluster.bootstrap}\n"
        f"{name}.enabled = true\ntopics = {topic}\nreplication.factor = 1\n"
    )
    create_topic(source_cluster, topic, 2)
    produce(source_cluster, topic, [Outgoing(value=b"x", partition=one % 2) for one in range(10)])
    with rest_of(load(file, environment={}), file, Monitor()) as rest:
        yield rest, name


@pytest.fixture(scope="module")
def document(served: tuple[Rest, str]) -> Any:
    rest, name = served
    found = json.loads(DOCUMENT.read_text())
    del found["paths"][STREAM]  # this response does not end, so it cannot be tested here
    of_flow = {path: some for path, some in found["paths"].items() if "{flow}" in path}
    for operations in of_flow.values():
        for one in operations.values():
            for parameter in one["parameters"]:
                if (parameter["name"], parameter["in"]) == ("flow", "path"):
                    # with any other name, the only response would be 404
                    parameter["schema"]["enum"] = [name]
    schema = schemathesis.openapi.from_dict({**found, "paths": of_flow})
    schema.config.update(base_url=f"http://{rest.address}")
    accepted = schema.config.checks.positive_data_acceptance
    # by the document, any topic name is valid, but the response to a pattern that matches no topic
    # is 400
    accepted.expected_statuses = [*accepted.expected_statuses, "400"]
    # a list that is too long may make the body too long, which is refused first
    rejected = schema.config.checks.negative_data_rejection
    rejected.expected_statuses = [*rejected.expected_statuses, "413"]
    return schema


schema = schemathesis.pytest.from_fixture("document")


@schema.parametrize()
@few(EXAMPLES)
def test_every_handler_answers_as_the_document_says(case: Any) -> None:
    case.call_and_validate()
