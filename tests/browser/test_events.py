"""The events screen includes the events of a flow that another process leads."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from tests.support.browser import Browser
from tests.support.rest import rest_of
from tests.support.snapshots import DIVERGED, HAPPENED
from twinlog.config.load import load
from twinlog.control.check.reported_status import ReportedFlow
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.api import leaders
from twinlog.mirror.state.published import PublishedEvent

pytestmark = pytest.mark.xdist_group("browser")

FAILED = structs.replace(
    DIVERGED, message="A->B: orders-3: <b>too large</b> [RECORD_TOO_LARGE]", code="RECORD_TOO_LARGE"
)
PAUSED = PublishedEvent(
    number=8,
    at_ms=1_800_000_001_000,
    level="INFO",
    message="A->B: pay is paused",
    code="",
    topic="pay",
    partition=None,
    person="ann@east-2",
)


def test_an_event_of_another_process_has_topic_code_and_author(
    monitor: Monitor, file: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = structs.replace(HAPPENED, events=(FAILED, PAUSED))
    reports = {"A->B": ReportedFlow(status=None, intents=None, events=(published,))}
    monkeypatch.setattr(leaders, "reports_of", lambda *_: reports)
    with rest_of(load(file, environment={}), file, monitor) as rest:
        page = browser.open(f"http://{rest.address}/page/#/events", wide=360)
        for text in ("orders-3", "RECORD_TOO_LARGE", "<b>too large</b>", "east-1 (process 77)"):
            page.shows(text, "main table")
        page.shows("ann@east-2, east-1 (process 77)", "main table")
        assert page.text("main table").count("RECORD_TOO_LARGE") == 1, "with what it means"
        assert page.run("document.documentElement.scrollWidth") == 360
        for word, count in (("orders-3", 1), ("ANN@EAST", 1), ("process 77", 2)):
            page.run(
                f"document.querySelector('input').value = '{word}',"
                "document.querySelector('input').dispatchEvent(new Event('input'))"
            )
            page.shows(f"{count} event")
            assert page.run("document.querySelectorAll('main tbody tr').length") == count
        page = browser.open(f"http://{rest.address}/page/#/events?contains=orders-3")
        page.shows("1 event,")
