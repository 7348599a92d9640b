"""The tiers of tests: the gate, which every change must pass, and the whole. The gate runs all
tests in memory (of a sweep over seeds, the first ones: `tests.support.sweeps`), all contracts with
Kafka's Java classes, and *witnesses*: for each behaviour that only real brokers, Spark, MirrorMaker
2 or a browser can show, one test. A witness states that behaviour:
`@pytest.mark.witness("a killed lane loses nothing")`. If the test has parameters, all cases are
witnesses, or the one that `case` names (as pytest writes it between brackets). Tests that measure
the machine are marked `alone`, and run after the whole, with nothing beside them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

__all__ = ["ALWAYS", "TESTS", "drop_other_cases", "is_in_gate", "skip_what_runs_alone"]

TESTS: Final = Path(__file__).resolve().parents[1]
ALWAYS: Final = ("unit", "contract")
"""Folders in `tests/` of which the gate runs every test."""


def is_in_gate(item: pytest.Item) -> bool:
    """Return True if the gate runs this test."""
    folder = item.path.relative_to(TESTS).parts[0]
    return folder in ALWAYS or item.get_closest_marker("witness") is not None


def drop_other_cases(items: Iterable[pytest.Item]) -> None:
    """If the mark `witness` names a case, remove the mark from the test's other cases."""
    for item in items:
        case = item.callspec.id if isinstance(item, pytest.Function) and _has_cases(item) else ""
        item.own_markers = [
            mark
            for mark in item.own_markers
            if mark.name != "witness" or mark.kwargs.get("case", case) == case
        ]


def skip_what_runs_alone(items: Iterable[pytest.Item]) -> None:
    """Skip tests that measure the machine if this is one of several processes, because tests of the
    other processes would slow them down.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    for item in items:
        if item.get_closest_marker("alone") is not None:
            item.add_marker(pytest.mark.skip(reason="runs alone: -n 0, or scripts/test --whole"))


def _has_cases(item: pytest.Function) -> bool:
    return hasattr(item, "callspec")
