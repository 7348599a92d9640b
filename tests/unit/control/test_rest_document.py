"""The OpenAPI document, and requests that schemathesis makes from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from tests.support.rest import Rest, few, rest_of
from tests.support.snapshots import flow, partition
from tools.pages import rest as rest_page
from twinlog.client import steering
from twinlog.config.load import load
from twinlog.control.check import both_logs
from twinlog.control.cutover import scope
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.api import leaders, openapi
from twinlog.control.web.api.endpoints import ENDPOINTS

EXAMPLES = 2


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
        patch.setattr(scope, "SOURCE_ANSWERS_WITHIN_S", 0.1)
        with rest_of(load(file, environment={}), file, monitor) as rest:
            yield rest


@pytest.fixture(scope="module")
def document(served: Rest) -> Any:
    found = openapi.document()
    del found["paths"][openapi.STREAM]  # it has no end
    schema = schemathesis.openapi.from_dict(found)
    schema.config.update(base_url=f"http://{served.address}")
    refused = schema.config.checks.negative_data_rejection
    refused.expected_statuses = [*refused.expected_statuses, "413"]  # too large, before it is read
    return schema


schema = schemathesis.pytest.from_fixture("document")


@schema.parametrize()
@few(EXAMPLES)
def test_every_answer_is_as_the_document_says(case: Any) -> None:
    case.call_and_validate()


def test_the_document_is_served_as_it_is_made(served: Rest) -> None:
    found = served.get(openapi.PATH)
    assert found == openapi.document()
    assert found["openapi"] == "3.1.0"
    operations = {(path, method) for path, some in found["paths"].items() for method in some}
    assert operations == {(one.path, one.method.lower()) for one in ENDPOINTS} | {
        (openapi.STREAM, "get")
    }
    ids = [one["operationId"] for some in found["paths"].values() for one in some.values()]
    assert len(ids) == len(set(ids))


def test_the_docs_name_every_path_and_what_it_takes() -> None:
    text = (Path(__file__).parents[3] / "docs" / "rest.md").read_text()
    assert rest_page.with_table(text) == text, "run: python -m tools.pages"
    (pause,) = (line for line in rest_page.table().splitlines() if "{flow}/topics/pause" in line)
    assert "`reason`, `dryRun`, `topics`" in pause
