"""The site's navigation: the sections and tables of docs/README.md, then all other pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

REFERENCE: Final = ("reference/commands", "reference/python")
"""Pages that `tools.site.reference` generates."""
ABOUT: Final = ("CONTRIBUTING", "SECURITY", "CHANGELOG", "tests/support/README")
OWN_TREE: Final = ("docs/recipes/README", "docs/adr/README")
"""Pages below which the navigation shows all pages of their folder."""

_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_ROW: Final = re.compile(r"^\| \[([^]]+)\]\(([^)]+)\.md\)", re.MULTILINE)


def toctrees(name: str, source: Path) -> str:
    """Return the navigation directives to append to the page `name`, or an empty text."""
    if name == "README":
        return "".join(_tree(caption, pages) for caption, pages in _sections(source))
    return _tree("", ["[!R]*"]) if name in OWN_TREE else ""


def _sections(source: Path) -> Iterator[tuple[str, list[str]]]:
    yield "", ["docs/README"]
    shown = {"README"}
    _, *parts = _SECTION.split((source / "docs" / "README.md").read_text())
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        rows = _ROW.findall(text)
        shown.update(page for _, page in rows)
        more = REFERENCE if title == "Reference" else ()
        yield title, [*(f"{name} <docs/{page}>" for name, page in rows), *more]
    others = sorted({page.stem for page in (source / "docs").glob("*.md")} - shown)
    yield "About", [*ABOUT, *(f"docs/{page}" for page in others)]


def _tree(caption: str, pages: list[str]) -> str:
    heading = f":caption: {caption}\n" if caption else ""
    return f"\n\n```{{toctree}}\n:hidden:\n:glob:\n{heading}\n" + "\n".join(pages) + "\n```\n"
