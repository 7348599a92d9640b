"""The demo's comparison detects every way in which two logs can differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.demo.checker import Comparer, LogSide, SeenRecord

LOG = [
    SeenRecord(
        offset=number,
        timestamp=1_700_000_000_000 + number,
        timestamp_type=1,
        key=f"order-{number}".encode(),
        value=b'{"total":129}' if number % 7 else None,
        headers=(("hop", b"a"), ("hop", b"b"), ("coupon", None)),
    )
    for number in range(50)
]


def compared(source: Iterable[SeenRecord], target: Iterable[SeenRecord]) -> Comparer:
    comparer = Comparer()
    for record in source:
        comparer.add(LogSide.SOURCE, "orders", 0, record)
    for record in target:
        comparer.add(LogSide.TARGET, "orders", 0, record)
    return comparer


def is_complete(comparer: Comparer) -> bool:
    """Return True if every record of either side has an equal counterpart."""
    return not comparer.differences and not any(comparer.waiting(side) for side in LogSide)


def test_equal_logs_are_identical_whatever_their_offsets() -> None:
    comparer = compared(LOG, [replace(one, offset=one.offset + 7) for one in LOG])
    assert is_complete(comparer)
    assert comparer.compared == 50


@pytest.mark.parametrize("at", range(12))
def test_one_flipped_byte_is_seen(at: int) -> None:
    value = LOG[23].value
    assert value is not None
    flipped = bytes(byte ^ 1 if where == at else byte for where, byte in enumerate(value))
    comparer = compared(LOG, [*LOG[:23], replace(LOG[23], value=flipped), *LOG[24:]])
    difference = "orders-0: source offset 23 and target offset 23 differ in value"
    assert comparer.differences == [difference]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"key": None}, "key"),
        ({"key": b""}, "key"),
        ({"value": b""}, "value"),
        ({"timestamp": 1_700_000_000_022}, "timestamp"),
        ({"timestamp_type": 2}, "timestamp_type"),
        ({"headers": ()}, "headers"),
        ({"headers": (("hop", b"b"), ("hop", b"a"), ("coupon", None))}, "headers"),
        ({"headers": (("hop", b"a"), ("hop", b"b"), ("coupon", b""))}, "headers"),
    ],
)
def test_every_part_of_a_record_counts(change: dict[str, Any], field: str) -> None:
    comparer = compared(LOG, [*LOG[:21], replace(LOG[21], **change), *LOG[22:]])
    difference = f"orders-0: source offset 21 and target offset 21 differ in {field}"
    assert comparer.differences == [difference]


def test_a_lost_record_is_seen() -> None:
    comparer = compared(LOG, [*LOG[:10], *LOG[11:]])
    assert comparer.differences[0].startswith("orders-0: source offset 10 and target offset 11 ")


def test_a_lost_last_record_keeps_it_incomplete() -> None:
    comparer = compared(LOG, LOG[:-1])
    assert not comparer.differences
    assert not is_complete(comparer)
    assert comparer.waiting(LogSide.SOURCE) == 1


def test_a_doubled_record_is_seen() -> None:
    assert compared(LOG, [*LOG[:10], LOG[9], *LOG[10:]]).differences


def test_a_doubled_last_record_keeps_it_incomplete() -> None:
    comparer = compared(LOG, [*LOG, LOG[-1]])
    assert not is_complete(comparer)
    assert comparer.waiting(LogSide.TARGET) == 1


def test_two_records_in_the_wrong_order_are_seen() -> None:
    assert compared(LOG, [*LOG[:10], LOG[11], LOG[10], *LOG[12:]]).differences


def test_only_the_first_place_of_a_partition_is_reported() -> None:
    comparer = compared(LOG, LOG[5:])
    assert len(comparer.differences) == 1
    assert comparer.compared == 45


def test_a_side_that_is_far_ahead_is_read_no_further() -> None:
    comparer = Comparer(queue_records=3)
    for record in LOG[:3]:
        assert comparer.has_room(LogSide.SOURCE, "orders", 0)
        comparer.add(LogSide.SOURCE, "orders", 0, record)
    assert not comparer.has_room(LogSide.SOURCE, "orders", 0)
    assert comparer.has_room(LogSide.TARGET, "orders", 0)
    assert comparer.has_room(LogSide.SOURCE, "orders", 1)
    comparer.add(LogSide.TARGET, "orders", 0, LOG[0])
    assert comparer.has_room(LogSide.SOURCE, "orders", 0)


@given(st.lists(st.tuples(st.sampled_from(list(LogSide)), st.integers(0, 2)), max_size=300))
def test_any_order_of_arrival_gives_the_same_answer(turns: list[tuple[LogSide, int]]) -> None:
    comparer = Comparer()
    read = {(side, partition): 0 for side in LogSide for partition in range(3)}
    rest = [(side, partition) for side in LogSide for partition in range(3) for _ in LOG]
    for side, partition in [*turns, *rest]:
        at = read[side, partition]
        if at < len(LOG):
            read[side, partition] += 1
            comparer.add(side, "orders", partition, LOG[at])
    assert is_complete(comparer)
    assert comparer.compared == 3 * len(LOG)
