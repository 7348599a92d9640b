"""The sockets for which a turn of the lane waits. The brokers are the ends of socket pairs."""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.driver import work_of
from twinlog.clock import boot_clock
from twinlog.cluster.net.hot_connection import HotConnection
from twinlog.lane import loop as lane_loop
from twinlog.lane.loop import LaneLoop
from twinlog.lane.messages import EndLane
from twinlog.lane.sides.source_side import WaitsFor
from twinlog.model import TopicPartition

NODE = 1
LONG_S = 0.5
"""Time in seconds that is longer than any turn that finds something ready."""


class Channel:
    """A channel whose driver sends nothing. Each call sends one of the waiting messages."""

    def __init__(self) -> None:
        self.here, self.there = socket.socketpair()
        self.last_heard = boot_clock()
        self.unsent = list[object]()

    def fileno(self) -> int:
        return self.here.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self.unsent)

    def receive(self) -> list[object]:
        self.flush()
        return []

    def send(self, message: object) -> None:
        self.unsent.append(message)

    def flush(self) -> None:
        del self.unsent[:1]


class Opened:
    """The attributes of a connection that `HotConnection` uses."""

    host, port, session_ends_at, trip_s = "target", 9092, None, 0.0

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.api_versions = sock, dict[int, tuple[int, int]]()

    def detach(self) -> socket.socket:
        return self._sock


class Lane:
    """A lane's loop. The beginning of a response of the target waits in the socket."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.loop = LaneLoop(cast("Any", self.channel), work_of())
        here, self.broker = socket.socketpair()
        side = self.loop._target_cluster
        self.connection = HotConnection(cast("Any", Opened(here)), "lane", side.pool, side.traffic)
        side.connections[NODE] = self.connection
        side.selector.register(self.connection, selectors.EVENT_READ, (side, NODE))
        self.broker.send(b"\0\0")  # the beginning of a response

    def steady_until(self, at: float) -> None:
        source = self.loop._assignments.source
        source._steady_until = at
        source._brokers[NODE] = cast("Any", SimpleNamespace(is_fetching=True))

    def turn(self) -> float:
        """Run one turn, and return the seconds that it waited."""
        began = time.monotonic()
        self.loop._take_events()
        return time.monotonic() - began

    @property
    def has_read(self) -> int:
        """Return the number of bytes that were read from the target."""
        return self.loop._target_cluster.traffic.received


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lane]:
    monkeypatch.setattr(lane_loop, "HELD_S", LONG_S)
    monkeypatch.setattr(lane_loop, "IDLE_TURN_S", 10 * LONG_S)
    made = Lane()
    yield made
    for one in (made.broker, made.channel.here, made.channel.there):
        one.close()
    made.loop._target_cluster.close()
    made.loop._background.close()
    made.loop._target_selector.close()
    made.loop._selector.close()


def test_response_of_the_target_wakes_a_lane_without_steady_traffic(lane: Lane) -> None:
    assert lane.turn() < LONG_S
    assert lane.has_read == 2


def test_response_of_the_target_waits_for_the_next_records_of_steady_traffic(lane: Lane) -> None:
    lane.steady_until(math.inf)
    assert lane.turn() >= LONG_S, "nothing else was ready"
    assert lane.has_read == 2, "it is read with what comes next, or when nothing comes"
    lane.broker.send(b"\0")
    lane.channel.there.send(b"x")
    assert lane.turn() < LONG_S, "the driver is heard immediately"
    assert lane.has_read == 3


def test_response_that_a_batch_waits_for_wakes_the_lane(lane: Lane) -> None:
    lane.steady_until(math.inf)
    lane.loop._assignments.target._blocked.add(cast("Any", object()))
    assert lane.turn() < LONG_S
    lane.loop._assignments.target._blocked.clear()
    lane.broker.send(b"\0")
    assert lane.turn() >= LONG_S
    lane.steady_until(0.0)
    lane.broker.send(b"\0")
    assert lane.turn() < LONG_S, "the traffic has ended"


def test_response_wakes_a_lane_that_reads_no_more_until_the_target_has_caught_up(
    lane: Lane,
) -> None:
    lane.steady_until(math.inf)
    source = lane.loop._assignments.source
    source._in[WaitsFor.TARGET][TopicPartition("orders", 0)] = cast("Any", None)
    assert lane.turn() < LONG_S
    source._in[WaitsFor.TARGET].clear()
    source._brokers[NODE].is_fetching = False  # the lane's memory is full, so nothing is fetched
    lane.broker.send(b"\0")
    assert lane.turn() < LONG_S


def test_lane_does_not_end_before_its_last_messages_are_sent(lane: Lane) -> None:
    """If many partitions are released together, the socket to the driver does not accept all
    messages immediately. Without its Released, a partition would count as lost.
    """
    lane.channel.unsent += [object()] * 3
    lane.loop.accept([EndLane()])
    lane.loop.run()
    assert lane.channel.unsent == []
