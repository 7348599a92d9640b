"""Programs that tests pass to another process as text use only names that exist.

A rename does not change texts. With an old name, the process would end immediately, and its test
would wait for it until its time limit.
"""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TESTS = Path(__file__).parents[1]


def _text(node: ast.AST) -> str:
    """Return the text of a string literal, with None for each value in it. Other expressions give
    an empty text.
    """
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(one) or "None" for one in parts)
    return ""


def _program(text: str) -> ast.Module | None:
    """Parse a text, or the text of a `str.format` template. Return None if it is no program."""
    for one in (
        text,
        re.sub(r"\{\w*(![rs])?\}", "None", text).replace("{{", "{").replace("}}", "}"),
    ):
        with suppress(SyntaxError):
            return ast.parse(textwrap.dedent(one))
    return None


def _programs() -> Iterator[tuple[str, ast.Module]]:
    """Yield each text that is a program and imports from this project, with its position."""
    for path in sorted({*TESTS.rglob("*.py")} - {Path(__file__)}):
        for node in ast.walk(ast.parse(path.read_text())):
            text = _text(node)
            if "from twinlog" in text and (program := _program(text)) is not None:
                yield f"{path.relative_to(TESTS)}:{getattr(node, 'lineno', 0)}", program


def _missing(program: ast.Module) -> set[str]:
    """Return the names that a program imports from this project but that do not exist."""
    taken: dict[str, object] = {}
    missing = set()
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("twinlog"):
            for one in node.names:
                try:
                    taken[one.asname or one.name] = _imported(node.module, one.name)
                except ImportError as error:
                    missing.add(str(error))
    return missing | {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(program)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id in taken
        and not hasattr(taken[node.value.id], node.attr)
    }


def _imported(module_name: str, name: str) -> object:
    module = importlib.import_module(module_name)
    if not hasattr(module, name):
        importlib.import_module(f"{module_name}.{name}")
    return getattr(module, name)


def test_names_that_programs_take_exist() -> None:
    """Programs that tests pass to another process as text use only names that exist. All are
    checked in one test, because each process of a test run would otherwise create the list of cases
    again.
    """
    programs = dict(_programs())
    assert len(programs) > 10
    missing = {where: _missing(program) for where, program in programs.items()}
    assert {where: names for where, names in missing.items() if names} == {}


def test_missing_names_are_found() -> None:
    text = """
    from twinlog.sandbox import LocalCluster, NoCluster
    from twinlog.no_module import x
    LocalCluster.attach
    LocalCluster.no_method
    """
    program = _program(text)
    assert program is not None
    assert _missing(program) == {
        "No module named 'twinlog.sandbox.NoCluster'",
        "No module named 'twinlog.no_module'",
        "LocalCluster.no_method",
    }
