"""Pictures of terminals in the docs are self-contained: they use no external font or image."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "docs" / "pictures"
SHOWN = [f"{name}-{width}" for name in ("check", "mirror", "status") for width in (80, 120)]


@pytest.mark.parametrize("name", [*SHOWN, "demo"])
def test_nothing_is_loaded(name: str) -> None:
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    # only in attributes, because the text of a terminal may contain addresses
    attributes = re.sub(r">[^<]*<", "><", text)
    assert re.findall(r"https?://[^\"\s]+", attributes) == ["http://www.w3.org/2000/svg"]
    assert re.findall(r"@font-face|@import|url\(|href=|<image|<script", text) == []


@pytest.mark.parametrize("name", SHOWN)
def test_the_docs_show_it(name: str) -> None:
    page = FOLDER.parent / "command-line.md"
    assert f"(pictures/{name}.svg)" in page.read_text(encoding="utf-8")
