"""The web page at `/page/`: static files without a build step, libraries or external resources. The
page is a client of `/api/v1`, which authenticates it like any other client. The files contain no
data of a flow, so they need no token.

This module has the files by path, and the headers by which a browser only accesses these files and
`/api/v1`. Begin to read with `files/page.js`; `view.js` creates elements and formats numbers; each
screen has its own file.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from twinlog.control.web.content import Content

ROOT: Final = "/page/"
FIRST: Final = "index.html"
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS: Final = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
"""Headers of all files. They forbid inline scripts, foreign addresses and frames (CSP Level 3)."""


@cache
def _files() -> dict[str, Content]:
    """Return the files by path; `/page/` is `index.html`."""
    contents = {}
    for file in files("twinlog.control.web.page").joinpath("files").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = f"{ROOT}{'' if file.name == FIRST else file.name}"
            contents[path] = Content(kind, file.read_bytes(), HEADERS)
    return contents


def asset(path: str) -> Content | None:
    """Return the file at a path of the page, or None if there is no such file."""
    return _files().get(path)
