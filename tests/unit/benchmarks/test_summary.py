"""The percentiles, medians and ratios of the benchmark."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.summary import median, percentile, ratio

NUMBERS = st.lists(st.floats(min_value=0, max_value=1e9), min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("share", "expected"), [(50, 500), (99, 990), (99.9, 999), (100, 1000), (0, 1)]
)
def test_percentile_is_the_nearest_rank(share: float, expected: int) -> None:
    assert percentile([float(each) for each in range(1, 1001)], share) == expected


def test_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 99.9) == 7.0


def test_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(NUMBERS, st.floats(min_value=0, max_value=100))
def test_at_least_the_share_does_not_exceed_its_percentile(
    values: list[float], share: float
) -> None:
    found = percentile(sorted(values), share)
    below = sum(value <= found for value in values)
    assert below >= math.floor(share / 100 * len(values))


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], None), ([None], None), ([3.0], 3.0), ([9.0, None, 1.0], 5.0), ([9.0, 2.0, 1.0], 2.0)],
)
def test_median_ignores_missing_values(values: list[float | None], expected: float | None) -> None:
    assert median(values) == expected


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [(10.0, 2.0, 5.0), (None, 2.0, None), (10.0, None, None), (10.0, 0.0, None)],
)
def test_ratio_needs_both_numbers(
    ours: float | None, theirs: float | None, expected: float | None
) -> None:
    assert ratio(ours, theirs) == expected
