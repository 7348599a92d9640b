"""The reading side of a lane: one Fetch in flight per source broker, for all partitions that have
room in memory. Partitions of a far broker that are behind are read in `sections` instead.

Backpressure leaves a partition out of the fetch session. That costs the broker nothing, and the
partition returns when its batches are on the target. While a partition is left out, or partitions
are about to start, fetches wait only briefly at the broker. Otherwise the next fetch, which
includes them, could be sent only after a long wait for the partitions that are idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from twinlog.clock import Clock
from twinlog.cluster.net.hot_connection import HotConnection
from twinlog.cluster.net.read_size import ReadSize
from twinlog.config.flow.tuning import MOST_WAIT_MS, Tuning
from twinlog.errors import CorruptData, Fate, PartitionError, TwinlogError, Unsupported
from twinlog.lane.lane_partition import LaneEvents
from twinlog.lane.sides.cluster_side import ClusterSide, node_of
from twinlog.lane.sides.gathering import Gathering
from twinlog.lane.sides.near_replicas import NO_REPLICA, NearReplicas
from twinlog.lane.sides.pace import TopicBuckets
from twinlog.lane.sides.sections import (
    LEAST_SECTIONS,
    MOST_SECTIONS,
    SectionedRead,
    SectionRequest,
    free_connections,
    is_far,
)
from twinlog.mirror.copy.fan_out import Copy
from twinlog.mirror.copy.refusals import unreadable_error
from twinlog.mirror.start.divergence import source_diverged_error
from twinlog.model import NO_TOPIC_ID, Isolation, TopicPartition
from twinlog.wire.error_codes import (
    CORRUPT_MESSAGE,
    OFFSET_OUT_OF_RANGE,
    STALE_LEADER,
    TOPIC_AUTHORIZATION_FAILED,
    lookup,
)
from twinlog.wire.fetch import (
    FETCH,
    SESSION_ERRORS,
    VERSION_BY_ID,
    VERSION_BY_NAME,
    FetchedPartition,
    FetchPosition,
    FetchSession,
)
from twinlog.wire.record_batch import read_headers

UNSEEN_AFTER_S: Final = 5.0
"""If a broker has not responded for this many seconds, the last known ends of its logs are not
current. A broker normally responds within the fetch's wait.
"""

SHORT_WAIT_MS: Final = 5
PACED_WAIT_MS: Final = 50
"""Maximum time (ms) that a fetch waits at the broker while partitions wait for their byte budget,
because that grows several times a second.
"""

HELD_S: Final = 0.008
"""If source records arrive at intervals of at most this time (seconds), the target's responses are
not read before the next records.
"""

MIN_ROOM_BYTES: Final = 1 << 20
EMPTY: Final = memoryview(b"")
REFRESH_EVERY_S: Final = 60.0
"""Interval at which leaders are queried again even if nothing fails. A leader that does not know
that it was replaced returns no new records and no error, and so does a replica that is cut off.
"""

RESTLESS_S: Final = 5.0
"""Time for which fetches wait only briefly after a partition has lost its broker. The partition
probably finds its new broker in that time.
"""

NO_NODE: Final = -1


class WaitsFor(Enum):
    """What a partition waits for before more of it is read."""

    __hash__ = object.__hash__  # faster than Enum's hash; the members are dict keys on every turn

    NOTHING = auto()
    """No fetch is needed, because everything is read or the partition has a problem."""
    BROKER = auto()
    """The partition's leader must be found or connected."""
    RECORDS = auto()
    """The partition is in the fetch session of its broker."""
    SECTIONS = auto()
    """The partition is read ahead in sections, beside the fetch session of its broker."""
    TARGET = auto()
    """The partition is left out of fetches until the target has acknowledged its batches."""
    BUDGET = auto()
    """The partition is left out of fetches until its topic's byte budget (`pace`) allows more."""


@dataclass(slots=True)
class SourceState:
    """The state of one source partition: its log, and the broker from which it is read."""

    copy: Copy
    source_end: int = -1
    waits_for: WaitsFor = WaitsFor.NOTHING
    node: int = NO_NODE
    """The broker from which the partition is read, or NO_NODE."""
    sectioned_read: SectionedRead | None = None


class StalledFetch(NamedTuple):
    """A partition that is requested from broker `node`, at a source offset `position` before its
    log's end.
    """

    tp: TopicPartition
    position: int
    node: int
    throttled: int
    """Number of this broker's responses, for any partitions, that a quota has delayed."""
    is_bounded: bool
    """True if the copy is to end (`--once`) at or before the source's current end."""


@dataclass(slots=True, kw_only=True)
class SourceSide:
    """Reads all source partitions of a lane."""

    side: ClusterSide
    clock: Clock
    isolation: Isolation
    memory_bytes: int
    events: LaneEvents
    pace: TopicBuckets
    tuning: Tuning
    partitions: dict[TopicPartition, SourceState] = field(default_factory=dict)
    _brokers: dict[int, SourceBroker] = field(default_factory=dict)
    _in: dict[WaitsFor, dict[TopicPartition, SourceState]] = field(
        default_factory=lambda: {each: {} for each in WaitsFor}
    )
    """The partitions by the event that they wait for."""
    _arrived_at: float = 0.0
    """Monotonic time at which the last response with records arrived."""
    _steady_until: float = 0.0
    _restless_until: float = 0.0
    _next_refresh: float = 0.0
    _filled: dict[TopicPartition, Copy] = field(default_factory=dict)
    """The copies that may have records in memory."""
    _of_topic: Counter[str] = field(default_factory=Counter)
    """Number of partitions per topic."""
    _near: NearReplicas = field(init=False)

    def __post_init__(self) -> None:
        self._near = NearReplicas(self.tuning.rack, self.clock)
        self._next_refresh = self.clock.monotonic() + REFRESH_EVERY_S

    def add(self, copy: Copy) -> None:
        if copy.source not in self.partitions:
            self._of_topic[copy.source.topic] += 1
        state = self.partitions[copy.source] = SourceState(copy)
        if not copy.wants_fetch:
            return
        if self.pace.allows(copy.source.topic):
            self._seek(state)
        else:
            self._enter(state, WaitsFor.BUDGET)

    def remove(self, tp: TopicPartition) -> None:
        state = self.partitions.pop(tp, None)
        if state is not None:
            self._of_topic[tp.topic] -= 1
            self._enter(state, WaitsFor.NOTHING)
            del self._in[WaitsFor.NOTHING][tp]
            self._filled.pop(tp, None)
        self._near.forget(tp)

    def _enter(self, state: SourceState, waits_for: WaitsFor, node: int = NO_NODE) -> None:
        tp = state.copy.source
        if state.node != node and state.node in self._brokers:
            self._brokers[state.node].session.forget(tp)
        self._in[state.waits_for].pop(tp, None)
        self._in[waits_for][tp] = state
        state.waits_for, state.node, state.sectioned_read = waits_for, node, None

    def _seek(self, state: SourceState) -> None:
        """Stop reading the partition, and find the broker from which to read it next."""
        self._enter(state, WaitsFor.BROKER)
        self._restless_until = self.clock.monotonic() + RESTLESS_S

    # -- requests

    @property
    def is_steady(self) -> bool:
        """True if the next records are due within HELD_S, and no partition is left out of fetches
        until the target has acknowledged its batches.
        """
        return (
            self.clock.monotonic() < self._steady_until
            and not self._in[WaitsFor.TARGET]
            and any(broker.is_fetching for broker in self._brokers.values())
        )

    @property
    def room_bytes(self) -> int:
        """Bytes of the memory for records that are not used; negative if responses exceeded the
        memory.
        """
        used = sum(s.copy.queued_bytes for s in self.partitions.values())
        return self.memory_bytes - used - self._held_by_sections()

    def _held_by_sections(self) -> int:
        reads = (state.sectioned_read for state in self._in[WaitsFor.SECTIONS].values())
        return sum(read.held_bytes for read in reads if read is not None)

    def _room(self) -> int:
        """Return `room_bytes`. It is faster, because only copies that may have records in memory
        are visited.
        """
        used = self._held_by_sections()
        for tp, copy in list(self._filled.items()):
            used += copy.queued_bytes
            if copy.is_drained:
                del self._filled[tp]
        return self.memory_bytes - used

    def pump(self, *, hurry: bool) -> None:
        """Send the fetches that can be sent now. If `hurry`, they wait briefly at the broker."""
        if self.pace.has_budget:
            self._resume_held()
        self._refresh()
        self._assign_brokers()
        self._resume_paused()
        if self._in[WaitsFor.SECTIONS]:
            self._request_sections()
        if all(broker.is_fetching or not len(broker.session) for broker in self._brokers.values()):
            return
        room = self._room()
        if room < MIN_ROOM_BYTES:
            return
        readers = sum(len(broker.session) > 0 for broker in self._brokers.values())
        # all brokers may respond before the memory is checked again
        room = min(room, max(MIN_ROOM_BYTES, self.memory_bytes // readers))
        hurry = hurry or (
            bool(self._in[WaitsFor.BROKER]) and self.clock.monotonic() < self._restless_until
        )
        idle_ms = PACED_WAIT_MS if self._in[WaitsFor.BUDGET] else MOST_WAIT_MS
        wait_ms = SHORT_WAIT_MS if hurry or self._in[WaitsFor.TARGET] else idle_ms
        wait_ms = min(wait_ms, self.tuning.fetch_wait_ms)
        for node, broker in self._brokers.items():
            if broker.is_fetching or not len(broker.session):
                continue
            connection = self.side.connection_to(node)
            if connection is None or not connection.may_send:
                continue
            gathered = broker.gathering.least_bytes
            parts = broker.session.request(
                max_wait_ms=min(wait_ms, broker.gathering.longest_ms) if gathered else wait_ms,
                max_bytes=min(broker.size.most_bytes, room),
                min_bytes=max(self.tuning.fetch_least_bytes, gathered),
                names_rack=not self._near.avoids_any(broker.session),
            )
            connection.submit(FETCH, broker.session.version, parts, broker)
            broker.is_fetching = True
            self.side.flush(node, connection)

    def _request_sections(self) -> None:
        room, reads = self.room_bytes, self._in[WaitsFor.SECTIONS]
        most = -(-MOST_SECTIONS // len(reads))
        for tp, state in list(reads.items()):
            read, copy = state.sectioned_read, state.copy
            if read is None:
                continue
            end = min(state.source_end, copy.end)
            load = self._load(copy) + read.held_bytes
            size = read.section_bytes
            limit = max(self._share(), self._fair_share())
            for key, connection in free_connections(self.side, state.node):
                has_room = room >= size and load + size <= limit
                section = read.next_section(end=end, limit=most, has_room=has_room)
                if section is None:
                    break
                is_next = section.offset == copy.intake.position
                last_epoch = copy.intake.last_fetched_epoch if is_next else -1
                read.send(section, connection, last_epoch, self.clock.monotonic())
                self.side.flush(key, connection)
                room -= section.most_bytes
                load += section.most_bytes
                # moved to the end, so that another partition gets the next free connection
                reads[tp] = reads.pop(tp)
            if not read.sections:
                # back to the fetch session: the log's end is near, or there is no room or no
                # connection
                self._seek(state)

    def _refresh(self) -> None:
        now = self.clock.monotonic()
        if now < self._next_refresh:
            return
        self._next_refresh = now + REFRESH_EVERY_S
        if topics := {tp.topic for tp in self._in[WaitsFor.RECORDS]}:
            self.side.query_another_broker(topics)
        for tp, state in list(self._in[WaitsFor.RECORDS].items()):
            # checked here, too, because `_ask_for_more` checks it only after a response with
            # records
            if self._near.has_expired(tp):
                self._near.forget(tp)
                self._seek(state)

    def _assign_brokers(self) -> None:
        for tp, state in list(self._in[WaitsFor.BROKER].items()):
            leader = self.side.leaders.get(tp)
            if leader is None:
                self.side.need_topics((tp.topic,))
                continue
            if self._is_recreated(state):
                continue
            node = self._near.broker_to_read(tp, leader.node)
            connection = self.side.connection_to(node)
            if connection is None:
                if node != leader.node and self._near.cannot_be_reached(tp):
                    self._near.avoid(tp)
                continue
            broker = self._brokers.get(node)
            if broker is None:
                most = self.tuning.fetch_bytes
                broker = self._brokers[node] = SourceBroker(
                    self._session(connection),
                    ReadSize(most, most),
                    Gathering(self.tuning.gather_ms),
                )
            self._enter(state, WaitsFor.RECORDS, node)
            if broker.is_fetching:
                broker.too_late.add(tp)
            self._add_to_session(broker.session, state)

    def _is_recreated(self, state: SourceState) -> bool:
        tp, expected = state.copy.source, state.copy.source_topic_id
        topic_id = self.side.topic_ids.get(tp.topic, NO_TOPIC_ID)
        if NO_TOPIC_ID in (expected, topic_id) or expected == topic_id:
            return False
        self._enter(state, WaitsFor.NOTHING)
        self.events.on_troubled(
            tp,
            PartitionError(
                f"{tp}: the source topic was deleted and created again; checking again",
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
                f"{highest}; version {VERSION_BY_NAME} is needed (Kafka 2.7 or newer)"
            )
        by_id = highest >= VERSION_BY_ID and all(
            topic_id != NO_TOPIC_ID for topic_id in self.side.topic_ids.values()
        )
        return FetchSession(
            VERSION_BY_ID if by_id else VERSION_BY_NAME,
            self.isolation,
            self._near.rack,
        )

    def _add_to_session(self, session: FetchSession, state: SourceState) -> None:
        copy = state.copy
        tp = copy.source
        intake = copy.intake
        position = FetchPosition(
            intake.position,
            self.side.leaders[tp].epoch if tp in self.side.leaders else -1,
            intake.last_fetched_epoch,
            self.pace.max_fetch_bytes(
                tp.topic,
                self.tuning.partition_fetch_bytes,
                partitions=self._of_topic[tp.topic],
            ),
        )
        session.want(tp, copy.source_topic_id, position)
        if state.source_end < 0:  # the session may know the log's end already
            state.source_end = session.reported_end(tp)

    def _resume_held(self) -> None:
        self.pace.fill()
        for tp, state in list(self._in[WaitsFor.BUDGET].items()):
            if self.pace.allows(tp.topic):
                self._enter(state, WaitsFor.BROKER)

    def _resume_paused(self) -> None:
        limit = self._share() // 2
        for state in list(self._in[WaitsFor.TARGET].values()):
            if self._load(state.copy) <= limit:
                self._seek(state)

    def _share(self) -> int:
        """Return the bytes that a partition can have in memory before it is left out of fetches.

        This is the size of two responses, or of up to four if the memory suffices. A larger share
        would not make the copy faster.
        """
        least = 2 * self.tuning.partition_fetch_bytes
        return max(least, min(2 * least, self._fair_share()))

    def _fair_share(self) -> int:
        return self.memory_bytes // max(1, len(self.partitions))

    def _load(self, copy: Copy) -> int:
        """Return the bytes of a copy that count against the partition's share of the memory.

        Batches in flight do not count while there is spare memory, because a long link to the
        target needs more bytes in flight than the share.
        """
        spare = max(0, self._fair_share() - self._share())
        return copy.queued_bytes - min(spare, sum(part.in_flight_bytes for part in copy.parts))

    # -- responses

    def on_readable(self, node: int, connection: HotConnection) -> None:
        """Process the broker's responses. Raises Disconnected or CorruptData if the whole
        connection is unusable.
        """
        for broker, view in connection.receive():
            if isinstance(broker, SectionRequest):
                self._on_section(broker, connection, view)
                continue
            broker.is_fetching = False
            too_late, broker.too_late = broker.too_late, set()
            broker.answered_at = self.clock.monotonic()
            answer = broker.session.parse(view)
            self.side.on_throttled(connection, answer.throttle_ms)
            is_throttled = answer.throttle_ms > 0
            broker.throttled += is_throttled
            broker.size.adapt(is_throttled=is_throttled)
            if answer.error and answer.error not in SESSION_ERRORS:
                raise CorruptData(f"{connection.peer} rejected a fetch with error {answer.error}")
            batches = size = 0
            for fetched in answer.partitions:
                state = self.partitions.get(fetched.tp)
                if state is None or state.node != node:
                    continue
                if fetched.tp in too_late:
                    # the broker reports log ends only once, so they are stored even if the records
                    # are not used
                    self._note_ends(state, fetched)
                else:
                    before = state.copy.intake.batches
                    self._on_partition(broker.session, state, fetched)
                    batches += state.copy.intake.batches - before
                    size += len(fetched.records or b"")
            self._note_arrival(broker, batches, size)

    def _note_arrival(self, broker: SourceBroker, batches: int, size: int) -> None:
        if not size:
            broker.gathering.on_empty()
            return
        now, before = broker.answered_at, self._arrived_at
        broker.gathering.on_records(now, batches, size)
        self._arrived_at = now
        if now - before < HELD_S:
            self._steady_until = now + HELD_S

    def _on_section(
        self, request: SectionRequest, connection: HotConnection, view: memoryview
    ) -> None:
        read, section = request
        answer = read.session.parse(view)
        self.side.on_throttled(connection, answer.throttle_ms)
        state, broker = self.partitions.get(read.tp), self._brokers.get(read.node)
        if state is None or state.sectioned_read is not read or broker is None:
            return
        broker.answered_at = self.clock.monotonic()
        is_full = read.in_flight >= read.window.size
        fetched = read.on_answer(section, answer)
        if fetched is None:
            self._seek(state)
            return
        self._note_ends(state, fetched)
        took_s = broker.answered_at - (section.sent_at or 0.0)
        read.window.adapt(took_s, connection.trip_s, is_full=is_full)
        while (due := read.pop_due(state.copy.intake.position)) is not None:
            section, fetched = due
            before = state.copy.intake.position
            if not self._queue_records(state, fetched):
                return
            position = state.copy.intake.position
            read.learn(section, len(fetched.records or EMPTY), before, position)
            if not state.copy.wants_fetch:
                self._enter(state, WaitsFor.NOTHING)
            self.events.on_arrived(state.copy)

    def _on_partition(
        self, session: FetchSession, state: SourceState, fetched: FetchedPartition
    ) -> None:
        tp = fetched.tp
        if fetched.error:
            self._on_error(state, fetched.error)
            return
        if fetched.preferred_replica != NO_REPLICA and self._near.prefer(
            tp, fetched.preferred_replica
        ):
            self._seek(state)
            return
        if fetched.diverging is not None:
            if self._near.is_read(tp, state.node):
                self.refetch_from_leader(tp)  # a nearby replica may only lag, so the leader decides
            else:
                self.events.on_troubled(tp, self._diverged_error(state, fetched.diverging))
            return
        self._note_ends(state, fetched)
        before = state.copy.intake.position
        if not fetched.records or not self._queue_records(state, fetched):
            return
        if self.pace.has_budget:
            # the incomplete batch at the end is not charged, because the broker sends it again. Its
            # size depends on the topic's share, so a charge for it would change with the share
            self.pace.charge(tp.topic, _whole_bytes(fetched.records))
        self._ask_for_more(session, state, before, len(fetched.records))
        self.events.on_arrived(state.copy)

    def _queue_records(self, state: SourceState, fetched: FetchedPartition) -> bool:
        """Queue the records of a response for the copy. If they cannot be read, report that, and
        return False.
        """
        tp = fetched.tp
        copy = self._filled[tp] = state.copy
        try:
            copy.on_fetched(fetched.records or EMPTY, fetched.aborted, self.clock.wall_ms())
        except TwinlogError as error:
            if isinstance(error, CorruptData) and self._near.is_read(tp, state.node):
                copy.intake.jumps = []
                self.refetch_from_leader(tp)  # the leader's log may be sound, so the leader decides
            else:
                self.events.on_troubled(tp, unreadable_error(error, tp, copy.intake.position))
            return False
        if copy.intake.jumps:
            self.events.on_jumped(tp, copy.intake.jumps)
            copy.intake.jumps = []
        return True

    def _note_ends(self, state: SourceState, fetched: FetchedPartition) -> None:
        if fetched.error or fetched.diverging is not None:
            return
        state.source_end = (
            fetched.last_stable_offset
            if self.isolation is Isolation.READ_COMMITTED
            else fetched.high_watermark
        )

    def _ask_for_more(
        self, session: FetchSession, state: SourceState, before: int, size: int
    ) -> None:
        """Choose how to continue after a response of `size` bytes that began at source offset
        `before`.
        """
        copy = state.copy
        tp = copy.source
        if not copy.wants_fetch:
            self._enter(state, WaitsFor.NOTHING)
        elif self._load(copy) > self._share():
            self._enter(state, WaitsFor.TARGET)
        elif not self.pace.allows(tp.topic):
            self._enter(state, WaitsFor.BUDGET)
        elif self._near.has_expired(tp):
            self._near.forget(tp)
            self._seek(state)
        elif not self._begins_sections(session, state, before, size):
            self._add_to_session(session, state)

    def _begins_sections(
        self, session: FetchSession, state: SourceState, before: int, size: int
    ) -> bool:
        """If the broker is far and a backlog exists, begin to read in sections, and return True.
        Else return False. `before` and `size`: source offset and bytes of the last response.
        """
        copy, node = state.copy, state.node
        tp, position, broker = copy.source, copy.intake.position, self._brokers[node]
        leader = self.side.leaders.get(tp)
        section_bytes = self.tuning.partition_fetch_bytes
        if (
            self.pace.has_budget
            or broker.size.most_bytes < broker.size.ceiling
            or session.version < VERSION_BY_ID
            or leader is None
            or leader.node != node
            or leader.epoch < 0
            or size < section_bytes // 2
            or position <= before
            or self.room_bytes < LEAST_SECTIONS * section_bytes
            or not is_far(self.side.connections.get(node))
        ):
            return False
        read = SectionedRead(
            tp=tp,
            topic_id=copy.source_topic_id,
            node=node,
            session=FetchSession(session.version, self.isolation, is_kept=False),
            leader_epoch=leader.epoch,
            section_bytes=section_bytes,
            next_offset=position,
            bytes_per_offset=size / (position - before),
        )
        is_behind = read.has_sections(LEAST_SECTIONS, end=min(state.source_end, copy.end))
        if not is_behind or next(free_connections(self.side, node), None) is None:
            return False
        session.forget(tp)
        self._enter(state, WaitsFor.SECTIONS, node)
        state.sectioned_read = read
        return True

    def _on_error(self, state: SourceState, error: int) -> None:
        tp = state.copy.source
        is_near = self._near.is_read(tp, state.node)
        self._enter(state, WaitsFor.NOTHING)
        if is_near and error in STALE_LEADER | {OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE}:
            self._near.avoid(tp)  # a nearby replica may lag or be damaged, so the leader decides
            self._seek(state)
        elif error in STALE_LEADER:
            self.side.forget_leader(tp)
            self._seek(state)
        else:
            self.events.on_troubled(tp, _fetch_error(tp, error, state.copy.intake.position))

    @staticmethod
    def _diverged_error(state: SourceState, diverging: tuple[int, int]) -> PartitionError:
        epoch, end = diverging
        position = state.copy.intake.position
        return source_diverged_error(
            f"{state.copy.source}: the source's log was truncated and rewritten. Its leader epoch "
            f"{epoch} ends at offset {end}, but records up to {position} were copied. The target "
            f"holds upstream records [{end}, {position}), which the source lost",
            state.copy.parts[0].target,
            lost=(end, position),
        )

    def on_disconnected(self, node: int) -> None:
        """Drop the fetch session or the sections of a lost connection, and find the brokers from
        which to read next. `node`: the connection's key.
        """
        for state in list(self._in[WaitsFor.SECTIONS].values()):
            if state.node == node_of(node):
                self._seek(state)
        broker = self._brokers.pop(node, None)
        if broker is None:
            return
        for tp, state in list(self._in[WaitsFor.RECORDS].items()):
            if state.node == node:
                if self._near.is_read(tp, node):
                    self._near.avoid(tp)
                self._seek(state)

    def on_new_leaders(self) -> None:
        """Read from the new leaders that a metadata query has found."""
        for tp, state in list(self._in[WaitsFor.RECORDS].items()):
            leader, node = self.side.leaders.get(tp), state.node
            if leader is not None and leader.node != node and not self._near.is_read(tp, node):
                self._seek(state)
        for tp, state in list(self._in[WaitsFor.SECTIONS].items()):
            if (leader := self.side.leaders.get(tp)) is None or leader.node != state.node:
                self._seek(state)

    def sees_end(self, tp: TopicPartition) -> bool:
        """Return True if the partition's broker responds, so that the known end of its log is
        current.

        It is False while the lane's memory is full, because no fetches are sent then.
        """
        state = self.partitions.get(tp)
        if state is None:
            return False
        connection, broker = self.side.connections.get(state.node), self._brokers.get(state.node)
        if connection is None or broker is None:
            return False
        since = connection.waiting_since if broker.is_fetching else broker.answered_at
        return since is None or self.clock.monotonic() - since < UNSEEN_AFTER_S

    def stalled_partitions(self) -> Iterator[StalledFetch]:
        """Yield partitions that are read from a position before their log's end, and whose broker
        responds.
        """
        for tp, state in self._in[WaitsFor.RECORDS].items():
            node, broker = state.node, self._brokers.get(state.node)
            position = state.copy.intake.position
            is_behind = position < state.source_end and state.copy.wants_fetch
            if is_behind and broker is not None and self.sees_end(tp):
                is_bounded = state.copy.end <= state.source_end
                yield StalledFetch(tp, position, node, broker.throttled, is_bounded)

    def position_of(self, tp: TopicPartition) -> int:
        """Return the offset from which the partition is read next, or -1 if it is not read here."""
        return self.partitions[tp].copy.intake.position if tp in self.partitions else -1

    def end_at(self, tp: TopicPartition, position: int, end: int) -> None:
        """End the copy if it is at `position` and has an end at or before `end`, because no record
        is at the source offsets [position, end).
        """
        state = self.partitions.get(tp)
        if state is not None and state.copy.intake.position == position and state.copy.end <= end:
            state.copy.end = position
            self._enter(state, WaitsFor.NOTHING)
            self.events.on_arrived(state.copy)

    def refetch_from_leader(self, tp: TopicPartition) -> None:
        """Read from the leader with a fresh request, because earlier requests returned nothing."""
        state = self.partitions.get(tp)
        if state is not None and state.waits_for is WaitsFor.RECORDS:
            if self._near.is_read(tp, state.node):
                self._near.avoid(tp)
            self._seek(state)


def _fetch_error(tp: TopicPartition, error: int, position: int) -> TwinlogError:
    """Return the error of a partition whose fetch from `position` was answered with `error`."""
    if error == CORRUPT_MESSAGE:
        return CorruptData(
            f"{tp}: the source's broker reports its own log as corrupt at or after upstream "
            f"offset {position}; see the server log of this broker"
        )
    if error == OFFSET_OUT_OF_RANGE:
        text = f"{tp}: the source no longer has the next offset of this copy; checking again"
        return PartitionError(text, code="SOURCE_OUT_OF_RANGE", fate=Fate.RETRIABLE)
    if error == TOPIC_AUTHORIZATION_FAILED:
        text = f"{tp}: the source denies reading: grant READ on topic {tp.topic} to Twinlog's user"
        return PartitionError(text, code="TOPIC_UNAUTHORIZED")
    text = f"{tp}: the source returned {lookup(error).name}"
    return PartitionError(text, code="SOURCE_REFUSED")


def _whole_bytes(records: memoryview) -> int:
    """Return the total size of the complete batches in a Fetch response."""
    total = 0
    with suppress(CorruptData):  # ignored, because the copy reports corrupt data later
        for header, _ in read_headers(records):
            total += header.length
    return total


@dataclass(slots=True)
class SourceBroker:
    """A broker's fetch session, and its one fetch that may be in flight."""

    session: FetchSession
    size: ReadSize
    """Maximum size of one response, which adapts to throttling."""
    gathering: Gathering
    is_fetching: bool = False
    too_late: set[TopicPartition] = field(default_factory=set)
    """Partitions that were added to the session while a fetch was in flight. Their records in its
    response are ignored: the fetch may have been for an earlier copy at a higher position, so the
    offsets before it would look like a gap of the source.
    """
    throttled: int = 0
    """Number of responses that a quota has delayed."""
    answered_at: float = 0.0
    """Monotonic time at which the broker last reported the ends of its partitions."""
