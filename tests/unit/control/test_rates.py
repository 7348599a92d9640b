"""Rates are calculated from the counts of the last few seconds."""

from __future__ import annotations

from tests.support.snapshots import flow, partition
from twinlog.control.watch.rates import Rates
from twinlog.control.watch.readiness import Readiness
from twinlog.control.watch.series.readings import PartitionRates, Rate


def test_rate_over_the_last_seconds_only() -> None:
    rates = Rates()
    records = [0, 1000, 2000, 3000, 4000, 5000, 5000, 5000, 5000, 5000, 5000, 5000]
    last = [
        rates.update(float(at), [flow(partition(records=n))])[0] for at, n in enumerate(records)
    ]
    assert last[5].records_per_s == 1000
    assert last[-1].records_per_s == 0


def test_partitions_of_a_topic_are_added_up() -> None:
    parts = [
        partition(number=0, lag=5, lag_ms=40, records=10, bytes=100),
        partition(number=1, lag=7, lag_ms=90, records=20, bytes=200, state="FAILED"),
        partition(number=2, lag=None, lag_ms=None, records=0, bytes=0),
    ]
    (topic,) = Rates().update(0.0, [flow(*parts)])
    assert (topic.lag, topic.lag_ms, topic.records, topic.bytes) == (12, 90, 30, 300)
    assert (topic.total, topic.failed, topic.partitions) == (42, 1, 3)


def test_lag_is_unknown_until_a_source_end_is() -> None:
    (topic,) = Rates().update(0.0, [flow(partition(lag=None, records=3))])
    assert (topic.lag, topic.total) == (None, 3)


def test_a_count_that_falls_is_no_negative_rate() -> None:
    rates = Rates()
    rates.update(0.0, [flow(partition(records=100))])
    assert rates.update(1.0, [flow(partition(records=90))])[0].records_per_s == 0


def test_topics_of_one_name_in_two_flows_are_apart() -> None:
    found = Rates().update(0.0, [flow(partition()), flow(partition(), flow="B->A")])
    assert [topic.flow for topic in found] == ["A->B", "B->A"]


def test_rates_of_partitions_are_computed_over_the_last_minute() -> None:
    rates, first = PartitionRates(), partition(records=0, bytes=0)
    assert rates.rate(0.0, "A->B", first) == Rate(), "never seen"
    rates.update(0.0, [flow(first)])
    assert rates.rate(0.0, "A->B", first) == Rate(), "seen once"
    rates.update(20.0, [flow(partition(records=200, bytes=4000))])
    assert rates.rate(20.0, "A->B", partition(records=200, bytes=4000)) == Rate(10.0, 200.0)
    rates.update(100.0, [flow(partition(records=200, bytes=4000))])
    assert rates.rate(100.0, "A->B", partition(records=200, bytes=4000)) == Rate()


def test_topics_that_left_are_forgotten() -> None:
    """Topics are created and deleted as long as a process runs. Data about deleted topics is
    removed.
    """
    rates, by_partition, readiness = Rates(), PartitionRates(), Readiness()
    for number in range(50):
        flows = [flow(partition(f"t{number}", upstream=5), partition("stays", upstream=5))]
        rates.update(float(number), flows)
        by_partition.update(float(number), flows)
        readiness.update(float(number), flows)
    assert len(rates._samples) == len(by_partition._samples) == 2
    assert len(readiness._flows["A->B"].furthest) == 2
    readiness.update(60.0, [])
    readiness.update(61.0, [flow(flow="C->D")])
    assert list(readiness._flows) == ["C->D"]
