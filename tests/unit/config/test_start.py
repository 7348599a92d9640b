"""`twinlog.start`: the meaning of its entries, and the messages about wrong entries."""

from __future__ import annotations

import pytest

from tests.support.properties import Loader, flow_of, refusal
from twinlog.config.values.warnings import WarningCode
from twinlog.model import EARLIEST, StartAt, StartKind, TopicPartition

LATEST = StartAt(StartKind.LATEST)
NOVEMBER = StartAt(StartKind.TIMESTAMP, 1_793_491_200_000)


def offset(value: int) -> StartAt:
    return StartAt(StartKind.OFFSET, value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("2026-11-01T00:00:00Z", NOVEMBER),
        ("2026-11-01 01:00:00+01:00", NOVEMBER),
        ("1793491200000", NOVEMBER),
        # fractions of a millisecond are rounded up, so that no older record is copied
        ("2026-10-31T23:59:59.999001Z", NOVEMBER),
        ("0=120;1=77", EARLIEST),
        ("3=120", offset(120)),
        ("orders:latest", LATEST),
        ("order.*:2026-11-01T00:00:00Z", NOVEMBER),
        ("(?:orders|b):2026-11-01T00:00:00Z", NOVEMBER),
        ("payments:latest, orders:3=5, .*:earliest", offset(5)),
        ("orders:latest, .*:earliest", LATEST),
        ("payments:latest, 1793491200000", NOVEMBER),
        ("payments:latest", EARLIEST),
        ("rders:latest", EARLIEST),
        ("", EARLIEST),
    ],
)
def test_precedence_of_start_entries_for_a_partition(
    read: Loader, value: str, expected: StartAt
) -> None:
    start = flow_of(read(f"A->B.twinlog.start = {value}")).start
    assert start.at(TopicPartition("orders", 3)) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["twinlog.start = latest"], LATEST),
        (["twinlog.start = latest", "twinlog.start.new = start"], LATEST),
        (["twinlog.start = latest", "twinlog.start.new = earliest"], EARLIEST),
        (["twinlog.start = 2026-11-01T00:00:00Z", "twinlog.start.new = earliest"], EARLIEST),
        (["A.consumer.auto.offset.reset = latest", "twinlog.start.new = earliest"], EARLIEST),
        (["twinlog.start = orders:3=5", "twinlog.start.new = earliest"], offset(5)),
    ],
)
def test_precedence_for_topics_created_while_the_mirror_runs(
    read: Loader, lines: list[str], expected: StartAt
) -> None:
    start = flow_of(read(*lines)).start
    orders = TopicPartition("orders", 3)
    assert start.at(orders, is_new=True) == expected
    assert start.at(orders) == flow_of(read(*lines[:1])).start.at(orders)


def test_the_reset_counts_where_nothing_else_is_reported(read: Loader) -> None:
    start = flow_of(
        read("A.consumer.auto.offset.reset = latest", "twinlog.start = a:0=7, b:earliest")
    ).start
    assert start.at(TopicPartition("a", 0)) == offset(7)
    assert start.at(TopicPartition("a", 1)) == LATEST
    assert start.at(TopicPartition("b", 0)) == EARLIEST
    assert start.at(TopicPartition("c", 0)) == LATEST


def test_the_flows_own_line_and_the_new_name_win(read: Loader) -> None:
    lines = ["twinlog.start = earliest", "A->B.twinlog.start = latest"]
    assert str(flow_of(read(*lines)).start) == "latest"
    config = read("twinlog.source.start = latest", "twinlog.start = orders:earliest")
    assert str(flow_of(config).start) == "orders:earliest, earliest"


def test_the_old_name_acts_with_a_warning(read: Loader) -> None:
    config = read("twinlog.source.start = latest")
    assert flow_of(config).start.at(TopicPartition("orders", 0)) == LATEST
    (warning,) = [one for one in config.warnings if one.code is WarningCode.DEPRECATED_KEY]
    assert "write twinlog.start" in str(warning)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("now", '"now" is not a start'),
        ("orders", '"orders" is not a start'),
        ("orders:", '"" is not a start'),
        ("orders:latest,, b:latest", '"" is not a start'),
        (":latest", '":latest" has no topic pattern'),
        ("orders:2026-11-01T00:00:00", "has no time zone; write 2026-11-01T00:00:00Z"),
        ("orders:2026-11-01", "has no time zone; write 2026-11-01T00:00:00Z"),
        ("orders:2026-13-01T00:00:00Z", '"2026-13-01T00:00:00Z" is not a time; write 2026-'),
        ("orders:1970-01-01T00:00:00Z", "is before 1974; write a later time"),
        (
            "orders:1793491200",
            "1793491200 is not a plausible time in milliseconds; write milliseconds",
        ),
        ("orders:120", "0=120 for an offset"),
        ("orders:0=1;0=2", "has a partition twice"),
        ("orders:0=1;1", "is not a start"),
        ("orders:-1=1", '"-1=1" is not a start'),
        ("(:latest", "column 1: this ( is not closed"),
        ("latest, orders:earliest", 'entries after "latest" have no effect; put latest last'),
    ],
)
def test_a_wrong_one_is_one_line_with_its_place(read: Loader, value: str, what: str) -> None:
    message = refusal(lambda: read(f"A->B.twinlog.start = {value}"))
    assert message.startswith("mm2.properties:5: A->B.twinlog.start: ")
    assert what in message
    assert "\n" not in message
