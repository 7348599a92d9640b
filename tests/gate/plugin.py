"""The pytest plugin of `tests.gate`: selects a tier, and writes a file with the outcomes.

Loaded by `-p tests.gate.plugin`; processes of pytest-xdist load it as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.gate.outcomes import outcomes_of
from tests.gate.page import differences, witnesses
from tests.gate.tiers import ALWAYS, TESTS, is_in_gate

__all__ = ["GATE", "OUTCOMES", "PLUGIN"]

GATE: Final = "--gate"
OUTCOMES: Final = "--outcomes"
_FIRST: Final = "gw0"
"""The process of pytest-xdist that compares the list of witnesses with docs/tests.md."""
PLUGIN: Final = ("-p", "tests.gate.plugin")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("twinlog")
    group.addoption(GATE, action="store_true", help="only tests of the gate")
    group.addoption(OUTCOMES, type=Path, help="a file for counts and failed tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption(GATE):
        config.hook.pytest_deselected(items=[one for one in items if not is_in_gate(one)])
        items[:] = [one for one in items if is_in_gate(one)]
        if os.environ.get("PYTEST_XDIST_WORKER", _FIRST) == _FIRST:
            _agrees_with_the_page(items)


def _agrees_with_the_page(items: Iterable[pytest.Item]) -> None:
    """Raise if docs/tests.md lists other witnesses than pytest selects."""
    files = ((one.path.relative_to(TESTS).as_posix(), one) for one in items)
    selected = {
        (path, one.originalname)
        for path, one in files
        if isinstance(one, pytest.Function) and not path.startswith(ALWAYS)
    }
    listed = {(one.path, one.name) for one in witnesses(TESTS.parent)}
    if wrong := differences(listed, selected):
        raise pytest.UsageError(f"witnesses that pytest and their marks disagree about: {wrong}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Report a failure immediately, because a run may end before its summary. With pytest-xdist,
    only the main process reports.
    """
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.stdout.write(f"\nfailed: {report.nodeid} ({report.when})\n")
        sys.stdout.flush()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    file: Path | None = config.getoption(OUTCOMES)
    if file is not None:
        outcomes_of(terminalreporter.stats).write(file)
