"""Programs that tests hand to another process as text take names that exist.

A rename does not see into a text: the process would end at once, and its test would wait in vain.
"""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def _text(node: ast.AST) -> str:
    """The text that a node writes, None where a value comes in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(one) or "None" for one in parts)
    return ""


def _program(text: str) -> ast.Module | None:
    """The text as it is, or as a template of `str.format`; None if it is no program."""
    for one in (
        text,
        re.sub(r"\{\w*(![rs])?\}", "None", text).replace("{{", "{").replace("}}", "}"),
    ):
        with suppress(SyntaxError):
            return ast.parse(textwrap.dedent(one))
    return None


def _programs() -> Iterator[tuple[str, ast.Module]]:
    """Each text that is a program with an import of this project, by where it stands."""
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = _text(node)
            if "from twinlog" in text and (program := _program(text)) is not None:
                yield f"{path.relative_to(TESTS)}:{getattr(node, 'lineno', 0)}", program


PROGRAMS = dict(_programs())


def test_there_are_such_programs() -> None:
    assert len(PROGRAMS) > 10


@pytest.mark.parametrize("where", PROGRAMS)
def test_what_a_program_takes_exists(where: str) -> None:
    taken: dict[str, object] = {}
    for node in ast.walk(PROGRAMS[where]):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("twinlog"):
            module = importlib.import_module(node.module)
            for one in node.names:
                if not hasattr(module, one.name):
                    importlib.import_module(f"{node.module}.{one.name}")
                taken[one.asname or one.name] = getattr(module, one.name)
    missing = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(PROGRAMS[where])
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id in taken
        and not hasattr(taken[node.value.id], node.attr)
    }
    assert not missing
