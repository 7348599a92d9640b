"""The loop of a lane: one thread and one selector for all its partitions, between two clusters.

A turn waits for sockets, handles their responses, sends what can be sent (map rows, then batches,
then fetches), and settles partitions that are finished. Nothing in it blocks: connecting, metadata
and the search of start positions run in `sides.background`. `assignments` has the life of a
partition.

The loop decides nothing about records: `mirror.copy.partition` decides what may be sent and what
responses mean, and the driver decides which partitions a lane has. A lane that receives nothing
from its driver for `silence_ms` stops in the middle of its work. The driver relies on that when it
gives the partitions to another lane.
"""

from __future__ import annotations

import logging
import select
import selectors
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from twinlog.channel.client import ChannelClient
from twinlog.clock import CLOCK, Clock
from twinlog.cluster.net.framing import FramePool
from twinlog.cluster.net.hot_connection import HotConnection
from twinlog.errors import CorruptData, Disconnected, DriverSilent, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.lane.assignments import Assignments
from twinlog.lane.late_requests import USER_TIMEOUT_MS
from twinlog.lane.map_writer import Round
from twinlog.lane.messages import (
    EndLane,
    KnownProducers,
    Pace,
    Ready,
    Release,
    Renewed,
    Take,
    Work,
)
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.background import LaneJobs
from twinlog.lane.sides.cluster_side import ClusterSide, node_of
from twinlog.lane.sides.source_side import HELD_S
from twinlog.lane.sides.target_side import SentBatches

if TYPE_CHECKING:
    from twinlog.lane.sides.range_port import RangePort

log = logging.getLogger(__name__)

IDLE_TURN_S: Final = 0.25
PACED_TURN_S: Final = 0.05
"""Maximum length of a turn (seconds) if a byte budget limits the lane (`sides.pace`), because a
budget grows with time and causes no socket event.
"""

SATURATED_BYTES: Final = 512 * 1024
GATHER_S: Final = 0.001
"""Pause (seconds) before a turn while at least SATURATED_BYTES are in flight, so that one turn
handles several responses.

A separate turn for each response would cost more than the copy itself. Together with the frame pool
and combined requests, this reduced a lane's CPU per GB of backlog from 1.00 to 0.75 s with one
lane, and from 1.36 to 1.13 s with two. The pause limits a lane to about 512 MB/s if brokers respond
immediately.
"""

RELEASING_TURN_S: Final = 0.01
PROGRESS_S: Final = 1.0
HURRY_S: Final = 1.0
"""Time in seconds after a message Take during which fetches wait only briefly at the broker."""

MARK_S: Final = 5.0
"""Interval (seconds) of `Assignments.note_marks`, which writes positions and marks to the offset
map.
"""

FREE_SHARE: Final = 4
"""In addition to a lane's memory, its memory divided by this number may be kept as free buffers for
later responses. With a divisor of 4, 5 % of the 4 MB responses of a backlog need a new buffer; with
8, 30 %; with 16, 50 %.
"""


class LaneLoop:
    """The loop of one lane, with its connections to the driver and to both clusters."""

    def __init__(self, channel: ChannelClient, work: Work, clock: Clock = CLOCK) -> None:
        self._channel = channel
        self._clock = clock
        self._work = work
        self._selector = selectors.EpollSelector()
        self._target_selector = selectors.EpollSelector()
        """Selects the target's connections. The loop waits for events on them unless
        `Assignments.responses_can_wait`.
        """
        self._waits_for_target = False
        self._background = LaneJobs()
        self._selector.register(channel, selectors.EVENT_READ, self._on_channel)
        self._selector.register(self._background, selectors.EVENT_READ, self._background.deliver)
        self._source_cluster = ClusterSide(
            settings=work.source,
            background=self._background,
            selector=self._selector,
            pool=FramePool(work.memory_bytes // FREE_SHARE),
            clock=clock,
        )
        self._target_cluster = ClusterSide(
            settings=work.target,
            background=self._background,
            selector=self._target_selector,
            pool=FramePool(0),
            clock=clock,
            user_timeout_ms=USER_TIMEOUT_MS,
            before_sending=self._check_silence,
        )
        self._range_port = self._open_range_port() if work.has_transforms else None
        ports = LanePorts(
            clock=clock,
            source=self._source_cluster,
            target=self._target_cluster,
            background=self._background,
            send=channel.send,
            transformer=self._range_port,
        )
        self._assignments = Assignments(work, ports)
        self._hurry_until = 0.0
        self._is_ready = False
        self._is_stopping = False

    def _open_range_port(self) -> RangePort:
        # imported here, because the server loads modules for TLS, which lanes without transforms do
        # not need
        from twinlog.lane.sides.range_port import RangePort

        return RangePort(
            self._clock, lambda: self._background.post(lambda: None), host=self._channel.host
        )

    # -- turning

    def run(self) -> None:
        """Run until the driver ends the lane. Raises Disconnected if the connection to the driver
        ends, or DriverSilent if the driver sends nothing for `silence_ms`.
        """
        self._source_cluster.need_topics(self._work.source_topics)
        self._target_cluster.need_topics((*self._work.target_topics, self._work.map_topic))
        next_progress = next_mark = 0.0
        try:
            while not (self._is_stopping and self._assignments.is_empty):
                self._check_silence()
                if self._assignments.target.in_flight_bytes >= SATURATED_BYTES:
                    time.sleep(GATHER_S)
                self._take_events()
                self._pump()
                now = self._clock.monotonic()
                if now >= next_progress:
                    self._on_channel()  # reading the channel also sends pings
                    next_progress = now + PROGRESS_S
                    self._assignments.report()
                if now >= next_mark:
                    next_mark = now + MARK_S
                    self._assignments.note_marks()
            self._assignments.report()
            self._send_rest()
        finally:
            if self._range_port is not None:
                self._range_port.close()
            self._background.close()
            self._source_cluster.close()
            self._target_cluster.close()
            self._target_selector.close()
            self._selector.close()

    def _send_rest(self) -> None:
        """Wait until the socket to the driver has accepted all messages. If the last Released
        messages were not sent, the driver would regard their partitions as lost.
        """
        writable = select.poll()
        writable.register(self._channel, select.POLLOUT)
        while self._channel.wants_write:
            self._check_silence()
            writable.poll(IDLE_TURN_S * 1000)
            self._channel.receive()  # also sends, and reads the pongs on which silence depends

    def _take_events(self) -> None:
        """Wait for sockets that are ready, and handle them."""
        turn_s, waits_for_target = self._turn_s(), not self._assignments.responses_can_wait
        self._watch_target(is_watched=waits_for_target)
        events = self._selector.select(turn_s if waits_for_target else min(turn_s, HELD_S))
        self._handle(events if waits_for_target else events + self._target_selector.select(0))

    def _watch_target(self, *, is_watched: bool) -> None:
        if is_watched == self._waits_for_target:
            return
        self._waits_for_target = is_watched
        if is_watched:
            self._selector.register(self._target_selector, selectors.EVENT_READ, self._on_target)
        else:
            self._selector.unregister(self._target_selector)

    def _on_target(self) -> None:
        self._handle(self._target_selector.select(0))

    def _handle(self, events: Sequence[tuple[selectors.SelectorKey, int]]) -> None:
        for key, mask in events:
            if callable(key.data):
                key.data()
            else:
                side, node = key.data
                self._on_socket(side, node, mask)

    def _turn_s(self) -> float:
        if self._assignments.is_releasing:
            return RELEASING_TURN_S
        turn_s = PACED_TURN_S if self._work.has_budget else IDLE_TURN_S
        for side in (self._source_cluster, self._target_cluster):
            if muted_s := side.muted_s():
                turn_s = min(turn_s, muted_s)
        return turn_s

    def _check_silence(self) -> None:
        # checked before every send, because the process may have been frozen in the meantime, and
        # its partitions may belong to another lane now
        silent = self._clock.boot() - self._channel.last_heard
        if silent * 1000 > self._work.silence_ms:
            raise DriverSilent(f"the driver has been silent for {silent:.1f} s")

    def _pump(self) -> None:
        self._assignments.pump(hurry=self._clock.monotonic() < self._hurry_until)
        for side in (self._source_cluster, self._target_cluster):
            for node, error in side.broken_connections():
                self._on_broken(side, node, error)
            side.tick()
        self._assignments.settle()
        self._report_ready()
        if self._channel.wants_write:
            self._channel.flush()

    def _report_ready(self) -> None:
        """Send the message Ready once, as soon as leaders are known and connections to them are
        open.
        """
        if self._is_ready:
            return
        work = self._work
        source_is_warm = self._source_cluster.is_warm(work.source_topics)
        target_is_warm = self._target_cluster.is_warm((*work.target_topics, work.map_topic))
        if source_is_warm and target_is_warm:
            self._is_ready = True
            port = self._range_port
            self._channel.send(Ready(range_port=None if port is None else port.address))

    # -- the driver

    def _on_channel(self) -> None:
        self.accept(self._channel.receive())

    def accept(self, messages: Sequence[object]) -> None:
        """Process messages from the driver."""
        for message in messages:
            match message:
                case Take():
                    # more Takes may follow, and a fetch that waits long at the broker would delay
                    # their partitions
                    self._hurry_until = self._clock.monotonic() + HURRY_S
                    self._assignments.on_take(message)
                case Pace():
                    self._assignments.source.pace.set_rates(message.bytes_per_second)
                case Renewed():
                    self._source_cluster.renew(message.source)
                    self._target_cluster.renew(message.target)
                case KnownProducers():
                    self._assignments.set_known_producers(frozenset(message.producers))
                case Release():
                    self._assignments.release(message.partitions)
                case EndLane():
                    self._is_stopping = True
                    self._assignments.release_all()
                case _:
                    raise CorruptData(
                        f"a lane received an unexpected message: {type(message).__name__}"
                    )

    # -- sockets

    def _on_socket(self, side: ClusterSide, node: int, mask: int) -> None:
        connection = side.connections.get(node)
        if connection is None:
            return
        try:
            if mask & selectors.EVENT_WRITE:
                side.flush(node, connection)
            if mask & selectors.EVENT_READ:
                if side is self._source_cluster:
                    self._assignments.source.on_readable(node, connection)
                else:
                    self._on_target_readable(connection)
        except (Disconnected, CorruptData) as error:
            self._on_broken(side, node, error)

    def _on_target_readable(self, connection: HotConnection) -> None:
        now_ms = self._clock.wall_ms()
        answers = connection.receive()
        for index, (context, view) in enumerate(answers):
            try:
                if isinstance(context, SentBatches):
                    muted_ms = self._assignments.target.on_answer(context, view, now_ms)
                else:
                    muted_ms = self._assignments.map.on_answer(context, view)
                if muted_ms > 0:
                    self._target_cluster.on_throttled(connection, muted_ms)
            except CorruptData:
                connection.mark_unanswered(context for context, _ in answers[index:])
                raise

    def _on_broken(self, side: ClusterSide, node: int, error: TwinlogError) -> None:
        unanswered = side.drop(node)
        FlowLog(log, self._work.flow).info("connection lost node=%s error=%s", node_of(node), error)
        if side is self._source_cluster:
            self._assignments.source.on_disconnected(node)
            return
        sent = [context for context in unanswered if isinstance(context, SentBatches)]
        self._assignments.map.on_disconnected(
            [request for request in unanswered if isinstance(request, Round)]
        )
        self._assignments.target.on_disconnected(node, sent, error, self._clock.wall_ms())
