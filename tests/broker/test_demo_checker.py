"""The demo's checker on real logs: it accepts equal logs and detects one flipped byte."""

from __future__ import annotations

import pytest

from tests.support.client import Outgoing, produce
from tests.support.eventually import eventually
from tests.support.topics import create_topic
from twinlog.demo.checker import Checker
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

RECORDS = [
    Outgoing(
        key=f"k{number}".encode(),
        value=None if number % 9 == 0 else f"value {number}".encode(),
        headers=(("h", b"1"), ("h", None)),
        timestamp=1_700_000_000_000 + number,
        partition=number % 2,
    )
    for number in range(200)
]


def flipped(record: Outgoing) -> Outgoing:
    assert isinstance(record.value, bytes)
    return record._replace(value=bytes([record.value[0] ^ 1]) + record.value[1:])


@pytest.fixture
def topics(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> tuple[str, str]:
    create_topic(source_cluster, fresh_topic, 2)
    produce(source_cluster, fresh_topic, RECORDS)
    return fresh_topic, create_topic(target_cluster, f"eu.{fresh_topic}", 2)


class Errors(list[BaseException]):
    """The exceptions that ended a checker's thread."""


@pytest.fixture
def checker(
    source_cluster: LocalCluster, target_cluster: LocalCluster, topics: tuple[str, str]
) -> Checker:
    topic, remote = topics
    return Checker(
        source_cluster.bootstrap, target_cluster.bootstrap, {topic: remote}, Errors().append
    )


def test_equal_logs(
    checker: Checker, target_cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    checker.start()
    eventually(lambda: checker.state.on_the_way == len(RECORDS))
    produce(target_cluster, topics[1], RECORDS)
    eventually(lambda: checker.state.compared == len(RECORDS))
    checker.stop()
    assert checker.state.differences == ()
    assert (checker.state.on_the_way, checker.state.surplus) == (0, 0)


@pytest.mark.witness("the demo's comparison finds one flipped byte")
def test_one_flipped_byte(
    checker: Checker, target_cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    produce(
        target_cluster,
        topics[1],
        [flipped(one) if at == 101 else one for at, one in enumerate(RECORDS)],
    )
    checker.start()
    eventually(lambda: checker.state.compared == len(RECORDS))
    checker.stop()
    assert checker.state.differences == (
        f"{topics[0]}-1: source offset 50 and target offset 50 differ in value",
    )


def test_an_extra_record(
    checker: Checker, target_cluster: LocalCluster, topics: tuple[str, str]
) -> None:
    produce(target_cluster, topics[1], [*RECORDS, RECORDS[-1]])
    checker.start()
    eventually(lambda: checker.state.surplus == 1)
    checker.stop()
    assert checker.state.differences == ()
