"""The documentation site can be built without a warning. For example, a broken link causes one."""

from __future__ import annotations

import re
from pathlib import Path

from tools.site import navigation, pages

SECTIONS = ["Mirror", "Move clients", "DataFrames", "Reference", "Internals", "About"]


def test_the_pages_are_read_without_a_warning(tmp_path: Path) -> None:
    source = tmp_path / "source"
    pages.stage(source)
    done = pages.sphinx("dummy", source, tmp_path / "out")
    assert (done.stderr, done.returncode) == ("", 0)
    text = navigation.toctrees("README", source)
    assert re.findall(r":caption: (.+)", text) == SECTIONS
    assert "### offsets translate" in (source / "reference" / "commands.md").read_text()
    assert "MirrorClient.replication_hops" in (source / "reference" / "python.md").read_text()


def test_broken_links_are_errors_and_the_site_loads_nothing(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    (source / "docs").mkdir(parents=True)
    (source / "README.md").write_text("# A\n\n[b](docs/b.md#b) [c](docs/b.md#c), [d](docs/d.md)\n")
    (source / "docs" / "README.md").write_text("# Pages\n\n## Mirror\n\n| [b](b.md) | |\n")
    (source / "docs" / "b.md").write_text("# B\n")
    done = pages.build(source, site)
    assert done.returncode == 1
    broken = re.findall(r"README\.md:3: WARNING: .*'(.*)' \[myst\.xref_missing\]", done.stderr)
    assert broken == ["c", "docs/d.md"]
    text = (site / "README.html").read_text()
    assert 'href="docs/b.html#b"' in text
    assert re.findall(r'<(?:link|script|img)[^>]*(?:href|src)="(https?:[^"]*)"', text) == []
