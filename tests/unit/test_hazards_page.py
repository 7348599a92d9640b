"""docs/hazards.md is current: each test, file and code that it names exists, and it lists all fault
tests.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.gate.page import are_in_gate
from tools.pages import hazards as hazards_page

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SOURCE = ROOT / "src" / "twinlog"
PAGE = (ROOT / "docs" / "hazards.md").read_text()
CODES = (ROOT / "docs" / "codes.md").read_text()

TEST = re.compile(r"`([\w/]+/test_\w+\.py)(?:::(\w+))?`")
FILE = re.compile(r"`(\w[\w/]*\.py)`")
DEFINED = re.compile(r"^ *def (\w+)\(", re.MULTILINE)
CODE = re.compile(r"`([A-Z]+(?:_[A-Z]+)+)`")
ABOUT_LOGS = sorted({*TESTS.glob("faults/test_*.py"), *TESTS.glob("broker/test_loops*.py")})


@cache
def names_of(path: Path) -> set[str]:
    """Return the names of the test functions that a file defines."""
    if not path.is_file():
        return set()
    return {*DEFINED.findall(path.read_text())}


def hazards() -> dict[str, str]:
    """Return the text directly below each heading of a hazard, by heading."""
    parts = re.split(r"^##+ (.+)$", PAGE, flags=re.MULTILINE)[1:]
    found = dict(zip(parts[::2], parts[1::2], strict=True))
    return {
        title: text for title, text in found.items() if "\n- `" in text or "Protection: " in text
    }


def test_the_index_is_current() -> None:
    assert hazards_page.with_index(PAGE) == PAGE, "run: python -m tools.pages"
    listed = re.findall(r"^\| [^|]+ \| \[([^]]+)\]\(#", PAGE, re.MULTILINE)
    assert {*hazards()} - {*listed} == set()


def test_every_named_test_exists() -> None:
    named = TEST.findall(PAGE)
    assert len(named) > 200
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (TESTS / path).is_file() or (name and name not in names_of(TESTS / path))
    ]
    assert missing == []


def test_every_named_file_of_code_exists() -> None:
    named = {path for path in FILE.findall(PAGE) if not TEST.fullmatch(f"`{path}`")}
    assert len(named) > 40
    roots = (SOURCE, ROOT)
    assert {path for path in named if not any((root / path).is_file() for root in roots)} == set()


def test_every_named_code_is_explained() -> None:
    assert {code for code in CODE.findall(PAGE) if f"`{code}`" not in CODES} == set()


def test_every_hazard_names_tests() -> None:
    assert len(hazards()) > 45
    assert [title for title, text in hazards().items() if not TEST.search(text)] == []


def test_every_hazard_names_a_test_of_the_gate() -> None:
    outside = [
        title for title, text in hazards().items() if not are_in_gate(ROOT, TEST.findall(text))
    ]
    assert outside == []


def test_no_fault_test_is_left_out() -> None:
    named = {path for path, _ in TEST.findall(PAGE)}
    assert [
        path.name for path in ABOUT_LOGS if path.relative_to(TESTS).as_posix() not in named
    ] == []


@pytest.mark.parametrize("number", range(1, 15))
def test_every_number_has_a_heading_and_tests(number: int) -> None:
    files = {path.name for path in TESTS.glob(f"faults/test_h{number:02}_*.py")}
    assert re.search(rf"^\| H{number} \|", PAGE, re.MULTILINE)
    for file in files:
        cited = {name for path, name in TEST.findall(PAGE) if path == f"faults/{file}"}
        wanted = {name for name in names_of(TESTS / "faults" / file) if name.startswith("test_")}
        assert wanted - cited == set()
    headed = re.search(rf"^### H{number}: ", PAGE, re.MULTILINE) is not None
    assert headed == bool(files)
