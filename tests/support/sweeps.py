"""Parameters whose values differ only in luck or in one detail, such as seeds. The gate runs the
first ones, and `--whole` runs all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["sweep"]


def sweep(values: Iterable[Any], *, in_gate: int) -> list[Any]:
    """Return the parameters of a test. All values after the first `in_gate` are marked `long`. A
    value is a tuple if the test has several parameters.
    """
    found: list[Any] = []
    for number, value in enumerate(values):
        row = value if isinstance(value, tuple) else (value,)
        found.append(value if number < in_gate else pytest.param(*row, marks=pytest.mark.long))
    return found
