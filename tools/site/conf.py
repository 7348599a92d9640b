"""Sphinx's configuration. `tools.site.pages` passes this folder to Sphinx with -c."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tools.site import navigation
from twinlog import __version__

project: Final = "Twinlog"
version: Final = __version__
extensions: Final = ["myst_parser"]
root_doc: Final = "README"
smartquotes: Final = False
highlight_language: Final = "text"
suppress_warnings: Final = [
    "misc.highlighting_failure",  # shortened examples are not valid JSON
    "myst.header",  # towncrier generates the changelog's headings
]

myst_heading_anchors: Final = 6  # anchors as on a code host

html_theme: Final = "furo"
html_title: Final = f"Twinlog {version}"
html_copy_source: Final = False
html_show_sphinx: Final = False
html_show_copyright: Final = False
html_use_index: Final = False


def setup(app: Any) -> None:
    """Make Sphinx append the navigation to each page that it reads."""

    def extend(_app: Any, name: str, text: list[str]) -> None:
        text[0] += navigation.toctrees(name, Path(app.srcdir))

    app.connect("source-read", extend)
