"""Numbers are formatted for people to read."""

from __future__ import annotations

import pytest

from twinlog.quantities import count, duration, plural, ranges, size


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0"), (0.0, "0"), (0.25, "0.2"), (9, "9"), (1234.5, "1,234"), (2_000_000, "2,000,000")],
)
def test_counts(number: float, expected: str) -> None:
    assert count(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 KB"), (250_000_000, "250 MB"), (2.05e9, "2.0 GB")],
)
def test_sizes(number: float, expected: str) -> None:
    assert size(number) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (35.2, "35 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (11_400, "3 h 10 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_plurals() -> None:
    assert [plural(n, "topic") for n in (0, 1, 1000)] == ["0 topics", "1 topic", "1,000 topics"]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([], ""), ([0], "0"), ([0, 1, 2, 3], "0-3"), ([5, 0, 8, 7, 1], "0-1,5,7-8")],
)
def test_ranges(numbers: list[int], expected: str) -> None:
    assert ranges(numbers) == expected
