"""The walk of `docs/control-plane.md`, command by command, in a real Chromium on the page of
`twinlog demo`.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.browser import CHROMIUM, IS_NEEDED, Browser, Page
from tests.support.command import Command
from tests.support.eventually import eventually

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(
        CHROMIUM is None and not IS_NEEDED, reason="no Chromium here: scripts/browser installs it"
    ),
    pytest.mark.xdist_group("spark"),
]

LOST = re.compile(r"([\d,]+) records? (?:of .* )?would be lost")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path / "chromium") as browser:
        yield browser


def would_be_lost(page: Page) -> int:
    """Return the number of records that would be lost, from the page's first sentence."""
    found = LOST.search(page.text("#verdict"))
    return int(found[1].replace(",", "")) if found else 0


def printed(demo: Command, command: str) -> list[str]:
    """Return the arguments of the given command as the demo prints it."""
    pattern = re.compile(f"^twinlog ({command} .*)$", re.MULTILINE)
    eventually(lambda: pattern.search(demo.stdout), what=f"twinlog {command}")
    found = pattern.search(demo.stdout)
    assert found is not None
    return found[1].split()


def mirror_of(demo: Command) -> psutil.Process:
    """Return the process that leads the flow."""
    (found,) = (
        one
        for one in psutil.Process(demo.pid).children()
        if "multiprocessing.spawn" in " ".join(one.cmdline())
    )
    return found


def test_a_newcomer_pauses_and_resumes_a_flow_and_sees_the_standby_take_over(
    tmp_path: Path, browser: Browser
) -> None:
    with Command(tmp_path / "demo", "demo", "--rate", "200") as demo:
        pause = [*printed(demo, "flow pause"), "--reason", "brokers are upgraded"]
        found = re.search(r"^(http://\S+) shows the state of all flows$", demo.stdout, re.MULTILINE)
        assert found is not None
        page = browser.open(found[1])
        page.shows("Yes: the flow is copying", "#verdict")
        page.run("window.isTheSamePage = true")
        with Command(tmp_path / "pause", *pause) as command:
            assert command.wait() == 0, command.stderr
        page.shows("PAUSED", "#verdict")
        page.shows("brokers are upgraded")
        before = eventually(lambda: would_be_lost(page))
        eventually(lambda: would_be_lost(page) > before, what="what would be lost grows")
        with Command(tmp_path / "resume", "flow", "resume", pause[2]) as command:
            assert command.wait() == 0, command.stderr
        page.shows("Yes: the flow is copying", "#verdict")
        with Command(tmp_path / "standby", *printed(demo, "mirror")) as standby:
            eventually(lambda: "CANNOT_LISTEN" in standby.stderr)
            eventually(lambda: "STANDBY" in standby.stdout + standby.stderr)
            page.run("location.hash = '#/flow/eu-%3Eus'")
            page.shows("generation 0")
            mirror_of(demo).kill()
            page.shows("generation 1")
            page.shows("RUNNING", "h1")
            assert page.run("window.isTheSamePage")
            assert "the demo's mirror was killed" in demo.stdout
            os.killpg(demo.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
            assert demo.wait() == 0, demo.stderr
            standby.terminate()
            standby.wait()
    assert demo.stdout.splitlines()[-1] == "source and target are identical"
