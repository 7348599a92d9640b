"""What of a flow is written for other hosts: totals, and what is not normal, within bounds."""

from __future__ import annotations

from tests.support.snapshots import flow, partition
from twinlog.control.duties.publication import LONGEST_TEXT, published
from twinlog.mirror.state.published import MOST_UNUSUAL, published_status


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


def test_ten_thousand_paused_partitions_hide_no_trouble_and_fit_into_a_small_row() -> None:
    parts = [partition("orders", number, state="PAUSED") for number in range(10_000)]
    bad = partition("pay", state="FAILED", code="DIVERGED", message="é" * 5 * LONGEST_TEXT)
    found = published(flow(*parts, bad, state="PAUSED"), every_ms=5000)
    assert (found.unusual_partitions, len(found.unusual)) == (10_001, MOST_UNUSUAL)
    assert found.unusual[0].code == "DIVERGED"
    key, value = found.encode()
    assert len(value) < 20_000
    assert published_status("A->B", [(key, value)]) == found
