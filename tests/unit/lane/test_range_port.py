"""The port at which Spark tasks get ranges (source records to be transformed) from a lane, over
real connections with the real client.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.driver import HandClock
from tests.support.eventually import eventually
from tests.support.one_copy import batch
from tests.support.python_transformer import transformed
from twinlog.channel.lending import LendingClient
from twinlog.errors import Disconnected
from twinlog.lane.sides.range_port import OFFERED_AGAIN_S, RangePort
from twinlog.mirror.copy.ranges import RangeAnswer, SourceRange

WITHIN_S = 10.0


class Rig:
    """A port, and the number of times that it has woken its lane."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.clock = HandClock()
        self.woken = threading.Semaphore(0)
        self.port = RangePort(self.clock, self.woken.release, host=host)

    def client(self) -> LendingClient:
        return LendingClient(self.port.address)


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"], ids=["this machine", "another host"])  # noqa: S104
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(request.param)
    assert (made.port.address.fingerprint is None) == (request.param == "127.0.0.1")
    yield made
    made.port.close()


def a_range(number: int) -> SourceRange:
    return SourceRange(
        number=number,
        topic="orders",
        partition=3,
        transform="ab",
        first=0,
        end=5,
        batches=batch(0, 5),
    )


def answer(number: int, *, keeps: bool = True) -> RangeAnswer:
    return transformed(a_range(number), lambda record: record if keeps else None)


def numbers(client: LendingClient) -> list[int]:
    return [one.number for one in client.offers(WITHIN_S)]


def test_range_is_offered_lent_and_answered(rig: Rig) -> None:
    rig.port.offer(a_range(7))
    with rig.client() as application, rig.client() as task:
        application.subscribe()
        (offer,) = application.offers(WITHIN_S)
        assert (offer.number, offer.partition, offer.transform) == (7, 3, "ab")
        assert (offer.first, offer.end, offer.size) == (0, 5, len(batch(0, 5)))
        rig.port.offer(a_range(8))
        assert numbers(application) == [8]
        assert task.request_range(7) == a_range(7)
        task.send_answer(answer(7))
    assert rig.woken.acquire(timeout=WITHIN_S)
    assert rig.port.answers() == [answer(7)]
    assert rig.port.answers() == []


def test_first_answer_counts_and_later_ones_are_confirmed(rig: Rig) -> None:
    rig.port.offer(a_range(7))
    with rig.client() as task, rig.client() as twin:
        task.send_answer(answer(7))
        twin.send_answer(answer(7, keeps=False))
        assert twin.request_range(7) is None
        assert rig.port.answers() == [answer(7)]
        twin.send_answer(answer(7, keeps=False))
    assert rig.port.answers() == []


def test_withdrawn_range_is_not_lent_and_its_answer_is_dropped(rig: Rig) -> None:
    for number in (7, 8):
        rig.port.offer(a_range(number))
    with rig.client() as task:
        task.send_answer(answer(8))
        for number in (7, 8):
            rig.port.withdraw(number)
        assert task.request_range(7) is None
        task.send_answer(answer(7))
    assert rig.port.answers() == []


def test_next_application_is_offered_the_ranges_that_the_last_one_left(rig: Rig) -> None:
    for number in (7, 8):
        rig.port.offer(a_range(number))
    with rig.client() as application:
        application.subscribe()
        assert numbers(application) == [7, 8]
        assert application.request_range(7) is not None
        application.send_answer(answer(8))
    with rig.client() as another:
        another.subscribe()
        assert numbers(another) == [7]


def test_range_that_is_not_answered_in_time_is_offered_again(rig: Rig) -> None:
    with rig.client() as application:
        application.subscribe()
        assert numbers(application) == []
        rig.port.offer(a_range(7))
        assert numbers(application) == [7]
        rig.clock.now += OFFERED_AGAIN_S - 1
        rig.port.answers()
        rig.port.offer(a_range(8))
        assert numbers(application) == [8]
        rig.clock.now += 1
        rig.port.answers()
        assert numbers(application) == [7]


@pytest.mark.parametrize(
    ("answered", "late"),
    [
        ([], [7, 8, 9]),
        ([(59, 7)], []),
        ([(59, 8)], []),
        ([(59, 9)], []),
        ([(30, 9), (59, 8)], [7]),
        ([(30, 8), (59, 7)], []),
    ],
    ids=["silent", "earlier", "between", "later", "left out", "in turn"],
)
def test_range_is_unanswered_if_nothing_happens_before_its_turn(
    rig: Rig, answered: list[tuple[float, int]], late: list[int]
) -> None:
    for number in (7, 8, 9):
        rig.port.offer(a_range(number))
    began = rig.clock.now
    with rig.client() as task:
        for at, number in answered:
            rig.clock.now = began + at
            task.send_answer(answer(number))
    rig.clock.now = began + 59
    rig.port.offer(a_range(10))
    assert rig.port.unanswered(60) == []
    rig.clock.now = began + 60 + (30 if late == [7] else 0)
    assert [one.number for one in rig.port.unanswered(60)] == late


def test_client_without_the_ticket_gets_nothing(rig: Rig) -> None:
    rig.port.offer(a_range(7))
    client = LendingClient(replace(rig.port.address, token="guessed"))
    with client, pytest.raises(Disconnected):
        client.subscribe()
        while True:
            client.offers(WITHIN_S)


def test_lane_ends_if_no_connection_is_served_any_more(rig: Rig) -> None:
    rig.port.close()
    eventually(lambda: not rig.port._server.is_alive)
    with pytest.raises(Exception, match="THREAD_DIED"):
        rig.port.answers()
