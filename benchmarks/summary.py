"""Calculates percentiles, medians and ratios for the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

__all__ = ["median", "percentile", "ratio"]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the percentile by nearest rank: the smallest value that `share` percent of the values
    do not exceed.
    """
    if not ordered:
        raise ValueError("no values")
    # rounded before ceil, because 99.9 / 100 * 1000 is slightly above 999 in binary
    rank = math.ceil(round(share / 100 * len(ordered), 6))
    return ordered[max(rank, 1) - 1]


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None, or None if there is none."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    middle = len(known) // 2
    if len(known) % 2:
        return known[middle]
    return (known[middle - 1] + known[middle]) / 2


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Return `ours / theirs`, or None if a value is unknown or `theirs` is not positive."""
    if ours is None or theirs is None or theirs <= 0:
        return None
    return ours / theirs
