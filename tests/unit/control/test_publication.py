"""The published status of a flow has totals and unusual partitions, within limits of its size."""

from __future__ import annotations

from tests.support.snapshots import flow, partition
from twinlog.control.duties.publication import LONGEST_TEXT, published
from twinlog.control.watch.latency import SpreadWindow
from twinlog.control.watch.verified import Verified
from twinlog.mirror.copy.timings import TimingSum
from twinlog.mirror.state.published import MOST_UNUSUAL, Proof, published_status


def test_partitions_that_are_simply_copied_are_only_counted() -> None:
    found = published(
        flow(
            partition(number=0),
            partition(number=1, state="COPYING", lag=50),
            partition(number=2, state="FAILED", code="DIVERGED", message="no"),
            partition("audit", state="PAUSED"),
            reason="why",
            loss_records=50,
            loss_ms=700,
            loss_unknown=1,
        ),
        every_ms=5000,
    )
    assert (found.partitions, found.records, found.bytes) == (4, 400, 40_000)
    assert [(one.topic, one.partition, one.state, one.code) for one in found.unusual] == [
        ("orders", 2, "FAILED", "DIVERGED"),
        ("audit", 0, "PAUSED", ""),
    ]
    assert (found.reason, found.loss_records, found.loss_ms, found.loss_unknown) == (
        ("why", 50, 700, 1)
    )


def test_lag_objective_and_last_verification_are_published() -> None:
    found = published(
        flow(
            partition(lag=7),
            partition(number=1, lag=5),
            partition(number=2, lag=None),
            rpo_ms=30_000,
            rpo_excess="é" * 5 * LONGEST_TEXT,
            verified=Verified(mode="full", at_ms=9, records=80, differences=1, is_complete=True),
        ),
        every_ms=5000,
    )
    assert (found.lag, found.lag_unknown, found.rpo_ms) == (12, 1, 30_000)
    assert len(found.rpo_excess) == LONGEST_TEXT
    assert found.proof == Proof(mode="full", at_ms=9, records=80, differences=1, is_complete=True)
    assert published_status("A->B", [found.encode()]) == found


def test_a_row_is_readable_after_a_batch_with_an_impossible_timestamp() -> None:
    """Brokers accept every negative timestamp. A latency of millions of years would be outside the
    bounds of the row, so that no other host could read the row.
    """
    timings, window = TimingSum(), SpreadWindow()
    for timestamp_ms in (-(2**63), 1_799_999_999_995):
        timings.add(1_800_000_000_000, timestamp_ms)
    window.add(0.0, timings.pop())
    found = published(flow(latency=window.view(0.0)), every_ms=5000)
    assert (found.p50_ms, found.p99_ms) == (5, 5)
    assert published_status("A->B", [found.encode()]) == found


def test_a_row_is_as_old_as_the_numbers_in_it() -> None:
    assert published(flow(taken_ms=77), every_ms=5000).at_ms == 77


def test_ten_thousand_paused_partitions_hide_no_trouble_and_fit_into_a_small_row() -> None:
    parts = [partition("orders", number, state="PAUSED") for number in range(10_000)]
    bad = partition("pay", state="FAILED", code="DIVERGED", message="é" * 5 * LONGEST_TEXT)
    found = published(flow(*parts, bad, state="PAUSED"), every_ms=5000)
    assert (found.unusual_partitions, len(found.unusual)) == (10_001, MOST_UNUSUAL)
    assert found.unusual[0].code == "DIVERGED"
    key, value = found.encode()
    assert len(value) < 20_000
    assert published_status("A->B", [(key, value)]) == found
