"""Formats numbers for people: counts, sizes, rates and durations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SIZES: Final = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3))
_SPANS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


def known(numbers: Iterable[int | None]) -> list[int]:
    """Return the numbers that are not None (unknown)."""
    return [number for number in numbers if number is not None]


def total(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of all numbers that are not None, or None if there are none."""
    return sum(known_numbers) if (known_numbers := known(numbers)) else None


def largest(numbers: Iterable[int | None]) -> int | None:
    """Return the largest number that is not None, or None if there are none."""
    return max(known(numbers), default=None)


def count(number: float | None) -> str:
    """Return text like `1,234,567`, or `?` if unknown. A rate (float) below 10 has one decimal."""
    if number is None:
        return "?"
    if isinstance(number, float) and 0 < number < 10:
        return f"{number:.1f}"
    return f"{round(number):,}"


def size(number: float) -> str:
    """Return bytes as text like `12.3 MB`, in powers of ten."""
    for unit, factor in _SIZES:
        if number >= factor:
            value = number / factor
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"
    return f"{round(number)} B"


def duration(seconds: float) -> str:
    """Return text like `0.4 s`, `35 s`, `2 min 5 s` or `3 h 10 min`, with at most two units."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    rest = round(seconds)
    for index, (unit, factor) in enumerate(_SPANS):
        if rest >= factor:
            small_unit, small = _SPANS[index + 1] if index + 1 < len(_SPANS) else ("s", 1)
            second = rest % factor // small
            first = f"{rest // factor} {unit}"
            return f"{first} {second} {small_unit}" if second else first
    return f"{rest} s"


def plural(number: int, word: str) -> str:
    """Return text like `1 topic`, `2 topics` or `1,000 topics`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def ranges(numbers: list[int]) -> str:
    """Return the numbers as sorted ranges like `0-3,5,7-8`."""
    parts: list[str] = []
    start = last = None
    for number in [*sorted(numbers), None]:
        if last is not None and number == last + 1:
            last = number
            continue
        if start is not None:
            parts.append(str(start) if start == last else f"{start}-{last}")
        start = last = number
    return ",".join(parts)


def first_few(names: Iterable[str], shown: int = 3, joint: str = ", ") -> str:
    """Return text like `a, b, c and 4 more`. `joint`: the text between names."""
    known = list(names)
    text = joint.join(known[:shown])
    return text if len(known) <= shown else f"{text} and {len(known) - shown} more"
