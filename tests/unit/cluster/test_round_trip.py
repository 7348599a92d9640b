"""The number of requests in flight, on links of any length and rate."""

from __future__ import annotations

from collections import deque

import pytest

from twinlog.cluster.net.round_trip import RequestsInFlight

SIZE = 2 << 20


def rates(trip_s: float, bytes_per_s: float, *, most: int = 64) -> tuple[float, float]:
    """Return the share of the link's rate that requests of SIZE bytes use after a while, and the
    longest response time in round trips.
    """
    window = RequestsInFlight(2, most)
    now = free_at = 0.0
    in_flight: deque[tuple[float, float]] = deque()  # (time sent, time of arrival)
    passed, longest, began = 0, 0.0, 0.0
    for number in range(3_000):
        while len(in_flight) < window.size:
            free_at = max(free_at, now) + SIZE / bytes_per_s
            in_flight.append((now, free_at + trip_s))
        is_full = len(in_flight) >= window.size
        sent, now = in_flight.popleft()
        window.adapt(now - sent, trip_s + SIZE / bytes_per_s, is_full=is_full)
        if number == 1_000:
            passed, began = 0, now
        passed += SIZE
        longest = max(longest, now - sent) if number > 1_000 else 0.0
    return passed / (now - began) / bytes_per_s, longest / (trip_s + SIZE / bytes_per_s)


@pytest.mark.parametrize("trip_s", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("mbit", [10, 100, 1_000])
def test_link_is_full_and_no_response_waits_for_long(trip_s: float, mbit: float) -> None:
    share, longest = rates(trip_s, mbit * 1e6 / 8)
    assert share > 0.95
    assert longest <= 3.5


def test_bounds_are_kept() -> None:
    window = RequestsInFlight(2, 8)
    for _ in range(20):
        window.adapt(0.1, 0.1, is_full=True)
    assert window.size == 8
    for _ in range(80):
        window.adapt(0.5, 0.1, is_full=True)
    assert window.size == 2
    window.adapt(0.1, 0.1, is_full=False)
    assert window.size == 2, "what is not used need not grow"
