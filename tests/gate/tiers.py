"""Two tiers: the gate, which every change passes, and the whole.

The gate runs all tests in memory and all contracts with Kafka's Java classes, and *witnesses*: for
each behaviour that only real brokers, Spark, MirrorMaker 2 or a browser can show, one test. A
witness says which behaviour it is: `@pytest.mark.witness("a killed lane loses nothing")`. Of a test
with parameters all cases are witnesses, or the one that `case` names, as pytest writes it between
brackets.

What measures the machine carries `alone`, and runs behind the whole, with nothing beside it.
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
"""Folders of which the gate runs all."""


def is_in_gate(item: pytest.Item) -> bool:
    """Whether every change has to pass it."""
    folder = item.path.relative_to(TESTS).parts[0]
    return folder in ALWAYS or item.get_closest_marker("witness") is not None


def drop_other_cases(items: Iterable[pytest.Item]) -> None:
    """Take the mark away from the cases of a test that are not the one it names."""
    for item in items:
        case = item.callspec.id if isinstance(item, pytest.Function) and _has_cases(item) else ""
        item.own_markers = [
            mark
            for mark in item.own_markers
            if mark.name != "witness" or mark.kwargs.get("case", case) == case
        ]


def skip_what_runs_alone(items: Iterable[pytest.Item]) -> None:
    """In one of several processes: what measures the machine would measure its neighbours."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    for item in items:
        if item.get_closest_marker("alone") is not None:
            item.add_marker(pytest.mark.skip(reason="runs alone: -n 0, or scripts/test --whole"))


def _has_cases(item: pytest.Function) -> bool:
    return hasattr(item, "callspec")
