"""Files, modules and classes that a docstring or a page names in backticks exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src" / "twinlog"
PAGES: Final = sorted([ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

FOLDERS: Final = "channel|cli|cluster|codes|control|demo|lane|mirror|sandbox|survey|wire"
"""Names of folders of the package that are not the beginning of a configuration key."""

MODULE: Final = re.compile(rf"((?:{FOLDERS})(?:\.(?!json|yaml)[a-z_0-9]+)+)(?:\.[A-Z]\w*)?")


@cache
def files() -> frozenset[str]:
    folders = ("src", "tests", "scripts", "docs", "deploy", "benchmarks")
    paths = (path for name in folders for path in (ROOT / name).rglob("*") if path.is_file())
    return frozenset(f"/{path.relative_to(ROOT)}" for path in [*paths, *ROOT.glob("*")])


@cache
def modules() -> dict[str, Path]:
    """Return all modules and folders, by their dotted name without `twinlog`."""
    paths = {path.relative_to(SOURCE).with_suffix(""): path for path in SOURCE.rglob("*.py")}
    return {".".join(n for n in name.parts if n != "__init__"): p for name, p in paths.items()}


@cache
def named_in(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", path.read_text()))


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def is_module(name: str) -> bool:
    """Return True if the name is a module of the package, or is defined in a module."""
    head, _, last = name.rpartition(".")
    known = modules()
    return name in known or (head in known and last in named_in(known[head]))


def dead(text: str) -> Iterator[str]:
    """Yield the names in backticks that do not exist."""
    for name in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"[\w/]+\.py", name):
            if not any(path.endswith(f"/{name}") for path in files()):
                yield name
        elif (found := MODULE.fullmatch(name)) is not None and not is_module(found[1]):
            yield name


def face(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def test_the_search_finds_dead_references() -> None:
    assert [*dead("see `nowhere/at_all.py`")] == ["nowhere/at_all.py"]
    assert [*dead("`mirror.copy.no_such_module` and `mirror.copy.intake`")] == [
        "mirror.copy.no_such_module"
    ]
    assert not [*dead("`mirror/copy/intake.py`, `mirror.copy.intake.Intake`, `retention.ms`")]


def test_docstrings_name_existing_things() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCE.rglob("*.py")
        for text in docstrings(path)
        for name in dead(text)
    }
    assert found == set()


def test_pages_name_existing_things() -> None:
    found = {f"{page.name}: {name}" for page in PAGES for name in dead(page.read_text())}
    assert found == set()


def test_faces_name_all_that_is_in_their_folders() -> None:
    """The docstring in a folder's `__init__.py` names each of its subfolders, because it describes
    the folder's content.
    """
    missing = {
        f"{path.relative_to(ROOT)}: {wing.name}"
        for path in SOURCE.rglob("__init__.py")
        if path.parent != SOURCE
        for wing in path.parent.iterdir()
        if (wing / "__init__.py").is_file() and re.search(rf"\b{wing.name}\b", face(path)) is None
    }
    assert missing == set()


OF_OTHERS: Final = {"Fate", "RemoteClusterUtils", "status", "twinlog"}
"""Names in docstrings of folders that belong to Java, to another folder, or to a command."""


def strange(path: Path) -> Iterator[str]:
    """Yield the plain names in a folder's docstring that neither the folder nor a parent folder
    defines.
    """
    folder = path.parent
    above = [up for up in folder.parents if up.is_relative_to(SOURCE)]
    near = {one.stem for up in (folder, *above) for one in up.iterdir()}
    for name in re.findall(r"(?<!`)`([A-Za-z_]\w*)`", face(path)):
        if name not in near | OF_OTHERS and name not in defined_in(folder):
            yield name


def defined_in(folder: Path) -> frozenset[str]:
    found = re.compile(r"^ *(?:(?:async )?def |class )?(\w+)(?=[(:\[]| [:=]| ->)", re.MULTILINE)
    return frozenset(
        name for path in folder.rglob("*.py") for name in found.findall(path.read_text())
    )


def test_docstrings_of_folders_name_their_content() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCE.rglob("__init__.py")
        for name in strange(path)
    }
    assert found == set()
