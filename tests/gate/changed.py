"""Finds the tests that differ from those of the branch `main`."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["changed_tests"]


def changed_tests(root: Path, base: str = "main") -> list[str]:
    """Return the IDs of tests whose text differs from `base`. If other code of a test file differs,
    all tests of this file are returned.
    """
    listed = _git(root, "diff", "--name-only", "--diff-filter=d", base, "--", "tests")
    new = _git(root, "ls-files", "--others", "--exclude-standard", "--", "tests")
    paths = sorted({*listed.splitlines(), *new.splitlines()})
    ids: list[str] = []
    for path in paths:
        if Path(path).name.startswith("test_") and path.endswith(".py"):
            before = _git(root, "show", f"{base}:{path}", fails=True)
            ids += _differing(path, before, (root / path).read_text())
    return ids


def _differing(path: str, before: str, now: str) -> Iterator[str]:
    (old, old_rest), (new, new_rest) = _parts(before), _parts(now)
    for name, text in new.items():
        if old_rest != new_rest or old.get(name) != text:
            yield f"{path}::{name}"


def _parts(text: str) -> tuple[dict[str, str], str]:
    """Return the text of each test by its name within the file, and the text of the rest of the
    file.
    """
    tests: dict[str, str] = {}
    rest: list[str] = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name.startswith("test_"):
                    tests[f"{node.name}::{inner.name}"] = ast.unparse(inner)
                else:
                    rest.append(ast.unparse(inner))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            tests[node.name] = ast.unparse(node)
        else:
            rest.append(ast.unparse(node))
    return tests, "\n".join(rest)


def _git(root: Path, *arguments: str, fails: bool = False) -> str:
    """Return git's output. If `fails`, return an empty text when git does not know the file."""
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=not fails
    )
    return done.stdout if done.returncode == 0 else ""
