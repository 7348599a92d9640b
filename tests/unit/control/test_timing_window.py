"""Minimum, maximum and average of the last minute."""

from __future__ import annotations

from twinlog.control.watch.latency import TimingView, TimingWindow
from twinlog.mirror.copy.timings import NO_TIMINGS, Timings, TimingSum, bucket_of


def summed(*passed_ms: int) -> Timings:
    one = TimingSum()
    for ms in passed_ms:
        one.add(10_000, 10_000 - ms)
    return one.pop()


def test_an_interval_is_summed_and_begun_again() -> None:
    one = TimingSum()
    one.add(1000, 990)
    one.add(1000, 970)
    one.add(1000, -1)  # a batch without a timestamp
    both = ((bucket_of(10), 1), (bucket_of(30), 1))
    assert one.pop() == Timings(
        count=2, total_ms=40, least_ms=10, most_ms=30, last_ms=30, spread=both
    )
    assert one.pop() == NO_TIMINGS
    one.add(1000, 1005)  # the producer's clock is ahead
    assert one.pop() == Timings(
        count=1, total_ms=-5, least_ms=-5, most_ms=-5, last_ms=-5, spread=((0, 1),)
    )


def test_there_is_nothing_before_the_first_batch() -> None:
    window = TimingWindow()
    window.add(0.0, NO_TIMINGS)
    assert window.view(0.0) is None


def test_reports_of_a_minute_are_one_view() -> None:
    window = TimingWindow()
    window.add(0.0, summed(10, 30))
    window.add(31.0, summed(5))
    expected = TimingView(last_ms=5, least_ms=5, most_ms=30, average_ms=15.0)
    assert window.view(32.0) == expected


def test_old_values_are_dropped_except_the_last() -> None:
    window = TimingWindow()
    window.add(0.0, summed(1000))
    window.add(35.0, summed(5))
    assert window.view(61.0) == TimingView(last_ms=5, least_ms=5, most_ms=5, average_ms=5.0)
    idle = TimingView(last_ms=5, least_ms=None, most_ms=None, average_ms=None)
    assert window.view(96.0) == idle
