"""Content that a client already has is not sent again. Long responses are compressed if the client
requests it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.rest import Rest, rest_of
from tests.support.snapshots import flow, partition
from twinlog.config.load import load
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.api import app, leaders
from twinlog.control.web.content import LEAST_ZIPPED

A_B = "/api/v1/flows/A-%3EB"
ZIPPED = {"Accept-Encoding": "br, gzip"}
SAME = [
    *("/api/v1/codes", "/api/v1/clusters", "/api/v1/openapi.json", f"{A_B}/history"),
    *("/page/", "/page/page.js", "/page/icon.svg"),
]


@pytest.fixture
def monitor() -> Monitor:
    monitor = Monitor()
    monitor.update([flow(*(partition(number=number, lag=7) for number in range(100)))])
    return monitor


@pytest.fixture
def rest(monitor: Monitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rest]:
    monkeypatch.setattr(leaders, "GIVES_UP_S", 0.5)
    monkeypatch.setattr(leaders, "WAITED_S", 0.05)
    monkeypatch.setattr(leaders, "RETRY_INTERVAL_S", 60.0)
    file = tmp_path / "mm2.properties"
    servers = "".join(f"{one}.bootstrap.servers = 127.0.0.1:1\n" for one in "AB")
    file.write_text(f"clusters = A, B\n{servers}A->B.enabled = true\n")
    with rest_of(load(file, environment={}), file, monitor) as rest:
        yield rest


@pytest.mark.parametrize("path", SAME)
def test_unchanged_content_is_not_sent_again(rest: Rest, path: str) -> None:
    first = rest.ask(path)
    tag = first.headers["ETag"]
    assert first.headers["Cache-Control"] == "private, no-cache"
    for known in (tag, f'"other", {tag}', "*", tag.removeprefix("W/")):
        again = rest.ask(path, headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
    assert rest.ask(path, headers={"If-None-Match": 'W/"other"'}).body == first.body
    head = rest.ask(path, "HEAD")
    assert (head.status, head.headers["ETag"], head.body) == (200, tag, b"")


def test_flows_are_sent_again_when_a_number_has_changed(
    rest: Rest, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "KEPT_S", 60.0)
    eventually(lambda: "could not be queried" in rest.get(A_B)["problem"])
    for path in ("/api/v1/flows", A_B):
        for _ in range(3):  # created, cached, and recognized by its bytes
            tag = rest.ask(path).headers["ETag"]
        known = {"If-None-Match": tag}
        for _ in range(3):
            assert rest.ask(path, headers=known).status == 304
        monitor.update([flow(partition(lag=8))])
        assert rest.ask(path, headers=known).status == 200
        monitor.update([flow(partition(lag=7))])


@pytest.mark.parametrize(
    "path", ["/api/v1/flows", "/api/v1/codes", f"{A_B}/partitions", "/page/page.js"]
)
def test_a_long_answer_is_compressed_for_a_client_that_accepts_it(
    rest: Rest, monitor: Monitor, path: str
) -> None:
    parts = [partition(number=number, lag=7) for number in range(100)]
    monitor.update([flow(*parts, reason="x" * LEAST_ZIPPED)])
    for _ in range(4):  # also when the response is cached, and when it is recognized by its bytes
        plain, zipped = rest.ask(path), rest.ask(path, headers=ZIPPED)
        assert plain.headers["Content-Encoding"] is None
        assert zipped.headers["Content-Encoding"] == "gzip"
        assert zipped.headers["Vary"] == plain.headers["Vary"] == "accept-encoding"
        assert len(zipped.body) < len(plain.body) / 2
        text = gzip.decompress(zipped.body)
        if path.startswith("/api"):
            assert json.loads(text).keys() == plain.json.keys()
        else:
            assert text == plain.body
    refused = rest.ask(path, headers={"Accept-Encoding": "gzip;q=0"})
    assert refused.headers["Content-Encoding"] is None


def test_a_short_answer_and_an_error_are_not_compressed(rest: Rest) -> None:
    for path, status in (("/api/v1/clusters", 200), ("/api/v1/nothing", 404)):
        answer = rest.ask(path, headers=ZIPPED)
        assert (answer.status, answer.headers["Content-Encoding"]) == (status, None)


def test_errors_are_not_stored_and_have_no_tag(rest: Rest) -> None:
    answer = rest.ask("/api/v1/nothing", headers={"If-None-Match": "*"})
    assert (answer.status, answer.headers["ETag"]) == (404, None)
    assert answer.headers["Cache-Control"] == "no-store"
