"""A peer exceeds a limit of the channel. Either end closes the connection with CHANNEL_FRAME or
CHANNEL_OVERFLOW, over real sockets.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from tests.support.eventually import PATIENCE_S
from twinlog.channel.client import ChannelClient
from twinlog.channel.codec import Message, MessageCodec
from twinlog.channel.frames import (
    HELLO,
    MAX_FRAME_BYTES,
    MAX_UNSENT_BYTES,
    PING,
    PONG,
    ChannelAddress,
    LaneIdentity,
    frame,
    hello_payload,
)
from twinlog.channel.server import ChannelEvent, ChannelServer, LaneConnected, LaneGone
from twinlog.errors import CorruptData


class Note(Message, frozen=True, kw_only=True):
    text: str


CODEC = MessageCodec((Note,))
LANE = LaneIdentity(lease=1, lane=2, attempt=0, pid=4711)
TOO_LONG = struct.pack(">I", MAX_FRAME_BYTES + 1)


class Driver:
    """A real channel server, and the queue of the events that it has delivered."""

    def __init__(self) -> None:
        self._events: queue.Queue[ChannelEvent] = queue.Queue()
        self.server = ChannelServer(CODEC, self._events.put)
        self.server.start()
        self._secrets = self.server.secrets.open(LANE.lease, 20)

    def address_of(self, identity: LaneIdentity) -> ChannelAddress:
        """Return the server's address with the secret of this lane."""
        return replace(self.server.address, token=self._secrets[identity.lane])

    def connected(self) -> LaneConnected:
        event = self._events.get(timeout=PATIENCE_S)
        assert isinstance(event, LaneConnected), event
        return event

    def gone(self) -> LaneGone:
        while not isinstance(event := self._events.get(timeout=PATIENCE_S), LaneGone):
            pass
        return event


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    try:
        yield made
    finally:
        made.server.close()


@contextmanager
def plain_lane(driver: Driver) -> Iterator[socket.socket]:
    """A socket that has authenticated as a lane. The test then sends any bytes over it."""
    address = driver.address_of(LANE)
    with socket.create_connection((address.host, address.port)) as sock:
        sock.sendall(frame(HELLO, hello_payload(address.token, LANE)))
        yield sock


@contextmanager
def plain_driver() -> Iterator[tuple[ChannelAddress, queue.Queue[socket.socket]]]:
    """A driver that accepts one lane. The test then sends any bytes to this lane."""
    accepted: queue.Queue[socket.socket] = queue.Queue()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                accepted.put(listener.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield (
            ChannelAddress(host="127.0.0.1", port=listener.getsockname()[1], token="t" * 43),
            accepted,
        )


def said_to_a_lane(data: bytes) -> CorruptData:
    """Return the error that a lane raises when its driver sends these bytes."""
    with plain_driver() as (address, accepted):
        client = ChannelClient.connect(address, LANE, CODEC)
        with accepted.get(timeout=PATIENCE_S) as sock:
            sock.sendall(data)
            with pytest.raises(CorruptData) as caught:
                while True:
                    client.receive()
        client.close()
    return caught.value


def test_a_lane_whose_frame_is_over_the_limit_is_disconnected_and_the_next_one_is_served(
    driver: Driver,
) -> None:
    with plain_lane(driver) as sock:
        peer = driver.connected().peer
        sock.sendall(TOO_LONG)
        gone = driver.gone()
    assert gone.peer is peer
    assert gone.reason.endswith("[CHANNEL_FRAME]")
    client = ChannelClient.connect(
        driver.address_of(replace(LANE, lane=3)), replace(LANE, lane=3), CODEC
    )
    assert driver.connected().peer.identity.lane == 3
    client.close()


def test_a_driver_whose_frame_is_over_the_limit_is_not_read_on() -> None:
    error = said_to_a_lane(TOO_LONG)
    assert error.code == "CHANNEL_FRAME"
    assert f"length {MAX_FRAME_BYTES + 1};" in error.message


def test_a_pong_of_a_wrong_length_is_no_proof_of_life() -> None:
    assert said_to_a_lane(frame(PONG, b"abc")).code == "CHANNEL_FRAME"


def test_a_message_over_the_limit_is_not_sent(driver: Driver) -> None:
    client = ChannelClient.connect(driver.address_of(LANE), LANE, CODEC)
    driver.connected()
    with pytest.raises(CorruptData) as caught:
        client.send(Note(text="x" * MAX_FRAME_BYTES))
    assert caught.value.code == "CHANNEL_FRAME"
    client.close()


def test_a_lane_that_does_not_read_is_given_up_by_its_code(driver: Driver) -> None:
    with plain_lane(driver):
        peer = driver.connected().peer
        for _ in range(4):
            peer.send(Note(text="x" * (MAX_UNSENT_BYTES // 3)))
        assert driver.gone().reason.endswith("[CHANNEL_OVERFLOW]")


def test_a_lane_that_pings_and_does_not_read_costs_bounded_memory(driver: Driver) -> None:
    """The driver answers every ping. A lane that sends pings and reads nothing must not fill the
    driver's memory with answers, so its connection is closed.
    """
    pings = frame(PING, bytes(1 << 20)) * 8
    with plain_lane(driver) as sock:
        driver.connected()
        sock.settimeout(30)
        with suppress(OSError):  # the driver closes the connection in the meantime
            for _ in range(4 * MAX_UNSENT_BYTES // len(pings)):
                sock.sendall(pings)
        assert driver.gone().reason.endswith("[CHANNEL_OVERFLOW]")


def test_a_lane_stops_when_its_driver_does_not_read() -> None:
    with plain_driver() as (address, accepted):
        client = ChannelClient.connect(address, LANE, CODEC)
        with accepted.get(timeout=PATIENCE_S), pytest.raises(CorruptData) as caught:
            for _ in range(8):
                client.send(Note(text="x" * (MAX_UNSENT_BYTES // 3)))
        client.close()
    assert caught.value.code == "CHANNEL_OVERFLOW"
