"""Writes all generated pages: python -m tools.pages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.pages import codes, configuration, hazards, man, openapi, rest, strimzi

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"

for module in (codes, configuration, strimzi):
    (DOCS / f"{module.__name__.rpartition('.')[2]}.md").write_text(module.render())
(DOCS / "rest.md").write_text(rest.with_table((DOCS / "rest.md").read_text()))
(DOCS / "hazards.md").write_text(hazards.with_index((DOCS / "hazards.md").read_text()))
for folder in (DOCS, ROOT / "src" / "twinlog" / "control" / "web" / "api"):
    (folder / openapi.FILE).write_text(openapi.render())
(ROOT / man.PATH).write_text(man.render())
