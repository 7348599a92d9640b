"""The files of the page over a real socket: what a browser is permitted to do, and missing
files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rest import Rest, rest_of
from tests.support.snapshots import flow
from twinlog.addresses import Address
from twinlog.config.load import load
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web import page

FILES = Path(page.__file__).parent / "files"
NAMES = sorted(path.name for path in FILES.iterdir())
FILE = (
    "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:1\n"
    "A->B.enabled = true\n"
)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    file, monitor = tmp_path / "mm2.properties", Monitor()
    file.write_text(FILE)
    monitor.update([flow()])
    with rest_of(load(file, environment={}), file, monitor) as rest:
        yield rest


@pytest.mark.parametrize("name", NAMES)
def test_each_file_is_served_with_headers_that_restrict_the_browser(rest: Rest, name: str) -> None:
    answer = rest.ask(f"/page/{'' if name == 'index.html' else name}")
    assert answer.status == 200
    assert answer.body == (FILES / name).read_bytes()
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"].startswith(("text/", "image/svg+xml"))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_from_elsewhere(name: str) -> None:
    text = (FILES / name).read_text()
    addresses = set(re.findall(r"https?://[^\s\"')]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}, "a name of XML, which nobody loads"
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\son\w+=", text
    )
    for imported in re.findall(r"from \"\./([\w.]+)\"", text):
        assert imported in NAMES


@pytest.mark.parametrize(
    "headers",
    [{"Accept": "text/html,*/*", "Sec-Fetch-Site": "cross-site"}, {"Accept": "*/*"}, {}],
    ids=["browser", "curl", "no-accept"],
)
def test_root_redirects_to_the_page(rest: Rest, headers: dict[str, str]) -> None:
    answer = rest.ask("/", headers=headers)
    assert (answer.status, answer.headers["location"]) == (302, "/page/")


def test_other_paths_of_the_page(rest: Rest) -> None:
    typed = rest.ask("/page")
    assert (typed.status, typed.headers["location"]) == (302, "/page/")
    assert rest.ask("/page/nothing.js").status == 404
    assert rest.ask("/page/../__init__.py").status == 404
    assert rest.ask("/page/", method="POST").status in (404, 405)
    other = rest.ask("/page/", headers={"Host": "evil.example"})
    assert other.status == 421


def test_where_rest_is_not_served_there_is_no_page(tmp_path: Path) -> None:
    file, monitor = tmp_path / "mm2.properties", Monitor()
    file.write_text(f"{FILE}twinlog.rest.monitoring.open = true\n")
    with rest_of(load(file, environment={}), file, monitor, Address("0.0.0.0", 0)) as rest:  # noqa: S104
        reached = Rest(
            address=Address("127.0.0.1", rest.address.port),
            events=rest.events,
            current=rest.current,
        )
        assert reached.ask("/page/").status == 403
