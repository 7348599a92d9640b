"""The OpenAPI document, and requests that schemathesis generates from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from tests.support.rest import Rest, few, rest_of
from tests.support.snapshots import flow, partition
from tools.pages import openapi
from tools.pages import rest as rest_page
from twinlog.client import steering
from twinlog.config.load import load
from twinlog.control.check import both_logs
from twinlog.control.cutover import scope
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.api import leaders
from twinlog.control.web.api.endpoints import DOCUMENT, ENDPOINTS, STREAM

EXAMPLES = 2
DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    file = tmp_path_factory.mktemp("rest") / "mm2.properties"
    servers = "".join(f"{one}.bootstrap.servers = 127.0.0.1:1\n" for one in "AB")
    file.write_text(f"clusters = A, B\n{servers}A->B.enabled = true\n")
    monitor = Monitor()
    monitor.update([flow(partition())])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steering, "GIVES_UP_S", 0.1)
        patch.setattr(leaders, "WAITED_S", 0.05)
        patch.setattr(scope, "GIVES_UP_S", 0.1)
        patch.setattr(both_logs, "GIVES_UP_S", 0.1)
        patch.setattr(scope, "SOURCE_TIMEOUT_S", 0.1)
        with rest_of(load(file, environment={}), file, monitor) as rest:
            yield rest


@pytest.fixture(scope="module")
def document(served: Rest) -> Any:
    found = json.loads((DOCS / openapi.FILE).read_text())
    del found["paths"][STREAM]  # this response does not end, so it cannot be tested here
    schema = schemathesis.openapi.from_dict(found)
    schema.config.update(base_url=f"http://{served.address}")
    refused = schema.config.checks.negative_data_rejection
    # 413 is a valid rejection, too: a request that is too large is rejected before it is read
    refused.expected_statuses = [*refused.expected_statuses, "413"]
    return schema


schema = schemathesis.pytest.from_fixture("document")


@schema.parametrize()
@few(EXAMPLES)
def test_every_answer_is_as_the_document_says(case: Any) -> None:
    case.call_and_validate()


def test_the_document_is_a_file_in_the_docs_and_in_the_wheel(served: Rest) -> None:
    text = openapi.render()
    assert (DOCS / openapi.FILE).read_text() == text, "run: python -m tools.pages"
    packaged = files("twinlog.control.web.api").joinpath(openapi.FILE).read_text(encoding="utf-8")
    assert packaged == text, "run: python -m tools.pages"
    found = served.get(DOCUMENT)
    assert found == json.loads(text)
    assert found["openapi"] == "3.1.0"
    operations = {(path, method) for path, some in found["paths"].items() for method in some}
    assert operations == {(one.path, one.method.lower()) for one in ENDPOINTS} | {(STREAM, "get")}
    ids = [one["operationId"] for some in found["paths"].values() for one in some.values()]
    assert len(ids) == len(set(ids))


def properties() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, schema in openapi.document()["components"]["schemas"].items():
        for key, value in schema.get("properties", {}).items():
            yield f"{name}.{key}", value


def test_every_field_is_explained_and_has_a_name_in_camel_case() -> None:
    silent = [name for name, value in properties() if not value.get("description")]
    assert silent == []
    odd = [name for name, _ in properties() if not re.fullmatch(r"\w+\.[a-z][a-zA-Z0-9]*", name)]
    assert odd == []


def test_answers_may_get_more_fields_and_have_no_part_without_a_type() -> None:
    schemas = openapi.document()["components"]["schemas"]
    closed = {name for name, one in schemas.items() if one.get("additionalProperties") is False}
    assert closed == {one.body.__name__ for one in ENDPOINTS if one.body is not None}
    bare = [
        name for name, value in properties() if '"additionalProperties": true' in json.dumps(value)
    ]
    assert bare == []


def test_the_docs_name_every_path_and_its_parameters() -> None:
    text = (DOCS / "rest.md").read_text()
    assert rest_page.with_table(text) == text, "run: python -m tools.pages"
    (pause,) = (line for line in rest_page.table().splitlines() if "{flow}/topics/pause" in line)
    assert "`reason`, `dryRun`, `topics`" in pause
