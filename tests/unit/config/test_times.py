"""Valid forms of a time, and the messages about invalid forms."""

from __future__ import annotations

import pytest

from twinlog.config.values.times import NoTime, in_iso, span_in_milliseconds, to_milliseconds

JANUARY = 1_769_860_800_000


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00:00Z",
        "2026-01-31 12:00:00+00:00",
        "2026-01-31T13:00+01:00",
        "2026-01-31T11:59:59.999500Z",
        str(JANUARY),
    ],
)
def test_times(text: str) -> None:
    assert to_milliseconds(text) == JANUARY


@pytest.mark.parametrize(
    ("text", "what", "todo"),
    [
        ("soon", '"soon" is not a time', "write 2026-01-31T12:00:00Z (with a zone)"),
        ("", '"" is not a time', "write 2026-"),
        ("2026-01-31", "has no time zone", "write 2026-01-31T00:00:00Z"),
        # Seconds or negative numbers would be read as a time around 1970, so every record would
        # count as newer.
        ("1769860800", "not a plausible time in milliseconds", "write milliseconds"),
        ("-5", "not a plausible time in milliseconds", "write milliseconds"),
        ("1969-01-31T00:00:00Z", "before 1974", "later"),
        # in UTC it is in a year that Python's dates do not have
        ("9999-12-31T23:59:59-14:00", "after 5138", "earlier"),
        ("9" * 23, "not a plausible time in milliseconds", "write milliseconds"),
    ],
)
def test_invalid_times(text: str, what: str, todo: str) -> None:
    with pytest.raises(NoTime) as caught:
        to_milliseconds(text)
    assert what in caught.value.what
    assert todo in caught.value.todo


def test_times_are_shown_in_utc() -> None:
    assert in_iso(JANUARY) == "2026-01-31T12:00:00Z"
    assert in_iso(JANUARY + 5) == "2026-01-31T12:00:00.005Z"
    # records of a producer that writes microseconds, and of one that writes the largest number
    for ms in (1000 * JANUARY, 2**63 - 1, -(2**63)):
        assert in_iso(ms) == f"{ms} ms since 1970"


@pytest.mark.parametrize(
    ("text", "ms"),
    [("PT30M", 1_800_000), ("p1dt2h", 93_600_000), ("PT1.5S", 1500), ("P2D", 172_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert span_in_milliseconds(text) == ms


@pytest.mark.parametrize("text", ["P", "PT", "P1DT", "30m", "", "P1M", "PT-5M"])
def test_invalid_durations_are_reported(text: str) -> None:
    with pytest.raises(NoTime, match=r"is not a duration: write PT30M"):
        span_in_milliseconds(text)
