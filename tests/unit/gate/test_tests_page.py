"""docs/tests.md is true: its list of witnesses is that of the marks, and pytest agrees."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.gate.page import between, table, witnesses

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "tests.md").read_text()


def test_the_list_of_witnesses_is_current() -> None:
    _, part, _ = between(PAGE, "witnesses")
    assert part.strip() == table(ROOT), "run: python -m tests.gate.page"


def test_each_behaviour_has_one_witness() -> None:
    behaviours = [one.behaviour for one in witnesses(ROOT)]
    assert len(behaviours) > 120
    assert len(set(behaviours)) == len(behaviours)


def test_pytest_selects_these_and_no_others() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-m", "witness"]
    folders = [f"tests/{name}" for name in ("broker", "faults", "spark", "browser")]
    listed = subprocess.run(
        [*command, *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = re.findall(r"^tests/(\S+\.py)::(?:\w+::)?(\w+)", listed.stdout, re.MULTILINE)
    assert set(found) == {(one.path, one.name) for one in witnesses(ROOT)}
