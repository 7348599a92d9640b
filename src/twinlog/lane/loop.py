"""The lane's loop: one thread, one selector, every partition's copy between two clusters.

    Take -> look (background) -> PartitionCopy -> fetched -> [map row durable] -> sent -> answered
    -> ...
                                     |                                               |
                                     `-- Troubled (drained, or the source said so) --'--> Released

The loop decides nothing about records: `mirror.copy` says what may be sent and what answers mean,
the driver says which partitions are here. A lane that has not heard its driver for `silence_ms`
stops in the middle of whatever it does: the driver counts on it.
"""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Iterator, Sequence
from typing import Final

from twinlog.clock import boot_clock
from twinlog.cluster.hot_connection import HotConnection
from twinlog.errors import (
    CorruptData,
    Disconnected,
    DriverSilent,
    Fate,
    PartitionError,
    TwinlogError,
)
from twinlog.lane.background import Background
from twinlog.lane.channel import Channel
from twinlog.lane.cluster_side import ClusterSide
from twinlog.lane.map_writer import MapWriter, Round
from twinlog.lane.messages import (
    Progress,
    Ready,
    Receipt,
    Release,
    Released,
    ReleasedPartition,
    Stop,
    Take,
    TakePartition,
    Troubled,
    Work,
)
from twinlog.lane.others import OthersWatch
from twinlog.lane.reporting import Reporter, hand_over
from twinlog.lane.source_side import SourceSide
from twinlog.lane.starter import Starter
from twinlog.lane.target_side import Sent, TargetSide
from twinlog.mirror.copy import CopyRules, CopyState, PartitionCopy, StartPoint
from twinlog.mirror.offset_map import MapTail, PartitionKey, Run
from twinlog.model import TopicPartition

log = logging.getLogger(__name__)

IDLE_TURN_S: Final = 0.25
PROGRESS_S: Final = 1.0
USER_TIMEOUT_MS: Final = 10_000
"""TCP_USER_TIMEOUT of produce sockets: a dead network keeps a batch in the kernel no longer than
this.
"""

HURRY_S: Final = 1.0
"""How long after a Take fetches are kept short."""

MARK_S: Final = 5.0
"""How often a topic that may not be ours alone gets a mark."""


class LaneLoop:
    """All partitions of one lane."""

    def __init__(self, channel: Channel, work: Work) -> None:
        self._channel = channel
        self._work = work
        self._selector = selectors.DefaultSelector()
        self._background = Background()
        self._selector.register(channel, selectors.EVENT_READ, self._on_channel)
        self._selector.register(self._background, selectors.EVENT_READ, self._on_background)
        self._source_cluster = ClusterSide(
            settings=work.source, background=self._background, selector=self._selector
        )
        self._target_cluster = ClusterSide(
            settings=work.target,
            background=self._background,
            selector=self._selector,
            user_timeout_ms=USER_TIMEOUT_MS,
            before_sending=self._check_silence,
        )
        self._source = SourceSide(
            side=self._source_cluster,
            read_committed=work.read_committed,
            memory_bytes=work.memory_bytes,
            on_trouble=self._on_source_trouble,
            on_arrived=self._on_arrived,
        )
        self._target = TargetSide(side=self._target_cluster, on_answered=self._on_answered)
        self._map = MapWriter(
            side=self._target_cluster,
            topic=work.map_topic,
            partitions=work.map_partitions,
            on_durable=self._on_durable,
            on_refused=self._on_map_refused,
        )
        self._rules = CopyRules(
            producer_id=work.producer_id,
            read_committed=work.read_committed,
            is_ours_alone=work.is_ours_alone,
            producer_expiry_ms=work.producer_expiry_ms,
        )
        self._starter = Starter(
            work, self._rules, self._source_cluster, self._target_cluster, self._background
        )
        self._others = OthersWatch(
            source=self._source_cluster,
            target=self._target_cluster,
            background=self._background,
            read_committed=work.read_committed,
            known_producers=frozenset(work.known_producers),
        )
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        self._takes: dict[TopicPartition, TakePartition] = {}
        """Every partition that is here, started or not."""
        self._releasing: dict[TopicPartition, bool] = {}
        self._unsettled: set[TopicPartition] = set()
        """Partitions to which something happened that may end their stay."""
        self._reporter = Reporter(self._source, self._target, self._target_cluster)
        self._source_cluster.on_leaders = self._source.on_new_leaders
        self._target_cluster.on_leaders = self._target.on_new_leaders
        self._target_cluster.on_connected = lambda _node: self._target.wake_all()
        self._hurry_until = 0.0
        self._is_ready = False
        self._is_stopping = False
        self.finished: list[ReleasedPartition] = []

    # -- turning
    # -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn until stopped; raises Disconnected or DriverSilent when the driver is gone."""
        self._source_cluster.need_topics(self._work.source_topics)
        self._target_cluster.need_topics((*self._work.target_topics, self._work.map_topic))
        next_progress = next_mark = 0.0
        try:
            while not (self._is_stopping and not self._takes):
                self._check_silence()
                for key, mask in self._selector.select(self._turn_s()):
                    if callable(key.data):
                        key.data()
                    else:
                        side, node = key.data
                        self._on_socket(side, node, mask)
                self._pump()
                now = time.monotonic()
                if now >= next_progress:
                    self._on_channel()  # also keeps the signs of life going
                    next_progress = now + PROGRESS_S
                    self._unsettled.update(self._copies)
                    self._report()
                if now >= next_mark and not self._work.is_ours_alone:
                    next_mark = now + MARK_S
                    self._place_marks()
            self._report()
            self._channel.flush()
        finally:
            self._background.close()
            self._source_cluster.close()
            self._target_cluster.close()
            self._selector.close()

    def _turn_s(self) -> float:
        return 0.01 if self._releasing else IDLE_TURN_S

    def _check_silence(self) -> None:
        # before every single send: a process may be frozen between any two lines, and by the time
        # it goes on another lane has its partitions
        silent = boot_clock() - self._channel.last_heard
        if silent * 1000 > self._work.silence_ms:
            raise DriverSilent(f"nothing was heard from the driver for {silent:.1f} s")

    def _pump(self) -> None:
        now_ms = int(time.time() * 1000)
        self._starter.tend()
        self._map.pump(now_ms)
        self._target.pump(now_ms)
        self._source.pump(hurry=self._starter.is_busy or time.monotonic() < self._hurry_until)
        for side in (self._source_cluster, self._target_cluster):
            for node, error in side.take_broken():
                self._on_broken(side, node, error)
            side.tend()
        if not self._work.is_ours_alone:
            self._others.tend(self._copies.values())
        self._settle()
        self._be_ready()
        if self._channel.wants_write:
            self._channel.flush()

    def _be_ready(self) -> None:
        """Say once that leaders are known and connections to them are open."""
        if self._is_ready:
            return
        work = self._work
        source_is_warm = self._source_cluster.is_warm(work.source_topics)
        target_is_warm = self._target_cluster.is_warm((*work.target_topics, work.map_topic))
        if source_is_warm and target_is_warm:
            self._is_ready = True
            self._send(Ready())

    # -- the driver
    # ----------------------------------------------------------------------------------

    def _send(self, message: object) -> None:
        self._channel.send(message)

    def _on_channel(self) -> None:
        self.accept(self._channel.receive())

    def accept(self, messages: Sequence[object]) -> None:
        """Do what the driver says."""
        for message in messages:
            match message:
                case Take():
                    self._on_take(message)
                case Release():
                    for tp in message.partitions:
                        self._begin_release(tp, done=False)
                case Stop():
                    self._is_stopping = True
                    for tp in list(self._takes):
                        self._begin_release(tp, done=False)
                case _:
                    raise CorruptData(f"the driver sent {type(message).__name__}: unexpected here")

    def _on_background(self) -> None:
        self._background.deliver()

    def _on_take(self, take: Take) -> None:
        # more may come: a fetch that waits long at the broker would keep them waiting as well
        self._hurry_until = time.monotonic() + HURRY_S
        cold = []
        for partition in take.partitions:
            self._takes[partition.source] = partition
            if partition.handed is None:
                cold.append(partition)
            else:
                handed = partition.handed
                tail = MapTail(
                    key=_key(partition),
                    topic=partition.source.topic,
                    term=partition.term,
                    chunk=handed.chunk,
                    runs=list(handed.runs),
                    producer_id=self._work.producer_id,
                    mark=partition.mark,
                    durable_ordinal=handed.durable_ordinal,
                    dirty=handed.durable_ordinal < 0 and not partition.runs,
                )
                self._begin_copy(partition, handed.start, tail)
        if cold:
            self._starter.start(cold, self._on_started)

    def _on_started(self, take: TakePartition, found: StartPoint | TwinlogError) -> None:
        if self._takes.get(take.source) is not take:
            return  # released while we looked
        if isinstance(found, TwinlogError):
            self._give_back(take.source, found, wait_ms=0)
            return
        if self._starter.must_wait(take, found, self._on_started):
            return
        run = Run(found.ordinal, found.upstream, found.k + found.ordinal)
        tail = MapTail(
            key=_key(take),
            topic=take.source.topic,
            term=take.term,
            chunk=0,
            runs=[*found.jumps, run],
            producer_id=self._work.producer_id,
            mark=take.mark,
            # even when there is nothing to copy yet: the very first row, and what the map had wrong
            dirty=not take.runs or bool(found.jumps),
        )
        self._begin_copy(take, found, tail)

    def _begin_copy(self, take: TakePartition, start: StartPoint, tail: MapTail) -> None:
        copy = PartitionCopy(
            source=take.source,
            target=take.target,
            source_topic_id=take.source_topic_id,
            target_topic_id=take.target_topic_id,
            rules=self._rules,
            start=start,
            tail=tail,
            end=take.end,
            limit_bytes=take.limit_bytes,
            stamps_own_time=take.stamps_own_time,
            is_picky=take.is_picky,
            last_run=tail.runs[-1] if tail.runs else None,
            now_ms=int(time.time() * 1000),
        )
        self._copies[take.source] = copy
        self._unsettled.add(take.source)
        self._source.add(copy)
        self._target.add(copy)
        self._map.note(copy)

    # -- sockets
    # -------------------------------------------------------------------------------------

    def _on_socket(self, side: ClusterSide, node: int, mask: int) -> None:
        connection = side.connections.get(node)
        if connection is None:
            return
        try:
            if mask & selectors.EVENT_WRITE:
                side.flush(node, connection)
            if mask & selectors.EVENT_READ:
                if side is self._source_cluster:
                    self._source.on_readable(node, connection)
                else:
                    self._on_target_readable(connection)
        except (Disconnected, CorruptData) as error:
            self._on_broken(side, node, error)

    def _on_target_readable(self, connection: HotConnection) -> None:
        now_ms = int(time.time() * 1000)
        for context, view in connection.receive():
            if isinstance(context, Sent):
                connection.throttled(self._target.on_answer(context, view, now_ms))
            else:
                self._map.on_answer(context, view)

    def _on_broken(self, side: ClusterSide, node: int, error: TwinlogError) -> None:
        unanswered = side.drop(node)
        log.info("connection lost flow=%s node=%s error=%s", self._work.flow, node, error)
        if side is self._source_cluster:
            self._source.on_disconnected(node)
            return
        sent = [context for context in unanswered if isinstance(context, Sent)]
        self._map.on_disconnected([one for one in unanswered if isinstance(one, Round)])
        self._target.on_disconnected(node, sent, error, int(time.time() * 1000))

    # -- one partition
    # -------------------------------------------------------------------------------

    def _on_arrived(self, copy: PartitionCopy) -> None:
        self._map.note(copy)
        self._target.wake(copy)
        self._check_done(copy)

    def _on_durable(self, copy: PartitionCopy) -> None:
        self._unsettled.add(copy.source)
        self._target.wake(copy)

    def _on_answered(self, copy: PartitionCopy) -> None:
        self._unsettled.add(copy.source)
        self._map.note(copy)
        self._check_done(copy)

    def _check_done(self, copy: PartitionCopy) -> None:
        if copy.is_done and copy.trouble is None and copy.source not in self._releasing:
            self._begin_release(copy.source, done=True)

    def _on_source_trouble(self, tp: TopicPartition, error: TwinlogError) -> None:
        copy = self._copies.get(tp)
        if copy is None:
            return
        # what was read before the bad place is good: it is sent and answered first
        self._source.remove(tp)
        copy.source_trouble = error
        self._unsettled.add(tp)

    def _on_map_refused(self, copy: PartitionCopy, error: int, message: str | None) -> None:
        self._unsettled.add(copy.source)
        said = f" ({message})" if message else ""
        copy.trouble = copy.trouble or PartitionError(
            f"{copy.source}: the offset map topic {self._work.map_topic} refused a row with error "
            f"{error}{said}: grant WRITE on it to our user",
            code="MAP_REFUSED",
        )

    def _settle(self) -> None:
        """Give back what stopped by itself, and release what is at rest."""
        for tp in list(self._unsettled):
            copy = self._copies.get(tp)
            if copy is None:
                self._unsettled.discard(tp)
                continue
            if copy.in_flight or copy.tail.writing:
                continue  # its answers bring it here again, or it stays
            if copy.trouble is not None and tp not in self._releasing:
                wait_ms = USER_TIMEOUT_MS if copy.lost_answers_unprotected else 0
                self._give_back(tp, copy.trouble, wait_ms)
            elif tp in self._releasing:
                self._finish_release(tp, copy, done=self._releasing[tp])
            elif copy.source_trouble is not None and copy.is_drained:
                self._give_back(tp, copy.source_trouble, wait_ms=0)
            elif copy.end <= copy.acked_upstream:
                self._check_done(copy)
            elif copy.source_trouble is None:
                self._unsettled.discard(tp)
        for tp in [tp for tp in self._releasing if tp not in self._copies]:
            self._finish_release(tp, None, done=False)  # a look only reads: its result is dropped

    def _begin_release(self, tp: TopicPartition, *, done: bool) -> None:
        if tp not in self._takes:
            return
        self._releasing[tp] = done
        self._unsettled.add(tp)
        copy = self._copies.get(tp)
        if copy is not None:
            copy.drain()
            if not self._work.is_ours_alone and copy.state is not CopyState.TAKEN_OVER:
                copy.tail.place(copy.mark())
                self._map.note(copy)

    def _finish_release(
        self, tp: TopicPartition, copy: PartitionCopy | None, *, done: bool
    ) -> None:
        take = self._takes[tp]
        if (
            copy is not None
            and copy.tail.dirty
            and not self._work.is_ours_alone
            and copy.trouble is None
        ):
            self._map.note(copy)
            return  # its mark is still to be written
        handed = None
        if copy is not None and copy.trouble is None and copy.source_trouble is None:
            handed = hand_over(copy)
        last = ReleasedPartition(
            source=tp,
            term=take.term,
            handed=handed,
            done=done and handed is not None,
        )
        self._report_now(tp)
        self._remove(tp, "DONE" if last.done else "RELEASED")
        self._send(Released(partitions=(last,)))

    def _give_back(self, tp: TopicPartition, error: TwinlogError, wait_ms: int) -> None:
        self._report_now(tp)
        self._remove(tp, error.code)
        self._send(
            Troubled(
                source=tp,
                code=error.code,
                message=error.message,
                is_retriable=error.fate is Fate.RETRIABLE,
                wait_ms=wait_ms,
            )
        )

    def _remove(self, tp: TopicPartition, outcome: str) -> None:
        self._takes.pop(tp, None)
        self._releasing.pop(tp, None)
        copy = self._copies.pop(tp, None)
        if copy is not None:
            self._reporter.close(copy, outcome, int(time.time() * 1000))
            self._source.remove(tp)
            self._target.remove(copy)
            self._map.forget(copy)

    def _place_marks(self) -> None:
        for copy in self._copies.values():
            if copy.state is CopyState.COPYING and copy.trouble is None:
                copy.tail.place(copy.mark())
                self._map.note(copy)

    def receipts(self, *, lane: int, lease: int) -> Iterator[Receipt]:
        """What this lane did, a row per partition that it gave back."""
        yield from self._reporter.receipts(lane=lane, lease=lease)

    # -- reporting
    # -----------------------------------------------------------------------------------

    def _report(self) -> None:
        self._send(
            Progress(
                partitions=tuple(
                    self._reporter.changed(self._copies.values(), int(time.time() * 1000))
                ),
                throttle_ms=max(self._source.throttle_ms, self._target.throttle_ms),
                degraded=self._source_cluster.problem or self._target_cluster.problem,
            )
        )
        self._source.throttle_ms = self._target.throttle_ms = 0

    def _report_now(self, tp: TopicPartition) -> None:
        copy = self._copies.get(tp)
        if copy is not None:
            partitions = tuple(self._reporter.changed([copy], int(time.time() * 1000)))
            self._send(Progress(partitions=partitions, throttle_ms=0, degraded=""))


def _key(take: TakePartition) -> PartitionKey:
    return PartitionKey(take.source_topic_id, take.target_topic_id, take.source.partition)
