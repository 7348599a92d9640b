"""Ranges of offsets are split for tasks and cut at a limit. Parts of them that were deleted are
detected.
"""

from __future__ import annotations

import logging
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import RecordsLost
from twinlog.model import TopicPartition
from twinlog.records.gaps import (
    FEW_GAPS,
    GapCounter,
    GapPolicy,
    LogBounds,
    OffsetRange,
    existing_part,
    find_losses,
    report,
)
from twinlog.records.planning import grouped_ranges, limited_ends, split

SIZES = st.lists(st.integers(0, 1000), max_size=6)


def of(partition: int, first: int, end: int) -> OffsetRange:
    return OffsetRange(tp=TopicPartition("orders", partition), first=first, end=end)


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [of(at, 10 * at, 10 * at + size) for at, size in enumerate(sizes)]


@given(SIZES, st.none() | st.integers(1, 50))
def test_parts_are_all_of_the_ranges_and_at_least_so_many(
    sizes: list[int], least: int | None
) -> None:
    ranges = ranges_of(sizes)
    parts = split(ranges, least)
    offsets = [(one.tp, at) for one in ranges for at in range(one.first, one.end)]
    assert [(one.tp, at) for one in parts for at in range(one.first, one.end)] == offsets
    assert all(one.size for one in parts)
    assert len(parts) >= min(least or 0, sum(sizes))


@given(SIZES, st.integers(1, 500))
def test_small_neighbours_are_joined(sizes: list[int], most: int) -> None:
    ranges = ranges_of(sizes)
    groups = grouped_ranges(ranges, most)
    assert [one for group in groups for one in group] == ranges
    totals = [sum(one.size for one in group) for group in groups]
    assert all(
        total <= most or len(group) == 1 for total, group in zip(totals, groups, strict=True)
    )
    # the first range of a group did not fit into the group before
    assert all(
        total + behind[0].size > most for total, behind in zip(totals, groups[1:], strict=False)
    )


def test_a_task_reads_no_more_than_some_ranges() -> None:
    groups = grouped_ranges(ranges_of([1] * 40), 1000)
    assert [len(group) for group in groups] == [16, 16, 8]


def test_larger_ranges_get_more_parts() -> None:
    parts = split([of(0, 0, 900), of(1, 0, 100)], 10)
    assert [one.tp.partition for one in parts] == [0] * 9 + [1]
    assert {one.size for one in parts} == {100}


@given(SIZES, st.integers(1, 5000))
def test_a_limit_holds_and_every_range_moves(sizes: list[int], most: int) -> None:
    ranges = ranges_of(sizes)
    ends = limited_ends(ranges, most)
    taken = {one.tp: ends[one.tp] - one.first for one in ranges}
    assert all(0 <= taken[one.tp] <= one.size for one in ranges)
    assert all(taken[one.tp] > 0 for one in ranges if one.size)
    assert sum(taken.values()) <= most + len(ranges)
    if sum(sizes) <= most:
        assert {one.tp: one.end for one in ranges} == ends


def test_bytes_are_shared_by_bytes_per_offset() -> None:
    heavy, light = of(0, 0, 100), of(1, 0, 100)
    ends = limited_ends([heavy, light], 5_500, {heavy.tp: 100.0, light.tp: 10.0})
    assert ends == {heavy.tp: 50, light.tp: 50}


def test_records_deleted_by_retention() -> None:
    (loss,) = find_losses(of(0, 10, 50), LogBounds(start=20, end=90))
    assert (loss.code, loss.lost) == ("RETENTION", (10, 20))
    assert "orders-0: offsets [10, 20) were deleted" in loss.message
    assert existing_part(of(0, 10, 50), LogBounds(start=20, end=90)) == of(0, 20, 50)
    assert existing_part(of(0, 10, 50), LogBounds(start=70, end=90)).size == 0


@pytest.mark.parametrize(
    ("wanted", "lost"),
    [((10, 50), (5, 50)), ((3, 50), (5, 50)), ((10, 10), (5, 10))],
    ids=["behind", "half", "position"],
)
def test_truncated_records(wanted: tuple[int, int], lost: tuple[int, int]) -> None:
    bounds = LogBounds(start=0, end=5)
    (loss,) = find_losses(of(0, *wanted), bounds)
    assert (loss.code, loss.lost) == ("TRUNCATED", lost)
    left = existing_part(of(0, *wanted), bounds)
    assert (left.end, left.size) == (5, max(0, 5 - wanted[0]))


@pytest.mark.parametrize("wanted", [(10, 50), (20, 20), (50, 50)], ids=["all", "start", "end"])
def test_existing_records_are_no_loss(wanted: tuple[int, int]) -> None:
    bounds = LogBounds(start=10, end=50)
    assert find_losses(of(0, *wanted), bounds) == []
    assert existing_part(of(0, *wanted), bounds) == of(0, *wanted)
    report([], fails=True)


def test_an_empty_range_before_the_log_start_misses_nothing() -> None:
    assert find_losses(of(0, 5, 5), LogBounds(start=10, end=50)) == []


def test_a_loss_is_raised_or_reported(caplog: pytest.LogCaptureFixture) -> None:
    loss = find_losses(of(0, 10, 50), LogBounds(start=20, end=90))
    with caplog.at_level(logging.WARNING):
        report(loss, fails=False)
    assert "[10, 20)" in caplog.text
    assert "[RETENTION]" in caplog.text
    with pytest.raises(RecordsLost, match="failOnDataLoss=false reads the remaining records"):
        report(loss, fails=True)


def test_losses_at_both_ends_are_reported_separately(caplog: pytest.LogCaptureFixture) -> None:
    wanted, bounds = of(0, 0, 100), LogBounds(start=50, end=80)
    losses = find_losses(wanted, bounds)
    assert [(one.code, one.lost) for one in losses] == [
        ("RETENTION", (0, 50)),
        ("TRUNCATED", (80, 100)),
    ]
    report(losses, fails=False)
    assert ["[RETENTION]" in line for line in caplog.messages] == [True, False]
    with pytest.raises(
        RecordsLost, match=r"offsets \[0, 50\).*; and .*offsets \[80, 100\)"
    ) as caught:
        report(losses, fails=True)
    assert (caught.value.code, caught.value.lost) == ("RETENTION", (0, 50))
    assert existing_part(wanted, bounds) == of(0, 50, 80)


@pytest.mark.parametrize("bounds", [(60, 60), (50, 50)], ids=["behind", "at the end"])
def test_deleted_records_do_not_also_count_as_truncated(bounds: tuple[int, int]) -> None:
    start, end = bounds
    (loss,) = find_losses(of(0, 10, 50), LogBounds(start=start, end=end))
    assert (loss.code, loss.lost) == ("RETENTION", (10, 50))


def left_out(policy: GapPolicy, *, fails: bool = False) -> GapCounter:
    return GapCounter(of(0, 0, 0).tp, lambda: policy, fails=fails)


def test_gaps_of_a_topic_that_was_compacted_before(caplog: pytest.LogCaptureFixture) -> None:
    """The topic was compacted at an earlier time, so each batch may follow a gap. Only the first
    gaps are reported one by one. The last line has the number of the other gaps.
    """
    noted = left_out(GapPolicy.DELETES)
    for at in range(0, 20 * (FEW_GAPS + 3), 20):
        noted.between_batches(at, at + 10, 0)
    noted.log_counts()
    assert len(caplog.messages) == FEW_GAPS + 1
    assert caplog.messages[-1] == (
        "orders-0: 30 more offsets in [200, 250) are missing inside the log, in 3 gaps [LOG_GAP]"
    )


def test_a_gap_that_cannot_be_distinguished_from_compaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    noted = left_out(GapPolicy.HIDDEN, fails=True)
    noted.between_batches(3, 5, 0)
    noted.between_batches(7, 10, 0)
    noted.log_counts()
    (line,) = caplog.messages
    assert "no rows of 5 offsets in [3, 10): assumed to be compacted, but they may be lost" in line
    assert "DESCRIBE_CONFIGS" in line


def test_a_gap_that_the_log_start_has_passed(caplog: pytest.LogCaptureFixture) -> None:
    """The log start has moved past the offset that was requested, and the broker responds with
    later records. The gap is reported as RETENTION instead of LOG_GAP or compaction.
    """
    with pytest.raises(RecordsLost) as caught:
        left_out(GapPolicy.COMPACTS, fails=True).between_batches(3, 10, 10)
    assert (caught.value.code, caught.value.lost) == ("RETENTION", (3, 10))
    with pytest.raises(RecordsLost) as caught:
        left_out(GapPolicy.DELETES, fails=True).between_batches(3, 10, 2)
    assert (caught.value.code, caught.value.lost) == ("LOG_GAP", (3, 10))
    left_out(GapPolicy.DELETES).between_batches(3, 10, 7)
    assert "[3, 7)" in caplog.messages[0]
    assert "[7, 10)" in caplog.messages[1]


def test_a_loss_keeps_its_range_on_its_way_from_a_task() -> None:
    loss = RecordsLost("gone", code="TRUNCATED", lost=(3, 7))
    again = pickle.loads(pickle.dumps(loss))  # noqa: S301 (our own)
    assert (again.code, again.lost, str(again)) == ("TRUNCATED", (3, 7), "gone [TRUNCATED]")
