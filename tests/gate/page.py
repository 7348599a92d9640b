"""docs/tests.md: the list of witnesses, made from the tests' marks, and the result of the last
whole run.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.gate.tiers import ALWAYS

__all__ = ["Witness", "are_in_gate", "between", "differences", "table", "witnesses", "write_whole"]

PAGE: Final = Path("docs") / "tests.md"
FOLDERS: Final = ("broker", "faults", "spark", "browser")
TABLE: Final = "witnesses"
WHOLE: Final = "whole"
MARK: Final = "pytest.mark.witness"


class Witness(NamedTuple):
    """A test of the gate with real components, and the behaviour that it shows."""

    path: str
    """The path below `tests/`."""
    name: str
    behaviour: str


@cache
def witnesses(root: Path) -> tuple[Witness, ...]:
    """Return the witnesses by folder, file and line; one for each mark."""
    return tuple(_witnesses(root))


def _witnesses(root: Path) -> Iterator[Witness]:
    for folder in FOLDERS:
        for file in sorted((root / "tests" / folder).glob("test_*.py")):
            text = file.read_text()
            for node in _functions(ast.parse(text)) if MARK in text else ():
                for behaviour in _marks(node):
                    path = file.relative_to(root / "tests").as_posix()
                    yield Witness(path, node.name, behaviour)


def _functions(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a module and the methods of its classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node)


def _marks(node: ast.FunctionDef) -> Iterator[str]:
    """Return the marks of a test, or of one of its parameters."""
    for decorator in node.decorator_list:
        for call in ast.walk(decorator):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == MARK:
                yield ast.literal_eval(call.args[0])


def differences(
    listed: Collection[tuple[str, str]], selected: Collection[tuple[str, str]]
) -> list[str]:
    """Return the tests that are in only one of both lists: those that the files mark as witnesses,
    and those that pytest selects.
    """
    return [f"{path}::{name}" for path, name in sorted({*listed} ^ {*selected})]


def are_in_gate(root: Path, tests: Iterable[tuple[str, str]]) -> bool:
    """Return True if the gate runs at least one of these tests. Each is given as its path below
    `tests/` and its name.
    """
    marked = {(one.path, one.name) for one in witnesses(root)}
    files = {path for path, _ in marked}
    return any(
        path.startswith(ALWAYS) or (path, name) in marked or (not name and path in files)
        for path, name in tests
    )


def table(root: Path) -> str:
    """Return a heading and a list for each file."""
    lines: list[str] = []
    last = ""
    for one in witnesses(root):
        if one.path != last:
            lines += ["", f"`{one.path}`", ""]
            last = one.path
        lines.append(f"- {one.behaviour}: `{one.name}`")
    return "\n".join(lines[1:])


def between(text: str, name: str) -> tuple[str, str, str]:
    """Return the text before a generated part, the part, and the text after it."""
    first, last = f"<!-- {name}: written by scripts/test -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(first)
    part, _, behind = rest.partition(last)
    return before + first, part, last + behind


def _write(root: Path, name: str, part: str) -> None:
    page = root / PAGE
    before, _, behind = between(page.read_text(), name)
    page.write_text(f"{before}\n{part}\n\n{behind}")


def write_table(root: Path) -> None:
    """Write the table of the current witnesses."""
    _write(root, TABLE, table(root))


def write_whole(
    root: Path,
    counts: Mapping[str, int],
    flaky: Mapping[str, str],
    red: Mapping[str, str],
    seconds: float,
) -> None:
    """Write the result of a completed run."""
    command = ["git", "describe", "--always", "--dirty"]
    described = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    lines = [
        f"- commit: `{described.stdout.strip()}`",
        f"- date: {datetime.now(UTC):%Y-%m-%d}",
        f"- minutes: {seconds / 60:.0f}",
        f"- tests: {', '.join(f'{count} {kind}' for kind, count in counts.items())}",
        *(f"- flaky: `{name}`" for name in flaky),
        *(f"- failed: `{name}`" for name in red),
    ]
    _write(root, WHOLE, "\n".join(lines))


if __name__ == "__main__":
    write_table(Path(__file__).resolve().parents[2])
