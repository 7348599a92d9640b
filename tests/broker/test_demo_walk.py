"""The walk of `docs/control-plane.md`, command by command, on one page in a real Chromium; with
mirrors that need no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import CHROMIUM, IS_NEEDED, Browser, Page
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.mirror_process import Driver
from tests.support.monitor import LOCAL

pytestmark = [
    pytest.mark.broker,
    pytest.mark.long,
    pytest.mark.skipif(
        CHROMIUM is None and not IS_NEEDED, reason="no Chromium here: scripts/browser installs it"
    ),
    pytest.mark.xdist_group("browser"),
]

LOST = re.compile(r"([\d,]+) records? (?:of .* )?would be lost")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path / "chromium") as browser:
        yield browser


def would_be_lost(page: Page) -> int:
    """The figure in the first sentence."""
    found = LOST.search(page.text("#verdict"))
    return int(found[1].replace(",", "")) if found else 0


def test_a_newcomer_pauses_and_resumes_a_flow_and_sees_the_standby_take_over(
    tmp_path: Path, browser: Browser
) -> None:
    with Command(tmp_path / "demo", "demo", "--no-mirror", "--rate", "200") as demo:
        eventually(lambda: "twinlog mirror " in demo.stdout)
        found = re.search(r"^twinlog mirror (\S+)$", demo.stdout, re.MULTILINE)
        assert found is not None
        config = Path(found[1])
        with Driver(config, listen=LOCAL) as first:
            address = first.served()
            page = browser.open(f"http://{address}/page/")
            page.shows("Yes: the flow copies", "#verdict")
            pause = ("flow", "pause", str(config), "--reason", "brokers are upgraded")
            with Command(tmp_path / "pause", *pause) as command:
                assert command.wait() == 0, command.stderr
            page.shows("PAUSED", "#verdict")
            page.shows("brokers are upgraded")
            before = eventually(lambda: would_be_lost(page))
            eventually(lambda: would_be_lost(page) > before, what="what would be lost grows")
            with Command(tmp_path / "resume", "flow", "resume", str(config)) as command:
                assert command.wait() == 0, command.stderr
            page.shows("Yes: the flow copies", "#verdict")
            with Driver(config, listen=address) as second:
                second.until("STANDBY")
                page.go(f"http://{address}/page/#/flow/eu-%3Eus")
                page.shows("generation 0")
                page.run("window.isTheSamePage = true")
                first.kill()
                assert second.served() == address
                page.shows("generation 1")
                page.shows("RUNNING", "h1")
                assert page.run("window.isTheSamePage")
                demo.terminate()
                assert demo.wait() == 0
    assert demo.stdout.splitlines()[-1] == "source and target are identical"
