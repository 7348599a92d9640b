"""The selection of the tests that `scripts/test --changed` runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.gate.changed import changed_tests

BEFORE = """
import pytest
LIMIT = 1

def helper():
    return LIMIT

def test_same():
    assert helper() == 1

def test_other():
    assert helper() < 5

class TestMore:
    def test_inner(self):
        assert True
"""


def repository(folder: Path) -> Path:
    (folder / "tests" / "unit").mkdir(parents=True)
    (folder / "tests" / "unit" / "test_it.py").write_text(BEFORE)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "begin"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
    return folder


def written(folder: Path, old: str, new: str) -> list[str]:
    file = folder / "tests" / "unit" / "test_it.py"
    file.write_text(BEFORE.replace(old, new))
    return [name.removeprefix("tests/unit/test_it.py::") for name in changed_tests(folder)]


def test_a_test_with_another_text_and_a_new_one(tmp_path: Path) -> None:
    root = repository(tmp_path)
    assert changed_tests(root) == []
    assert written(root, "< 5", "< 6") == ["test_other"]
    assert written(root, "assert True", "assert 1") == ["TestMore::test_inner"]
    (root / "tests" / "unit" / "test_new.py").write_text("def test_new(): pass\n")
    assert changed_tests(root)[-1] == "tests/unit/test_new.py::test_new"


def test_a_comment_is_no_change_and_a_helper_changes_all_of_its_file(tmp_path: Path) -> None:
    root = repository(tmp_path)
    assert written(root, "LIMIT = 1", "LIMIT = 1  # at most") == []
    assert written(root, "LIMIT = 1", "LIMIT = 2") == [
        "test_same",
        "test_other",
        "TestMore::test_inner",
    ]
