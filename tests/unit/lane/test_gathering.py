"""For how many batches a Fetch waits, depending on the traffic so far."""

from __future__ import annotations

import pytest

from twinlog.lane.sides.gathering import MOST_BYTES, Gathering

SIZE = 1000
MS = 0.001


def after(
    interval_s: float, *, size: int = SIZE, longest_ms: int = 4, count: int = 50
) -> Gathering:
    """Return the state after `count` responses with one batch each, `interval_s` apart."""
    gathering = Gathering(longest_ms)
    for number in range(1, count + 1):
        gathering.on_records(number * interval_s, 1, size)
    return gathering


@pytest.mark.parametrize(
    ("interval_ms", "batches"),
    [(100, 0), (10, 0), (2.5, 0), (1.9, 2), (0.95, 4), (0.099, 40), (0.01, 66)],
)
def test_fetch_waits_for_the_batches_that_are_due_within_its_limit(
    interval_ms: float, batches: int
) -> None:
    least = after(interval_ms * MS).least_bytes
    if not batches:
        assert least == 0
    else:  # the last batch completes the response, even if it is slightly smaller
        assert (batches - 1) * SIZE < least < batches * SIZE
    assert least <= MOST_BYTES


def test_lowest_latency_waits_for_nothing() -> None:
    assert after(0.1 * MS, longest_ms=0).least_bytes == 0


def test_backlog_does_not_wait_for_more_than_it_has() -> None:
    assert after(0.1 * MS, size=1 << 20).least_bytes == MOST_BYTES


def test_batches_of_one_response_count_by_their_number() -> None:
    gathering = Gathering(4)
    for number in range(1, 50):
        gathering.on_records(number * 10 * MS, 10, 10 * SIZE)
    assert 3 * SIZE - SIZE < gathering.least_bytes < 4 * SIZE


def test_first_record_after_a_pause_is_returned_immediately() -> None:
    gathering = after(1 * MS)
    assert gathering.least_bytes
    gathering.on_empty()
    assert gathering.least_bytes == 0


def test_steady_traffic_is_noticed_within_a_dozen_batches() -> None:
    assert after(1 * MS, count=12).least_bytes
