"""docs/mm2-compatibility.md is complete: no cell is empty, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.gate.page import are_in_gate

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "mm2-compatibility.md").read_text()

CELL = re.compile(r"(?<!\\)\|")
NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
VERDICTS = ("same", "better", "not applicable")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in CELL.split(line)[1:-1]] for line in lines]
    return [row for row in cells if row[0] != "---" and "behavior" not in row]


def test_no_cell_is_empty() -> None:
    assert len(rows()) > 80
    assert [row for row in rows() if len(row) != 4 or not all(row)] == []


def test_every_row_names_tests_and_compares() -> None:
    nothing_to_show = [row for row in rows() if row[2] == "-"]
    assert {row[3].partition(":")[0] for row in nothing_to_show} == {"not applicable"}
    named = [row for row in rows() if row not in nothing_to_show]
    assert [row[0] for row in named if not NAMED.search(row[2])] == []
    assert [row[0] for row in rows() if not row[3].startswith(VERDICTS)] == []
    unexplained = [row[0] for row in rows() if row[3] in ("better", "not applicable")]
    assert unexplained == []


def test_every_row_names_a_test_of_the_gate() -> None:
    named = {row[0]: NAMED.findall(row[2]) for row in rows() if row[2] != "-"}
    assert [title for title, tests in named.items() if not are_in_gate(ROOT, tests)] == []


def test_every_named_test_exists() -> None:
    missing = []
    for path, name in NAMED.findall(PAGE):
        file = TESTS / path
        defined = file.exists() and (not name or re.search(rf"def {name}\(", file.read_text()))
        if not defined:
            missing.append(f"{path}::{name}")
    assert missing == []
