"""Takes the screenshots of the page for the docs. A demo is started, steered as in
`docs/control-plane.md`, and shown in a real Chromium.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.support.browser import Browser, Page
from tests.support.command import Command
from tests.support.eventually import eventually

__all__: list[str] = []

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
FLOW: Final = "/api/v1/flows/eu-%3Eus"


def asked(address: str, path: str, method: str = "GET", **body: object) -> Any:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def main() -> None:
    """Write all pictures, replacing existing ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Browser(folder / "chromium") as browser:
            with Command(folder / "demo", "demo") as demo:
                _of_the_demo(demo, browser)
            with Command(folder / "other", "demo", "--no-mirror") as demo:
                _of_a_takeover(demo, folder, browser)


def _of_the_demo(demo: Command, browser: Browser) -> None:
    address = _address(demo, "/page/")
    eventually(lambda: asked(address, FLOW)["state"] == "RUNNING")
    page, dark, small = (
        browser.open(f"http://{address}/page/", wide=wide, high=high, dark=is_dark)
        for wide, high, is_dark in ((1400, 700, False), (1400, 700, True), (360, 800, False))
    )
    for each in (page, dark, small):
        each.shows("Yes: ", "#verdict")
    # the chart's line must have several points
    turns = "document.querySelector('svg.spark path')?.attributes.d.value.split('L').length"
    eventually(lambda: (page.run(turns) or 0) > 8)
    eventually(lambda: " equal" in page.text())
    page.picture(FOLDER / "page-light.png")
    dark.picture(FOLDER / "page-dark.png")
    small.picture(FOLDER / "page-360.png")
    asked(address, f"{FLOW}/pause", "POST", reason="brokers are upgraded")
    eventually(lambda: asked(address, FLOW)["loss"]["records"] > 5000)
    page.shows("PAUSED", "#verdict")
    page.picture(FOLDER / "page-paused.png")
    asked(address, f"{FLOW}/resume", "POST", reason="done")
    eventually(lambda: asked(address, FLOW)["state"] == "RUNNING")
    page.shows("Yes: the flow is copying; nothing would be lost", "#verdict")
    page.picture(FOLDER / "page-resumed.png")
    _end(demo)


def _of_a_takeover(demo: Command, folder: Path, browser: Browser) -> None:
    eventually(lambda: "twinlog mirror " in demo.stdout)
    found = re.search(r"^twinlog mirror (\S+)$", demo.stdout, re.MULTILINE)
    assert found is not None
    with Command(folder / "1", "mirror", found[1], "--listen", "127.0.0.1:0") as first:
        address = _address(first, " serves")
        eventually(lambda: asked(address, FLOW)["state"] == "RUNNING")
        page = browser.open(f"http://{address}/page/#/flow/eu-%3Eus", wide=1400, high=700)
        page.shows("RUNNING")
        with Command(folder / "2", "mirror", found[1], "--listen", address) as second:
            eventually(lambda: "standing by" in second.stderr)
            page.shows("generation 0")
            _have_caught_up(page)
            page.picture(FOLDER / "page-leading.png")
            os.killpg(first.pid, signal.SIGKILL)
            page.shows("generation 1")
            page.shows("RUNNING", "h1")
            eventually(lambda: " equal" in page.text())
            _have_caught_up(page)
            page.picture(FOLDER / "page-taken-over.png")
            _end(demo)


def _have_caught_up(page: Page) -> None:
    """Wait until the latency of the last minute no longer includes records of a backlog."""
    eventually(lambda: re.search(r"p99 [\d.]+ ms over", page.text()))


def _address(command: Command, behind: str) -> str:
    eventually(lambda: behind in command.stdout)
    found = re.search(r"http://(\S+?)" + behind, command.stdout)
    assert found is not None
    return found[1]


def _end(demo: Command) -> None:
    demo.terminate()
    demo.wait()


if __name__ == "__main__":
    main()
