"""Every code is raised somewhere, explained in docs/codes.md, and named in a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from twinlog.config.values.warnings import WarningCode
from twinlog.errors import PartitionError
from twinlog.mirror.copy.refusals import REFUSALS

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = sorted((ROOT / "src" / "twinlog").rglob("*.py"))
TESTS: Final = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__).resolve()]
CODES: Final = ROOT / "docs" / "codes.md"

A_CODE: Final = re.compile(r"[A-Z][A-Z0-9_]{3,}")


def codes_of(tree: ast.AST) -> Iterator[str]:
    """Values of a keyword, an attribute or a default that is called `code`."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                found = code
            case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(code))):
                found = code
            case ast.AnnAssign(target=ast.Name(id="code"), value=ast.Constant(value=str(code))):
                found = code
            case _:
                continue
        if A_CODE.fullmatch(found):
            yield found


@cache
def raised() -> frozenset[str]:
    found = {code for path in SOURCES for code in codes_of(ast.parse(path.read_text()))}
    return frozenset({*found, *WarningCode, *(code for code, _ in REFUSALS.values())})


@cache
def literals() -> frozenset[str]:
    """Codes that are a value by themselves, or stand in brackets at the end of a text."""
    found: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
                found.update(re.findall(r"\[([A-Z][A-Z0-9_]+)\]$", node.value))
    return frozenset(found)


@cache
def explained() -> frozenset[str]:
    """The codes of the first cells of the tables under "Codes"."""
    text = CODES.read_text()
    rows = re.findall(r"^\| ([^|]+) \|", text[text.index("## Codes") :], re.MULTILINE)
    return frozenset(code for row in rows for code in re.findall(r"`([A-Z][A-Z0-9_]+)`", row))


def test_something_is_collected() -> None:
    assert {"GAP_WRITTEN", "USAGE", "SOURCE_GAP", "RECORD_TOO_LARGE", "DEAD_KEY"} <= raised()
    assert {"GAP_WRITTEN", "USAGE", "SOURCE_GAP", "RECORD_TOO_LARGE", "DEAD_KEY"} <= explained()


def test_every_code_is_explained() -> None:
    assert raised() - explained() == set()


def test_every_code_that_is_explained_is_raised() -> None:
    assert explained() - raised() - literals() == set()


def test_every_code_is_named_in_a_test() -> None:
    tests = "\n".join(path.read_text() for path in TESTS)
    named = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", tests))
    assert (raised() | explained()) - named == set()


def test_the_catalogue_of_the_errors_has_only_codes_that_are_raised() -> None:
    named = set(re.findall(r"\b[A-Z][A-Z_]{4,}\b", PartitionError.__doc__ or ""))
    assert named
    assert named - raised() - literals() == set()
