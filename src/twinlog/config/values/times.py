"""Parses times (ISO 8601 with a time zone, or milliseconds since 1970) and durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

FIRST_MS: Final = 100_000_000_000
"""Lowest time (in 1973). Smaller numbers, probably seconds or offsets, would select all records."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS: Final = re.compile(r"-?[0-9]+")
_MOST_DIGITS: Final = 14
"""Maximum length of a time in milliseconds, which allows times until the year 5138."""

_SPAN: Final = re.compile(
    r"P(?:(\d{1,6})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,3})?)S)?)?",
    re.IGNORECASE,
)
"""Matches days, hours, minutes and seconds in ISO 8601, as in Java's Duration."""


class NoTime(ValueError):
    """Raised if a text is not a time. The message says why, and what to write."""

    def __init__(self, what: str, todo: str) -> None:
        super().__init__(f"{what}: {todo}")
        self.what, self.todo = what, todo


def to_milliseconds(text: str) -> int:
    """Return a time in ms since 1970, rounded up to exclude older records. Raises NoTime."""
    if _DIGITS.fullmatch(text):
        if len(text) > _MOST_DIGITS or int(text) < FIRST_MS:
            raise NoTime(
                f"{text} is not a plausible time in milliseconds",
                "write milliseconds since 1970, or 2026-01-31T12:00:00Z",
            )
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise NoTime(
            f'"{text}" is not a time',
            "write 2026-01-31T12:00:00Z (with a zone), or milliseconds since 1970",
        ) from None
    if at.tzinfo is None:
        raise NoTime(f'"{text}" has no time zone', f"write {at.isoformat()}Z for UTC")
    ms = -((_EPOCH - at) // timedelta(milliseconds=1))
    if ms < FIRST_MS:
        raise NoTime(f'"{text}" is before 1974', "write a later time")
    if len(str(ms)) > _MOST_DIGITS:
        raise NoTime(f'"{text}" is after 5138', "write an earlier time")
    return ms


def span_in_milliseconds(text: str) -> int:
    """Return a duration in ms, from ISO 8601 (`P2DT3H`, `PT30M`; no months). Raises NoTime."""
    match = _SPAN.fullmatch(text)
    if match is None or not any(match.groups()):
        raise NoTime(f'"{text}" is not a duration', "write PT30M, PT2H30M or P1D")
    days, hours, minutes, seconds = (float(group or 0) for group in match.groups())
    return round(1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days))))


def in_iso(ms: int) -> str:
    """Return a time as ISO 8601 in UTC, with milliseconds only if they are not 0. Producers can set
    any timestamp, so a time outside the range of Python's dates is returned as a number.
    """
    try:
        at = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms since 1970"
    return at.isoformat(timespec="milliseconds" if ms % 1000 else "seconds").replace("+00:00", "Z")
