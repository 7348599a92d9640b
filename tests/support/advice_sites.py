"""Finds every piece of advice in the source, as a pattern that its message matches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parents[2] / "src" / "twinlog"
IMPERATIVE: Final = re.compile(
    r"(?:^|[;:,(.] |\bor |\band )(?:add|begin|call|cast|check|choose|correct|did you mean|disable|"
    r"escape|give|let|make|name|put|quote|remove|rename|save|see|separate|set|use|write)\b(?![.`])"
)
"""Pattern of the beginning of advice, including advice that follows another sentence."""
GIVEN_BY: Final = re.compile(r"(?:\w*refuse|dead|NoTime|wrong|_wrong|problem)$")
"""Pattern of the names of functions whose last argument is advice, whatever it begins with."""


@dataclass(frozen=True, slots=True)
class Site:
    """One piece of advice in the source."""

    place: str
    text: str
    pattern: re.Pattern[str]

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def advice_sites(folder: str, *, without: tuple[str, ...] = ()) -> list[Site]:
    """Return the advice in a package of the source. `without`: beginnings of the paths of modules
    to leave out.
    """
    found = []
    for path in sorted((SOURCE / folder).rglob("*.py")):
        name = path.relative_to(SOURCE / folder).as_posix()
        if not name.startswith(without):
            tree = ast.parse(path.read_text())
            found += [
                Site(f"{folder}/{name}:{node.lineno}", text_of(node), re.compile(pattern, re.S))
                for node, pattern in _advice(tree)
            ]
    return found


def text_of(node: ast.expr) -> str:
    """Return the text of a literal, with `{}` for each value in it. Return an empty text for other
    expressions.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "{}" for part in node.values)
    return ""


def _advice(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    inside = {id(one) for node in ast.walk(tree) for one in _not_shown(node)}
    before = {id(later): first for node in ast.walk(tree) for first, later in _pairs(node)}
    last = {id(one) for node in ast.walk(tree) for one in _last_texts(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in inside:
            continue
        text = text_of(node)
        if " " in text and (IMPERATIVE.search(text) or id(node) in last):
            reason = text_of(before[id(node)]) if id(node) in before else ""
            yield node, _pattern(reason) + _pattern(text)


def _pattern(text: str) -> str:
    return text and ".*" + ".*".join(map(re.escape, text.strip("{}").split("{}")))


def _not_shown(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions whose texts are no messages: values within texts, docstrings, and rows
    of tables of fields.
    """
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Field":
        yield from ast.walk(node)
    if isinstance(node, ast.JoinedStr):
        yield from (one for one in ast.walk(node) if one is not node)
    if isinstance(node, ast.Expr):
        yield node.value


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each pair of adjacent arguments of a call: the reason, and the advice that follows
    it.
    """
    if isinstance(node, ast.Call):
        given = [*node.args, *(one.value for one in node.keywords)]
        yield from pairwise(given)


def _last_texts(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call) and GIVEN_BY.search(ast.unparse(node.func)):
        for given in node.args[1:][-1:]:
            yield from (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,)
