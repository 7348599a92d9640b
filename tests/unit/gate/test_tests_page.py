"""docs/tests.md is current: its list of witnesses equals the marks, and pytest selects the same
tests.
"""

from __future__ import annotations

from pathlib import Path

from tests.gate.page import between, differences, table, witnesses

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "tests.md").read_text()


def test_the_list_of_witnesses_is_current() -> None:
    _, part, _ = between(PAGE, "witnesses")
    assert part.strip() == table(ROOT), "run: python -m tests.gate.page"


def test_each_behaviour_has_one_witness() -> None:
    behaviours = [one.behaviour for one in witnesses(ROOT)]
    assert len(behaviours) > 120
    assert len(set(behaviours)) == len(behaviours)


def test_a_witness_that_pytest_does_not_select_is_found(tmp_path: Path) -> None:
    for folder, mark in (("broker", "@pytest.mark.witness('it works')\n"), ("faults", "")):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        text = f"import pytest\n{mark}def test_it(): pass"
        (tmp_path / "tests" / folder / "test_it.py").write_text(text)
    listed = {(one.path, one.name) for one in witnesses(tmp_path)}
    assert listed == {("broker/test_it.py", "test_it")}
    assert differences(listed, {*listed}) == []
    assert differences(listed, set()) == ["broker/test_it.py::test_it"]
    assert differences(set(), listed) == ["broker/test_it.py::test_it"]
