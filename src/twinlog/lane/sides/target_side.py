"""The writing side of a lane: many partitions per request, many requests in flight, one connection
per target broker.

A partition does not change its broker while anything is in flight. When its leader moves, the old
leader's response is an error. The partition then drains, and is started again. So all its requests
in flight use one connection, and the broker appends them in order.

A broker that does not accept topic IDs (Produce below version 13, Kafka before 4.1) appends to any
topic of the name. With such a broker, the first batch after a pause or over a new connection must
wait for new metadata. It is sent only if this metadata confirms that the name still means the topic
that the start checked (`topic_by_name`). If a topic is re-created between that metadata and the
batch, the response shows it, because K decreases. Then the topics are checked again, so the batch
is never reported as a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from twinlog.clock import Clock
from twinlog.cluster.net.hot_connection import HotConnection
from twinlog.cluster.net.round_trip import FAR_S, RequestsInFlight
from twinlog.errors import CorruptData, Fate, PartitionError, TwinlogError, Unsupported
from twinlog.lane.lane_partition import LaneEvents
from twinlog.lane.sides.cluster_side import ClusterSide
from twinlog.lane.sides.topic_by_name import TopicByName
from twinlog.mirror.copy.intake import OutBatch
from twinlog.mirror.copy.partition import PIPELINE, PartitionCopy
from twinlog.mirror.copy.refusals import BROKEN_LOG
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.wire.error_codes import STALE_LEADER
from twinlog.wire.produce import (
    PRODUCE,
    VERSION_BY_ID,
    VERSION_BY_NAME,
    produce_answer,
    produce_request,
)

MOST_IN_FLIGHT: Final = 4096
"""Maximum batches in flight of one partition. Their bytes are limited by the lane's memory."""

SENT_TOGETHER_BYTES: Final = 256 * 1024
"""Bytes of requests that are collected for one system call."""


@dataclass(slots=True)
class SentBatches:
    """The content of one Produce request."""

    version: int
    batches: dict[TopicPartition, tuple[PartitionCopy, OutBatch]]
    at: float
    trip_s: float
    """Shortest response time of the connection before this request was sent, in seconds."""


def produce_version(connection: HotConnection, ids: Mapping[str, TopicId]) -> int:
    """Return the Produce version with topic IDs if the broker accepts them and all topics have IDs,
    else the version with names. Raises Unsupported if the broker is too old.
    """
    _, highest = connection.api_versions.get(PRODUCE, (0, 0))
    if highest < VERSION_BY_NAME:
        raise Unsupported(
            f"{connection.peer} offers Produce up to version {highest}; version {VERSION_BY_NAME} "
            "is needed (Kafka 2.8 or newer)"
        )
    has_ids = highest >= VERSION_BY_ID and NO_TOPIC_ID not in ids.values()
    return VERSION_BY_ID if has_ids else VERSION_BY_NAME


@dataclass(slots=True)
class TargetState:
    """The state of one copy on the writing side."""

    searched_at: float
    """Monotonic time at which the search for the copy's start point began."""
    window: RequestsInFlight = field(
        default_factory=lambda: RequestsInFlight(PIPELINE, MOST_IN_FLIGHT)
    )
    name_evidence: TopicByName | None = None
    """Evidence that the topic's name still means the topic that the start checked. None if the
    broker accepts topic IDs.
    """
    node: int | None = None
    """The broker to which the copy sends. It is None only while nothing is in flight."""


@dataclass(slots=True, kw_only=True)
class TargetSide:
    """Writes all record batches of a lane."""

    side: ClusterSide
    clock: Clock
    events: LaneEvents
    request_bytes: int
    """A request is closed at this size. A single batch may be larger."""
    copies: dict[PartitionCopy, TargetState] = field(default_factory=dict)
    """All copies, with their states. Several copies may write to the same target partition."""
    in_flight_bytes: int = 0
    """Bytes of unanswered record batches."""
    _requested_epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """By target partition, the leader epoch under which a check of the log was last requested. That
    check is made under this epoch or a newer one.
    """
    _ready: dict[int, dict[PartitionCopy, None]] = field(default_factory=dict)
    """Copies with batches to send, by broker, in the order in which they are served."""
    _blocked: set[PartitionCopy] = field(default_factory=set)
    """Copies whose next batch must wait until a response arrives, or a map row is durable."""

    def add(self, copy: PartitionCopy, searched_at: float) -> None:
        """Add a copy. `searched_at`: monotonic time at which the search for its start point
        began.
        """
        self.copies[copy] = TargetState(searched_at)
        self.side.names[copy.target_topic_id.raw] = copy.target.topic

    def remove(self, copy: PartitionCopy) -> None:
        state = self.copies.pop(copy, None)
        self._blocked.discard(copy)
        if state is not None and state.node is not None:
            self._ready.get(state.node, {}).pop(copy, None)

    def wake(self, copy: PartitionCopy) -> None:
        """Queue the copy if it has a batch that may be ready to send."""
        state = self.copies.get(copy)
        self._blocked.discard(copy)
        if state is None or not copy.is_ready:
            return
        if state.node is None:
            leader = self.side.leaders.get(copy.target)
            if leader is None:
                self.side.need_topics((copy.target.topic,))
                return
            state.node = leader.node
            copy.on_new_connection()
            self._note_leader(copy)
        self._ready.setdefault(state.node, {})[copy] = None

    def on_new_leaders(self) -> None:
        """Use the new leaders that a metadata query has found, for copies with nothing in flight.

        A copy that never sent to its broker, or got all responses, sees no error and no broken
        connection. Without this method, such a copy would wait for a dead broker until the broker
        returns.
        """
        for copy, state in self.copies.items():
            if state.node is None:
                continue
            self._note_leader(copy)
            leader = self.side.leaders.get(copy.target)
            if leader is None or leader.node == state.node or copy.in_flight:
                continue
            self._ready.get(state.node, {}).pop(copy, None)
            state.node = None
        self.wake_all()

    def _note_leader(self, copy: PartitionCopy) -> None:
        leader = self.side.leaders.get(copy.target)
        if leader is not None:
            copy.leader.on_metadata(
                leader.epoch, requested_epoch=self._requested_epochs.get(copy.target, -1)
            )

    def wake_all(self) -> None:
        """Queue every copy that has a batch to send, after leaders or connections changed."""
        for copy in self.copies:
            self.wake(copy)

    @property
    def is_blocked(self) -> bool:
        """True if batches wait for a response, a row of the map or a connection."""
        return bool(self._blocked) or any(self._ready.values())

    def pump(self, now_ms: int) -> None:
        """Send as much as the windows of the copies and the sockets allow."""
        for node, ready in self._ready.items():
            if not ready:
                continue
            connection = self.side.connection_to(node)
            if connection is None:
                continue
            while not connection.wants_write:
                together = 0
                while together < SENT_TOGETHER_BYTES and connection.may_send:
                    size = self._submit_one(connection, ready, now_ms)
                    if not size:
                        break
                    together += size
                if not together:
                    break
                self.side.flush(node, connection)

    def _submit_one(
        self, connection: HotConnection, ready: dict[PartitionCopy, None], now_ms: int
    ) -> int:
        """Put all batches that may be sent to one broker now into one request, and queue it. Return
        the size of the batches; 0 if there are none.
        """
        batches: dict[TopicPartition, tuple[PartitionCopy, OutBatch]] = {}
        ids: dict[str, TopicId] = {}
        size = 0
        for copy in list(ready):
            if size >= self.request_bytes:
                break
            tp = copy.target
            if tp in batches:
                # a request has one batch per partition, so this batch waits for the next request
                continue
            if ids.setdefault(tp.topic, copy.target_topic_id) != copy.target_topic_id:
                # the topic was re-created in the meantime, and a request has one ID per topic, so
                # this batch waits for the next request
                continue
            if not self._is_sure_of_topic(connection, copy, now_ms):
                # the next metadata wakes the copy again, unless the copy has failed
                del ready[copy]
                continue
            if connection.opened_at > self.copies[copy].searched_at:
                copy.leader.may_have_restarted()
            batch = self._next_batch(ready, copy, now_ms)
            if batch is None:
                continue
            batches[tp] = (copy, batch)
            size += len(batch.data)
        if batches:
            self._submit(connection, batches, ids)
            self.in_flight_bytes += size
        return size

    def _next_batch(
        self, ready: dict[PartitionCopy, None], copy: PartitionCopy, now_ms: int
    ) -> OutBatch | None:
        batch = copy.next_batch(now_ms)
        if batch is None or not copy.is_ready:
            del ready[copy]  # a response or new data wakes the copy again
        if batch is None and copy.is_ready:
            self._blocked.add(copy)
        if batch is None and copy.trouble is not None:
            self._requested_epochs[copy.target] = copy.leader.epoch
            self.events.on_answered(copy)
        return batch

    def _submit(
        self,
        connection: HotConnection,
        batches: dict[TopicPartition, tuple[PartitionCopy, OutBatch]],
        ids: dict[str, TopicId],
    ) -> None:
        version = produce_version(connection, ids)
        data = {tp: batch.data for tp, (_, batch) in batches.items()}
        parts = produce_request(version, data, ids, self.side.settings.request_timeout_ms)
        now = self.clock.monotonic()
        connection.submit(
            PRODUCE, version, parts, SentBatches(version, batches, now, connection.trip_s)
        )
        if version < VERSION_BY_ID:
            for copy, _ in batches.values():
                if name_evidence := self.copies[copy].name_evidence:
                    name_evidence.on_sent(now)

    def _is_sure_of_topic(
        self, connection: HotConnection, copy: PartitionCopy, now_ms: int
    ) -> bool:
        _, highest = connection.api_versions.get(PRODUCE, (0, 0))
        if highest >= VERSION_BY_ID or copy.target_topic_id == NO_TOPIC_ID:
            return True
        now, topic = self.clock.monotonic(), copy.target.topic
        state = self.copies[copy]
        name_evidence = state.name_evidence = state.name_evidence or TopicByName()
        if name_evidence.is_fresh(now):
            return True
        asked_at = self.side.metadata_requested_at.get(topic, 0.0)
        if name_evidence.wants_metadata(now, asked_at):
            self.side.need_topics((topic,))
            return False
        topic_id = self.side.topic_ids.get(topic)
        if topic_id in (NO_TOPIC_ID, copy.target_topic_id):
            name_evidence.on_same_topic_id(asked_at)
            return True
        copy.stop(
            PartitionError(
                f"{copy.target}: the target topic was deleted"
                f"{' and created again' if topic_id else ''}; checking again",
                code="TARGET_RECREATED" if topic_id else "TOPIC_MISSING",
                fate=Fate.RETRIABLE,
            ),
            now_ms,
        )
        self.events.on_answered(copy)
        return False

    def on_answer(self, sent: SentBatches, view: memoryview, now_ms: int) -> int:
        """Process the response to one Produce request.

        Return the time in ms for which the broker will not read from the connection because of a
        quota. Raises CorruptData if the response is for other partitions, because then the outcome
        is unknown.
        """
        throttle_ms, answers = produce_answer(sent.version, view, self.side.names)
        if {answer.tp for answer in answers} != sent.batches.keys():
            raise CorruptData("the response to a Produce request is for other partitions")
        for answer in answers:
            copy, batch = sent.batches.pop(answer.tp)
            self.in_flight_bytes -= len(batch.data)
            if answer.error in STALE_LEADER:
                self.side.forget_leader(answer.tp)
            copy.on_produced(answer, now_ms)
            if sent.version < VERSION_BY_ID:
                self._on_answer_by_name(copy)
            if sent.trip_s >= FAR_S:
                self._fill_link(copy, sent)
            self.wake(copy)
            self.events.on_answered(copy)
        return throttle_ms

    def _fill_link(self, copy: PartitionCopy, sent: SentBatches) -> None:
        state = self.copies.get(copy)
        if state is not None:
            is_full = copy.in_flight + 1 >= state.window.size
            took_s = self.clock.monotonic() - sent.at
            state.window.adapt(took_s, sent.trip_s, is_full=is_full)
            copy.pipeline = state.window.size

    def _on_answer_by_name(self, copy: PartitionCopy) -> None:
        state = self.copies.get(copy)
        if state is not None and (name_evidence := state.name_evidence):
            name_evidence.on_answered(self.clock.monotonic(), is_ours=copy.trouble is None)
        if copy.trouble is None:
            return
        if copy.trouble.code in BROKEN_LOG and copy.target_topic_id != NO_TOPIC_ID:
            # the log is damaged, or the topic was re-created: the next start checks the topic ID
            # and the log
            copy.trouble = PartitionError(
                f"{copy.target}: a batch was appended at an unexpected offset. This broker "
                "identifies topics by name only, so the topic may have been deleted and created "
                "again; checking again",
                code="TARGET_RECREATED",
                fate=Fate.RETRIABLE,
            )

    def on_disconnected(
        self, node: int, unanswered: list[SentBatches], error: TwinlogError, now_ms: int
    ) -> None:
        """Process a lost connection: the outcome of all batches in flight on it (`unanswered`) is
        unknown, so their copies stop.
        """
        self._ready.pop(node, None)
        lost = [pair for sent in unanswered for pair in sent.batches.values()]
        self.in_flight_bytes -= sum(len(batch.data) for _, batch in lost)
        for state in self.copies.values():
            if state.node == node:
                state.node = None
                if state.name_evidence:
                    state.name_evidence.on_disconnected()
        for copy in dict.fromkeys(copy for copy, _ in lost):
            copy.on_disconnected(
                PartitionError(
                    f"{copy.target}: {error.message}; checking which records arrived",
                    code="TARGET_DISCONNECTED",
                    fate=Fate.RETRIABLE,
                ),
                now_ms,
            )
            self.events.on_answered(copy)
        for copy in list(self.copies):
            self.wake(copy)
