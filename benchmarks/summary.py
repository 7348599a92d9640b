"""The arithmetic of the report: percentiles, medians and ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

__all__ = ["median", "percentile", "ratio"]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest value that at least `share` percent do not exceed."""
    if not ordered:
        raise ValueError("no values")
    # rounded first: 99.9 / 100 * 1000 is a hair above 999 in binary
    rank = math.ceil(round(share / 100 * len(ordered), 6))
    return ordered[max(rank, 1) - 1]


def median(values: Iterable[float | None]) -> float | None:
    """The middle one of the values that are there; None when none is."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    middle = len(known) // 2
    if len(known) % 2:
        return known[middle]
    return (known[middle - 1] + known[middle]) / 2


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """`ours / theirs`, where both are known and it means something."""
    if ours is None or theirs is None or theirs <= 0:
        return None
    return ours / theirs
