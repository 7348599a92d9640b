"""Reading: one Fetch in flight per source broker, for all partitions that it leads and that have
room.

Backpressure is a partition left out of the session: it costs the broker nothing and comes back when
its batches are on the target. While a partition is left out, or some are still to be started,
fetches do not wait long at the broker: else the next one could go out only when a quiet neighbour's
wait has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.clock import Clock
from twinlog.cluster.net.hot_connection import HotConnection
from twinlog.cluster.net.read_size import ReadSize
from twinlog.config.flow.tuning import MOST_WAIT_MS, Tuning
from twinlog.errors import CorruptData, Fate, PartitionError, TwinlogError, Unsupported
from twinlog.lane.events import LaneEvents
from twinlog.lane.sides.cluster_side import ClusterSide
from twinlog.lane.sides.near_replicas import NO_REPLICA, NearReplicas
from twinlog.lane.sides.pace import TopicBuckets
from twinlog.lane.sides.source_broker import SourceBroker
from twinlog.mirror.copy.fan_out import Copy
from twinlog.mirror.copy.refusals import unreadable
from twinlog.mirror.start.divergence import source_diverged
from twinlog.model import NO_TOPIC_ID, Isolation, TopicPartition
from twinlog.wire.error_codes import (
    CORRUPT_MESSAGE,
    OFFSET_OUT_OF_RANGE,
    STALE_LEADER,
    TOPIC_AUTHORIZATION_FAILED,
    lookup,
)
from twinlog.wire.record_batch import read_headers
from twinlog.wire.requests.fetch import (
    FETCH,
    SESSION_ERRORS,
    VERSION_BY_ID,
    VERSION_BY_NAME,
    FetchedPartition,
    FetchPosition,
    FetchSession,
)

UNSEEN_AFTER_S: Final = 5.0
"""A fetch is answered within its wait; a broker that is silent for so long may have new records."""

SHORT_WAIT_MS: Final = 5
PACED_WAIT_MS: Final = 50
"""While some wait for their budget, which comes a few times a second."""

MIN_ROOM_BYTES: Final = 1 << 20
RESTLESS_S: Final = 5.0
"""A partition that lost its broker is likely to find another within this time."""


@dataclass(slots=True)
class SourceState:
    """One partition's place at the source."""

    copy: Copy
    source_end: int = -1
    log_start: int = -1
    paused: bool = False


class AskedPartition(NamedTuple):
    """A partition that a broker is asked for at a place before its end."""

    tp: TopicPartition
    position: int
    node: int
    throttled: int
    """How many answers of this broker a quota held back so far."""
    is_bounded: bool
    """Its copy ends at or before the end that the source has now."""


@dataclass(slots=True, kw_only=True)
class SourceSide:
    """All reading of a lane."""

    side: ClusterSide
    clock: Clock
    isolation: Isolation
    memory_bytes: int
    events: LaneEvents
    on_jumps: Callable[[TopicPartition, Sequence[tuple[int, int]]], None]
    pace: TopicBuckets
    tuning: Tuning
    partitions: dict[TopicPartition, SourceState] = field(default_factory=dict)
    _brokers: dict[int, SourceBroker] = field(default_factory=dict)
    _homes: dict[TopicPartition, int] = field(default_factory=dict)
    _homeless: set[TopicPartition] = field(default_factory=set)
    _restless_until: float = 0.0
    _paused: set[TopicPartition] = field(default_factory=set)
    """Left out of fetches until the target has taken what they hold."""
    _held: set[TopicPartition] = field(default_factory=set)
    """Left out until their topic's budget allows more."""
    _of_topic: Counter[str] = field(default_factory=Counter)
    """How many partitions of each topic are here."""
    _near: NearReplicas = field(init=False)

    def __post_init__(self) -> None:
        self._near = NearReplicas(self.tuning.rack, self.clock)

    def add(self, copy: Copy) -> None:
        if copy.source not in self.partitions:
            self._of_topic[copy.source.topic] += 1
        self.partitions[copy.source] = SourceState(copy)
        if copy.wants_fetch:
            self._next_fetch(copy.source)

    def remove(self, tp: TopicPartition) -> None:
        if self.partitions.pop(tp, None) is not None:
            self._of_topic[tp.topic] -= 1
        self._unplace(tp)
        self._near.forget(tp)
        self._homeless.discard(tp)
        self._paused.discard(tp)
        self._held.discard(tp)

    def _next_fetch(self, tp: TopicPartition) -> None:
        if self.pace.allows(tp.topic):
            self._seek_home(tp)
        else:
            self._held.add(tp)

    def _seek_home(self, tp: TopicPartition) -> None:
        self._homeless.add(tp)
        self._restless_until = self.clock.monotonic() + RESTLESS_S

    def _unplace(self, tp: TopicPartition) -> None:
        node = self._homes.pop(tp, None)
        if node is not None and node in self._brokers:
            self._brokers[node].session.forget(tp)

    # -- out

    def pump(self, *, hurry: bool) -> None:
        """Send the fetches that can go out now; `hurry` keeps them short at the broker."""
        if self.pace.is_bound:
            self._resume_held()
        self._place_homeless()
        self._resume_paused()
        if all(broker.is_fetching or not len(broker.session) for broker in self._brokers.values()):
            return
        room = self.memory_bytes - sum(s.copy.queued_bytes for s in self.partitions.values())
        if room < MIN_ROOM_BYTES:
            return
        hurry = hurry or (bool(self._homeless) and self.clock.monotonic() < self._restless_until)
        idle_ms = PACED_WAIT_MS if self._held else MOST_WAIT_MS
        wait_ms = SHORT_WAIT_MS if hurry or self._paused else idle_ms
        wait_ms = min(wait_ms, self.tuning.fetch_wait_ms)
        for node, broker in self._brokers.items():
            if broker.is_fetching or not len(broker.session):
                continue
            connection = self.side.connection_to(node)
            if connection is None or not connection.may_send:
                continue
            parts = broker.session.request(
                max_wait_ms=wait_ms,
                max_bytes=min(broker.size.most_bytes, room),
                min_bytes=self.tuning.fetch_least_bytes,
            )
            connection.submit(FETCH, broker.session.version, parts, broker)
            broker.is_fetching = True
            self.side.flush(node, connection)

    def _place_homeless(self) -> None:
        for tp in list(self._homeless):
            leader = self.side.leaders.get(tp)
            if leader is None:
                self.side.need_topics((tp.topic,))
                continue
            if self._is_recreated(tp):
                continue
            node = self._near.node_of(tp, leader.node)
            connection = self.side.connection_to(node)
            if connection is None:
                if node != leader.node and self._near.cannot_be_reached(tp):
                    self._near.avoid(tp)
                continue
            broker = self._brokers.get(node)
            if broker is None:
                most = self.tuning.fetch_bytes
                broker = self._brokers[node] = SourceBroker(
                    self._session(connection), ReadSize(most, most)
                )
            self._homeless.discard(tp)
            self._homes[tp] = node
            if broker.is_fetching:
                broker.too_late.add(tp)
            self._want(broker.session, tp)

    def _is_recreated(self, tp: TopicPartition) -> bool:
        expected = self.partitions[tp].copy.source_topic_id
        found = self.side.topic_ids.get(tp.topic, NO_TOPIC_ID)
        if NO_TOPIC_ID in (expected, found) or expected == found:
            return False
        self._homeless.discard(tp)
        self.events.troubled(
            tp,
            PartitionError(
                f"{tp}: the source topic was deleted and created again; looking again",
                code="SOURCE_RECREATED",
                fate=Fate.RETRIABLE,
            ),
        )
        return True

    def _session(self, connection: HotConnection) -> FetchSession:
        _, highest = connection.api_versions.get(FETCH, (0, 0))
        if highest < VERSION_BY_NAME:
            raise Unsupported(
                f"{connection.peer} ({self.side.settings.alias}) offers Fetch up to version "
                f"{highest}; "
                f"version {VERSION_BY_NAME} is needed (Kafka 2.7 or newer)"
            )
        by_id = highest >= VERSION_BY_ID and all(
            topic_id != NO_TOPIC_ID for topic_id in self.side.topic_ids.values()
        )
        return FetchSession(
            VERSION_BY_ID if by_id else VERSION_BY_NAME,
            self.isolation,
            self._near.rack,
        )

    def _want(self, session: FetchSession, tp: TopicPartition) -> None:
        copy = self.partitions[tp].copy
        intake = copy.intake
        position = FetchPosition(
            intake.position,
            self.side.leaders[tp].epoch if tp in self.side.leaders else -1,
            intake.last_fetched_epoch,
            self.pace.most(
                tp.topic,
                self.tuning.partition_fetch_bytes,
                partitions=self._of_topic[tp.topic],
            ),
        )
        session.want(tp, copy.source_topic_id, position)
        if self.partitions[tp].source_end < 0:  # it may know already that we read from here
            self.partitions[tp].source_end = session.end_told(tp)

    def _resume_held(self) -> None:
        self.pace.fill()
        for tp in [tp for tp in self._held if self.pace.allows(tp.topic)]:
            self._held.discard(tp)
            self._homeless.add(tp)

    def _resume_paused(self) -> None:
        limit = self._share() // 2
        for tp in list(self._paused):
            if self.partitions[tp].copy.queued_bytes <= limit:
                self._paused.discard(tp)
                self._seek_home(tp)

    def _share(self) -> int:
        """Bytes that one partition may hold before it is left out: what two answers bring, or up to
        four where there is memory. What is read long before it can be sent only costs memory.
        """
        least = 2 * self.tuning.partition_fetch_bytes
        fair = self.memory_bytes // max(1, len(self.partitions))
        return max(least, min(2 * least, fair))

    # -- in

    def on_readable(self, node: int, connection: HotConnection) -> None:
        """Take in what the broker sent; raises Disconnected or CorruptData for the whole
        connection.
        """
        for broker, view in connection.receive():
            broker.is_fetching = False
            too_late, broker.too_late = broker.too_late, set()
            broker.answered_at = self.clock.monotonic()
            answer = broker.session.parse(view)
            self.side.throttled(connection, answer.throttle_ms)
            broker.adapt(is_throttled=answer.throttle_ms > 0)
            if answer.error and answer.error not in SESSION_ERRORS:
                raise CorruptData(f"{connection.peer} answered a fetch with error {answer.error}")
            for fetched in answer.partitions:
                state = self.partitions.get(fetched.tp)
                if state is None or self._homes.get(fetched.tp) != node:
                    continue
                if fetched.tp in too_late:
                    self._note_ends(state, fetched)  # it is told once
                else:
                    self._on_partition(broker.session, state, fetched)

    def _on_partition(
        self, session: FetchSession, state: SourceState, fetched: FetchedPartition
    ) -> None:
        tp = fetched.tp
        if fetched.error:
            self._on_error(tp, fetched.error)
            return
        if fetched.preferred_replica != NO_REPLICA and self._near.prefer(
            tp, fetched.preferred_replica
        ):
            self._unplace(tp)
            self._seek_home(tp)
            return
        if fetched.diverging is not None:
            if self._near.is_read(tp, self._homes[tp]):
                self.ask_anew(tp)  # it may only be behind: the leader knows
            else:
                self.events.troubled(tp, self._diverged(state, fetched.diverging))
            return
        self._note_ends(state, fetched)
        if not fetched.records:
            return
        copy = state.copy
        try:
            copy.on_fetched(fetched.records, fetched.aborted, self.clock.wall_ms())
        except TwinlogError as error:
            self.events.troubled(tp, unreadable(error, tp, copy.intake.position))
            return
        if copy.intake.jumps:
            self.on_jumps(tp, copy.intake.jumps)
            copy.intake.jumps = []
        if self.pace.is_bound:
            # without the part of a batch at the end, which comes again: how much that is depends
            # on the topic's share, and would change it
            self.pace.take(tp.topic, _whole_bytes(fetched.records))
        self._ask_for_more(session, tp, copy)
        self.events.arrived(copy)

    def _note_ends(self, state: SourceState, fetched: FetchedPartition) -> None:
        if fetched.error or fetched.diverging is not None:
            return
        state.log_start = fetched.log_start
        state.source_end = (
            fetched.last_stable_offset
            if self.isolation is Isolation.READ_COMMITTED
            else fetched.high_watermark
        )

    def _ask_for_more(self, session: FetchSession, tp: TopicPartition, copy: Copy) -> None:
        if not copy.wants_fetch:
            self._unplace(tp)
        elif copy.queued_bytes > self._share():
            self._unplace(tp)
            self._paused.add(tp)
        elif not self.pace.allows(tp.topic):
            self._unplace(tp)
            self._held.add(tp)
        elif self._near.has_expired(tp):
            self._near.forget(tp)
            self._unplace(tp)
            self._seek_home(tp)
        else:
            self._want(session, tp)

    def _on_error(self, tp: TopicPartition, error: int) -> None:
        is_near = tp in self._homes and self._near.is_read(tp, self._homes[tp])
        self._unplace(tp)
        if is_near and (error in STALE_LEADER or error == OFFSET_OUT_OF_RANGE):
            self._near.avoid(tp)  # it may only be behind: the leader knows
            self._seek_home(tp)
        elif error in STALE_LEADER:
            self.side.forget_leader(tp)
            self._seek_home(tp)
        elif error == OFFSET_OUT_OF_RANGE:
            self.events.troubled(
                tp,
                PartitionError(
                    f"{tp}: the source does not have our position any more; looking again",
                    code="SOURCE_OUT_OF_RANGE",
                    fate=Fate.RETRIABLE,
                ),
            )
        elif error == TOPIC_AUTHORIZATION_FAILED:
            self.events.troubled(
                tp,
                PartitionError(
                    f"{tp}: the source refuses to let us read: allow READ on topic {tp.topic}",
                    code="TOPIC_UNAUTHORIZED",
                ),
            )
        elif error == CORRUPT_MESSAGE:
            position = self.partitions[tp].copy.intake.position
            self.events.troubled(
                tp,
                CorruptData(
                    f"{tp}: from upstream offset {position}: the source finds its own log corrupt; "
                    "see the log of its broker"
                ),
            )
        else:
            self.events.troubled(
                tp,
                PartitionError(
                    f"{tp}: the source answered with {lookup(error).name}", code="SOURCE_REFUSED"
                ),
            )

    @staticmethod
    def _diverged(state: SourceState, diverging: tuple[int, int]) -> PartitionError:
        epoch, end = diverging
        position = state.copy.intake.position
        return source_diverged(
            f"{state.copy.source}: the source's log was truncated and rewritten: epoch "
            f"{epoch} ends at {end} there, but records up to {position} were copied; the "
            f"target holds upstream records [{end}, {position}) that the source lost",
            state.copy.parts[0].target,
            lost=(end, position),
        )

    def on_disconnected(self, node: int) -> None:
        """The connection is gone, and with it the session."""
        broker = self._brokers.pop(node, None)
        if broker is None:
            return
        for tp in [tp for tp, home in self._homes.items() if home == node]:
            del self._homes[tp]
            if self._near.is_read(tp, node):
                self._near.avoid(tp)
            self._seek_home(tp)

    def on_new_leaders(self) -> None:
        """Metadata was read: partitions whose leader moved are asked for at the new one."""
        for tp, node in list(self._homes.items()):
            leader = self.side.leaders.get(tp)
            if leader is not None and leader.node != node and not self._near.is_read(tp, node):
                self._unplace(tp)
                self._seek_home(tp)

    def sees_end(self, tp: TopicPartition) -> bool:
        """Whether its broker is asked and answers, so that the end it last told is that of now.

        A lane whose memory is full asks nobody.
        """
        node = self._homes.get(tp)
        connection = None if node is None else self.side.connections.get(node)
        broker = None if node is None else self._brokers.get(node)
        if connection is None or broker is None:
            return False
        since = connection.waiting_since if broker.is_fetching else broker.answered_at
        return since is None or self.clock.monotonic() - since < UNSEEN_AFTER_S

    def asked_in_vain(self) -> Iterator[AskedPartition]:
        """Partitions that are behind their end, while their broker answers."""
        for tp, node in self._homes.items():
            state, broker = self.partitions[tp], self._brokers.get(node)
            position = state.copy.intake.position
            is_behind = position < state.source_end and state.copy.wants_fetch
            if is_behind and broker is not None and self.sees_end(tp):
                is_bounded = state.copy.end <= state.source_end
                yield AskedPartition(tp, position, node, broker.throttled, is_bounded)

    def position_of(self, tp: TopicPartition) -> int:
        """Where it is read next; -1 when it is not here."""
        return self.partitions[tp].copy.intake.position if tp in self.partitions else -1

    def end_at(self, tp: TopicPartition, position: int, end: int) -> None:
        """Nothing is left from `position` to `end`: a copy that ends there is at its end."""
        state = self.partitions.get(tp)
        if state is not None and state.copy.intake.position == position and state.copy.end <= end:
            state.copy.end = position
            self._unplace(tp)
            self.events.arrived(state.copy)

    def ask_anew(self, tp: TopicPartition) -> None:
        """Ask as if for the first time, and the leader: what was asked before sees nothing."""
        node = self._homes.get(tp)
        if node is not None:
            if self._near.is_read(tp, node):
                self._near.avoid(tp)
            self._unplace(tp)
            self._seek_home(tp)

    def states(self) -> Iterator[SourceState]:
        return iter(self.partitions.values())


def _whole_bytes(records: memoryview) -> int:
    """Bytes of the batches that a Fetch answer holds from their first byte to their last."""
    total = 0
    with suppress(CorruptData):  # the copy tells, once what stands before it is on the target
        for header, _ in read_headers(records):
            total += header.length
    return total
