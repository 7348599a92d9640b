"""Code that several test modules use is in `tests/support`, and the README of this folder lists
each of its files.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
SUPPORT = TESTS / "support"
IMPORT = re.compile(r"^(?:from|import) tests\.(?!support\b|gate\b)\S+", re.MULTILINE)


def test_no_test_module_imports_another() -> None:
    found = {
        str(file.relative_to(TESTS)): imports
        for file in TESTS.rglob("*.py")
        if (imports := IMPORT.findall(file.read_text()))
    }
    assert found == {}, "move what both need to tests/support"


def test_its_readme_has_a_line_for_each_module() -> None:
    named = re.findall(r"`(\w+\.py)`", (SUPPORT / "README.md").read_text())
    assert sorted(named) == sorted(file.name for file in SUPPORT.glob("[!_]*.py"))
