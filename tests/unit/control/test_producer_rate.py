"""The quota of producers while the RPO is exceeded, with a manual clock."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.snapshots import partition
from twinlog.codes import PartitionState
from twinlog.control.duties.producer_rate import (
    ADJUST_S,
    IN_VAIN_S,
    LEAST,
    MOST_LOWERINGS,
    STOPPED_AFTER_S,
    ProducerRate,
    WaitingCounts,
    curable_loss_ms,
)

RPO_MS = 30_000
SPEED = 10_000_000
"""Speed of the copy in bytes per second."""


class Copy:
    """A copy in progress, which is observed every two seconds."""

    def __init__(self, waiting: int = 0) -> None:
        self.rate = ProducerRate(RPO_MS)
        self.at, self.bytes, self.waiting = 0.0, 0, waiting
        self.next_rate(0)

    def next_rate(
        self, loss_ms: int | None, *, speed: int = SPEED, brokers: int = 1, more: int = 10
    ) -> int | None:
        self.at += 2.0
        self.bytes += 2 * speed
        self.waiting += more
        return self.rate.next_rate(
            self.at, loss_ms, self.bytes, brokers, WaitingCounts(1, self.waiting)
        )

    def held(self) -> int:
        for _ in range(3):
            found = self.next_rate(RPO_MS + 1000)
        assert found is not None
        return found


def test_nothing_is_held_back_while_the_rpo_is_kept() -> None:
    copy = Copy()
    assert {copy.next_rate(loss) for loss in range(0, RPO_MS, 1000)} == {None}


def test_producers_get_half_of_the_copys_rate() -> None:
    assert Copy().held() == SPEED // 2


def test_a_quota_holds_for_each_broker() -> None:
    copy = Copy()
    assert [copy.next_rate(RPO_MS + 1, brokers=4) for _ in range(3)][-1] == SPEED // 8


def test_they_are_held_until_half_of_it_is_kept_again() -> None:
    copy = Copy()
    first = copy.held()
    assert {copy.next_rate(loss) for loss in range(RPO_MS, RPO_MS // 2, -1000)} == {first}
    assert copy.next_rate(RPO_MS // 2) is None
    assert copy.next_rate(RPO_MS - 1) is None, "and not again before it is exceeded again"


def test_they_get_less_where_the_loss_grows_on_and_never_nothing() -> None:
    copy = Copy()
    rates = [copy.next_rate(RPO_MS + 1 + more) for more in range(0, 600_000, 2_000)]
    found = [rate for rate in rates if rate is not None]
    assert found == sorted(found, reverse=True)
    assert 4 < len({*found}) < 300 * 2 / ADJUST_S + 2, "not at each look"
    assert found[-1] == LEAST


def test_an_ineffective_quota_is_removed() -> None:
    """The quota has no effect, because some users have their own quotas and continue to write. It
    is removed, so that other users are not stopped in vain. Later it is tried again, because those
    users may have stopped.
    """
    copy = Copy()
    copy.held()
    rates = [copy.next_rate(RPO_MS + 1 + 2000 * at) for at in range(int(MOST_LOWERINGS * ADJUST_S))]
    assert rates[-1] is None
    assert copy.rate.is_in_vain
    again = [copy.next_rate(9_000_000 + 2000 * at) for at in range(int(IN_VAIN_S / 2))]
    assert again[0] is None
    assert again[-1] is not None, "the others may be gone by now"


def test_a_copy_that_catches_up_throttles_no_producer() -> None:
    copy = Copy(waiting=100_000)  # the history of a topic: its records are a day old
    found = [copy.next_rate(86_400_000 + at, more=-100) for at in range(100)]
    assert {*found} == {None}
    assert [copy.next_rate(86_400_000, more=200) for _ in range(20)][-1] is not None


def test_they_get_no_less_where_less_and_less_waits() -> None:
    copy = Copy()
    first = copy.held()
    for _ in range(10):
        copy.next_rate(RPO_MS + 1000, more=-10)
    held = copy.rate.rate
    assert {copy.next_rate(RPO_MS + at, more=-10) for at in range(100)} == {held}
    assert held is not None
    assert held > first // 2


def test_partitions_that_become_known_are_nothing_that_grows() -> None:
    copy = Copy()
    at, copied = copy.at, copy.bytes
    waiting = [
        WaitingCounts(0, 0),
        WaitingCounts(0, 0),
        WaitingCounts(1, 600),
        WaitingCounts(1, 581),
        WaitingCounts(1, 562),
    ]
    for more, one in enumerate(waiting, start=1):
        assert copy.rate.next_rate(at + 2 * more, 86_400_000, copied + more * SPEED, 1, one) is None


def test_a_stopped_copy_throttles_no_producer() -> None:
    copy = Copy()
    copy.held()
    standing = [copy.next_rate(60_000, speed=0) for _ in range(int(STOPPED_AFTER_S))]
    assert standing[0] is not None, "a moment is no outage"
    assert standing[-1] is None
    assert copy.next_rate(90_000) is not None, "it moves again"


def test_a_copy_that_never_moved_throttles_no_producer() -> None:
    rate = ProducerRate(RPO_MS)
    assert {
        rate.next_rate(2.0 * at, 10 * RPO_MS, 0, 1, WaitingCounts(1, at)) for at in range(100)
    } == {None}


def test_a_loss_that_is_not_known_changes_nothing() -> None:
    copy = Copy()
    assert copy.next_rate(None) is None
    first = copy.held()
    assert {copy.next_rate(None) for _ in range(20)} == {first}


def test_bytes_of_partitions_that_left_are_no_speed() -> None:
    copy = Copy()
    copy.held()
    copy.bytes = 0
    copy.next_rate(0)
    found = [copy.next_rate(RPO_MS + 1) for _ in range(5)]
    assert found[-1] == SPEED // 2


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({"state": PartitionState.COPYING}, 9000),
        ({"state": PartitionState.AT_END, "lag": 0}, 0),  # only an open transaction is not copied
        ({"state": PartitionState.COPYING, "code": "RECORD_TOO_LARGE"}, 0),
        ({"state": PartitionState.PAUSED}, 0),
    ],
    ids=["copied", "waits for a transaction", "has stopped", "paused"],
)
def test_producers_are_throttled_only_for_a_loss_that_they_can_reduce(
    what: dict[str, Any], expected: int
) -> None:
    late = partition(**{"lag": 5, "loss_ms": 9000, **what})
    assert curable_loss_ms([partition(lag=0, loss_ms=100), late]) == expected
    assert curable_loss_ms([]) == 0


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 10 * RPO_MS), st.integers(0, 10**9)), max_size=60)
)
def test_throttled_producers_get_a_minimum_and_only_beyond_the_rpo(
    losses: list[tuple[int | None, int]],
) -> None:
    rate, copied, exceeded = ProducerRate(RPO_MS), 0, False
    for at, (loss, more) in enumerate(losses):
        copied += more
        found = rate.next_rate(2.0 * at, loss, copied, 3, WaitingCounts(1, at))
        exceeded = exceeded or (loss or 0) > RPO_MS
        exceeded = exceeded and (loss is None or loss > RPO_MS // 2)
        assert found is None or (exceeded and found >= LEAST)
