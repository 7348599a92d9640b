"""Drives a real Chromium over its debugging pipe (Chrome DevTools Protocol), without a port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final, Self

import pytest

from tests.support.eventually import PATIENCE_S, eventually

__all__ = ["CHROMIUM", "IS_NEEDED", "Browser", "Page", "axe_script"]

ROOT: Final = Path(__file__).resolve().parents[2]
IS_NEEDED: Final = os.environ.get("TWINLOG_BROWSER") == "needed"
"""True if a missing browser fails tests instead of skipping them. Continuous integration sets this,
because a skipped test would be overlooked there.
"""

CHROMIUM: Final = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS: Final = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--disable-component-update", "--disable-dev-shm-usage"),
)


KEYS: Final = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), " ": (32, " ")}
"""Code and text of each special key. The text of a letter is the letter."""


def axe_script() -> Path:
    """Return the path of axe-core. If it is missing, skip the test, or fail it if a browser is
    needed.
    """
    ended = subprocess.run([ROOT / "scripts" / "axe"], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        (pytest.fail if IS_NEEDED else pytest.skip)(ended.stderr.strip())
    return Path(ended.stdout.strip())


class Browser:
    """A browser process. It leaves no processes or files behind."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        to_browser, write = os.pipe()
        read, from_browser = os.pipe()
        self._write, self._read = write, read
        words = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        # the browser reads commands from descriptor 3 and writes to descriptor 4
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "chromium", *words],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._tabs: list[str] = []
        self.errors: list[str] = []
        """Errors that pages have written to the console or raised."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def open(self, address: str, *, wide: int = 1200, high: int = 900, dark: bool = False) -> Page:
        """Open a page in a new tab. `wide` and `high`: its size in CSS pixels."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._tabs.append(target)
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=wide,
            height=high,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.go(address)
        return page

    def close_tabs(self) -> None:
        """Close all tabs that were opened, because their pages would continue to poll."""
        while self._tabs:
            self.call("Target.closeTarget", targetId=self._tabs.pop())

    def call(self, method: str, *, session: str | None = None, **params: Any) -> Any:
        """Return the result of a command. Of the events that arrive before it, only errors are
        stored.
        """
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return found["result"]
            self._note(found)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:1000])
        if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found


class Page:
    """A page in a tab of the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, session=self._session, **params)

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression. If the value is a promise, wait for it."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def text(self, selector: str = "main") -> str:
        """Return the visible text of an element, or an empty text if it does not exist."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText || ''"))

    def shows(self, text: str, selector: str = "main") -> None:
        """Wait until the element shows this text."""
        eventually(lambda: text in self.text(selector), what=f"{text!r}")

    def click(self, text: str, selector: str = "button, a, summary") -> None:
        """Click the first enabled element whose text is exactly this one, after waiting for it."""
        found = (
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            f".find((one) => one.innerText.trim() === {json.dumps(text)} && !one.disabled)"
        )
        eventually(lambda: self.run(f"!!{found}"), what=f"something to click: {text!r}")
        self.run(f"{found}.click()")

    def press(self, key: str) -> None:
        """Press a key: a single character, or one of `KEYS`."""
        code, text = KEYS.get(key, (0, key))
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                text=text if kind == "keyDown" else "",
                windowsVirtualKeyCode=code,
            )

    def picture(self, path: Path) -> None:
        """Write a screenshot of the page to `path`, after all animations have ended."""
        eventually(lambda: not self.run("document.getAnimations().length"))
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
