"""The median and the 99th percentile of the batches of the last minute."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from twinlog.control.watch.latency import Quantiles, SpreadWindow
from twinlog.mirror.copy.timings import Timings, TimingSum, bucket_of, upper_ms


def summed(*passed_ms: int) -> Timings:
    one = TimingSum()
    for ms in passed_ms:
        one.add(1 << 41, (1 << 41) - ms)
    return one.pop()


@given(st.integers(min_value=0, max_value=1 << 40))
def test_a_bucket_contains_its_values_and_is_at_most_a_quarter_wide(ms: int) -> None:
    bucket = bucket_of(ms)
    lowest = upper_ms(bucket - 1) + 1 if bucket else 0
    assert lowest <= ms <= upper_ms(bucket)
    assert upper_ms(bucket) <= lowest * 1.25
    assert bucket_of(upper_ms(bucket)) == bucket


def test_half_and_99_of_100_are_of_all_partitions_together() -> None:
    window = SpreadWindow()
    window.add(0.0, summed(*[5] * 98))
    window.add(0.5, summed(7, 1000))
    assert window.view(1.0) == Quantiles(p50_ms=5, p99_ms=7)
    window.add(1.0, summed(1000))
    assert window.view(1.0) == Quantiles(p50_ms=5, p99_ms=upper_ms(bucket_of(1000)))


def test_values_older_than_a_minute_are_dropped() -> None:
    window = SpreadWindow()
    assert window.view(0.0) is None
    window.add(0.0, summed(1000))
    window.add(35.0, summed(-5))  # the producer's clock is ahead
    assert window.view(59.0) == Quantiles(p50_ms=0, p99_ms=1023)
    assert window.view(61.0) == Quantiles(p50_ms=0, p99_ms=0)
    assert window.view(96.0) is None


def test_the_histogram_keeps_values_that_the_window_drops() -> None:
    window = SpreadWindow()
    window.add(0.0, summed(-5, 7, 8))
    window.add(500.0, summed(1023, 1024, 1 << 20))
    found = dict(window.histogram().cumulative())
    assert list(found)[:2] == [0.007, 0.015]
    assert (found[0.007], found[0.015], found[1.023], found[2.047]) == (2, 3, 4, 5)
    assert (found[131.071], found[math.inf]) == (5, 6)
    assert window.histogram().total_ms == 10 + 1023 + 1024 + (1 << 20)


@given(st.lists(st.integers(min_value=0, max_value=1 << 18)))
def test_a_bound_of_the_histogram_is_exact(passed_ms: list[int]) -> None:
    window = SpreadWindow()
    window.add(0.0, summed(*passed_ms))
    for bound, count in window.histogram().cumulative():
        assert count == sum(ms <= round(bound * 1000, 3) for ms in passed_ms)
