"""Ranges and answers pass between a lane's port and the transforms' application, over real
sockets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.range_port import StubPort, offer_of
from twinlog.channel.lending import LendingClient, LendingCodec, RequestRange
from twinlog.errors import CorruptData, Disconnected
from twinlog.mirror.copy.ranges import RangeAnswer, RangeFailure, SourceRange

BIG = SourceRange(
    number=7,
    topic="orders",
    partition=3,
    transform="d1",
    first=5,
    end=1 << 40,
    batches=bytes(range(256)) * (16 << 10),
)
ANSWER = RangeAnswer(
    number=7,
    batches=(BIG.batches, b""),
    offsets=b"12345678",
    end=9,
    failure=RangeFailure(offset=9, text="é"),
)


@pytest.fixture
def port() -> Iterator[StubPort]:
    made = StubPort()
    yield made
    made.close()


def test_a_range_is_offered_taken_and_answered_once(port: StubPort) -> None:
    with LendingClient(port.address) as application, LendingClient(port.address) as task:
        application.subscribe()
        assert application.offers(5.0) == ()
        port.offer([BIG])
        assert application.offers(5.0) == (offer_of(BIG),)
        assert application.offers(0.0) == ()
        assert task.request_range(BIG.number) == BIG
        task.send_answer(ANSWER)
        task.send_answer(replace_end(ANSWER))
        assert task.request_range(BIG.number) is None
        assert port.answers == {BIG.number: ANSWER}


def replace_end(answer: RangeAnswer) -> RangeAnswer:
    return RangeAnswer(number=answer.number, batches=(), offsets=b"", end=answer.end + 1)


def test_ranges_without_an_answer_are_offered_to_a_later_application(port: StubPort) -> None:
    port.offer([BIG])
    for _ in range(2):
        with LendingClient(port.address) as application:
            application.subscribe()
            assert application.offers(5.0) == (offer_of(BIG),)


def test_a_wrong_ticket_gets_nothing(port: StubPort) -> None:
    port.offer([BIG])
    with (
        LendingClient(replace(port.address, token="another")) as client,
        pytest.raises(Disconnected),
    ):
        client.request_range(BIG.number)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xc1", b"\x81\xa4type\xa4Work"])
def test_other_bytes_are_no_messages(data: bytes) -> None:
    codec = LendingCodec()
    assert codec.decode(codec.encode(RequestRange(3))) == RequestRange(3)
    with pytest.raises(CorruptData):
        codec.decode(data)
