"""A browser, and a server with two flows whose clusters are unreachable. Tests set the numbers that
the page shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import CHROMIUM, IS_NEEDED, Browser
from tests.support.rest import Rest, rest_of
from tests.support.snapshots import flow, partition
from twinlog.client import steering
from twinlog.config.load import load
from twinlog.control.check import both_logs, offline_status
from twinlog.control.cutover import scope
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.api import leaders

FILE = (
    "clusters = A, B, C\n"
    "A.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
    "C.bootstrap.servers = 127.0.0.1:3\n"
    "A->B.enabled = true\nC->B.enabled = true\ntopics = orders.*\n"
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time limits, so that unreachable clusters are given up almost immediately."""
    for module in (steering, leaders, both_logs, offline_status, scope):
        monkeypatch.setattr(module, "GIVES_UP_S", 0.3)
    monkeypatch.setattr(scope, "SOURCE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(leaders, "WAITED_S", 0.05)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None and not IS_NEEDED:
        pytest.skip("no Chromium here: scripts/browser installs it")
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    yield chromium
    chromium.close_tabs()


@pytest.fixture
def monitor() -> Monitor:
    monitor = Monitor()
    good = [partition("orders", number, lag=0, records=100) for number in range(300)]
    monitor.update(
        [flow(*good, loss_records=0, loss_ms=0), flow(flow="C->B", loss_records=0, loss_ms=0)]
    )
    return monitor


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    return file


@pytest.fixture
def rest(monitor: Monitor, file: Path) -> Iterator[Rest]:
    with rest_of(load(file, environment={}), file, monitor) as rest:
        yield rest
