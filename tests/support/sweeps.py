"""Parameters whose values differ in luck or in one more detail, such as seeds: the gate runs the
first ones, and `--whole` all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["sweep"]


def sweep(values: Iterable[Any], *, in_gate: int) -> list[Any]:
    """Return the values, each a tuple if there are several parameters. All after the first
    `in_gate` are marked `long`.
    """
    found: list[Any] = []
    for number, value in enumerate(values):
        row = value if isinstance(value, tuple) else (value,)
        found.append(value if number < in_gate else pytest.param(*row, marks=pytest.mark.long))
    return found
