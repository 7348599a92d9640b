"""Whose lane it is: leases are numbered over all flows, and their lanes come over one channel."""

from __future__ import annotations

import itertools
from typing import Protocol

from twinlog.channel.peer import Peer
from twinlog.channel.server import ChannelEvent, LaneConnected, LaneGone, LaneMessage
from twinlog.control.lanes.lanes import Job, Lane
from twinlog.control.running.flow_run import FlowRun
from twinlog.errors import TwinlogError
from twinlog.lane.messages import EndLane


class LeaseStarter(Protocol):
    """Starts the Spark job of a lease."""

    def start(self, lease: int, lanes: int) -> Job: ...


class Leases:
    """Of one process; in the supervisor's thread."""

    def __init__(self) -> None:
        self.starter: LeaseStarter | None = None
        """None: Spark is coming up."""
        self._numbers = itertools.count(1)
        self._runs: dict[int, FlowRun] = {}
        self._lanes: dict[Peer, tuple[FlowRun, Lane]] = {}

    @property
    def numbers(self) -> set[int]:
        """Of leases that are known."""
        return {*self._runs}

    def start(self, run: FlowRun, lanes: int) -> tuple[int, Job]:
        """The next lease of a run; those that are over are forgotten."""
        if self.starter is None:
            raise TwinlogError("a lease was asked for before Spark was up")
        number = next(self._numbers)
        self._runs = {le.number: one for one in {*self._runs.values()} for le in one.leases}
        self._runs[number] = run
        return number, self.starter.start(number, lanes)

    def on_event(self, event: ChannelEvent) -> None:
        """What lanes say goes to the run that they work for."""
        match event:
            case LaneConnected(peer):
                run = self._runs.get(peer.identity.lease)
                if run is None:
                    peer.send(EndLane())  # of a lease that is over
                elif (lane := run.on_connected(peer)) is not None:
                    self._lanes[peer] = (run, lane)
            case LaneMessage(peer, message):
                if (known := self._lanes.get(peer)) is not None:
                    known[0].on_message(known[1], message)
            case LaneGone(peer, _):
                if (known := self._lanes.pop(peer, None)) is not None:
                    known[0].on_gone(known[1])
