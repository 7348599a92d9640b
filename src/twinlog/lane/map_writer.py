"""Writes rows of the offset map before the data that they announce. `mirror.map.offset_map`
explains runs, chunks and terms.

**Problem.** The map must have the row of a record before the record is on the target. Otherwise a
lane that dies between the two writes leaves records whose source offsets are unknown. But a row is
a write of its own, which takes a round trip. A source with transactions has a gap after each
transaction, so nearly every batch needs a row. A wait per batch would limit the copy to a few
batches per second over a long distance. And a row that was acknowledged may be lost by an unclean
election of the map's partition, like any record.

    time ---------------------------------------------------------->
    rows      [-- round 1 --][-- round 2 --][-- round 3 --]
    batches                  [-- of round 1 --][-- of round 2 --] ...

Rows of many copies share a request, a *round*. While a round is in flight, the batches of the round
before are sent and the next runs gather. So a topic with a gap after every transaction costs one
more round trip, not one more wait per batch.

**Invariants**

1. A batch is sent only after its runs are durable: acknowledged with acks=all
   (`MapTail.durable_ordinal`).
2. Per partition of the map at most one round is in flight. So the rows of a term arrive in order,
   and the first row of a chunk after the last row of the chunk before it, as rule C of
   `mirror.map.offset_map` requires.
3. A lane writes only keys of its own terms. Rows that a seemingly dead lane writes late have keys
   of an older term, and the first row of the newer term voids them.
4. A write with an unknown outcome is never repeated under its key (rule D). Its runs go into chunks
   with new numbers.
5. Rows are never written to a re-created topic with the map's name, because that topic lacks the
   earlier rows.

**What may fail**

- *The lane dies before a round is sent*: no batch that needs these rows was sent.
- *The lane dies after the round, before the batches*: the map announces records that do not exist.
  The next start resumes at the end of the target's log, and its first row voids these
  announcements.
- *The connection breaks*: all runs that are not durable are written again, in new chunks. If the
  lost row arrives as well, it has the same runs.
- *The map's partition has no leader, or too few in-sync replicas*: the round is retried with
  growing pauses (0.05 to 5 s). After 5 s, copies that wait for the round are given back to the
  driver (`MAP_UNWRITABLE`), so that the problem is visible and the driver retries.
- *A round is larger than the topic accepts*: it is written row by row, so that only a row that is
  too large by itself is rejected.
- *A row is rejected permanently*: its copy is given back to the driver (`MAP_REFUSED`). Its batches
  were not sent.
- *The topic was deleted*: the copies are given back to the driver (`MAP_MISSING`).

**New leaders.** A new leader may lack rows that the previous one had acknowledged. So with each new
leader epoch, every copy writes its newest rows again. Until they are acknowledged, the copy reports
the old epoch (`PartitionProgress.map_epoch`), and the driver does not translate offsets with rows
that were read under a newer epoch than the reported one. The hand-over of a copy includes the epoch
of its rows, because the next lane may be the first to see a newer one. A leader change breaks no
connection, so leaders are queried every 5 s, even if nothing is written.

**Rejected:** one wait per batch (too slow), and rows after the data (a crash leaves records without
a source offset).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from twinlog.clock import Clock, GrowingPause
from twinlog.errors import CorruptData, Fate, PartitionError
from twinlog.lane.lane_partition import LaneEvents
from twinlog.lane.sides.cluster_side import ClusterSide
from twinlog.lane.sides.target_side import produce_version
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.copy.refusals import UNDER_MIN_ISR
from twinlog.mirror.map.offset_map import Run, map_home
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.wire.error_codes import (
    MESSAGE_TOO_LARGE,
    STALE_LEADER,
    TOPIC_AUTHORIZATION_FAILED,
    lookup,
)
from twinlog.wire.produce import PRODUCE, produce_answer, produce_request
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

ROUND_BYTES: Final = 512 * 1024
"""A round is closed at this size. A row has at most about 12 KB."""

NO_LEADER: Final = "has no leader"

LEADERS_EVERY_S: Final = 5.0
"""Interval at which the leaders of the map's partitions are queried, because a leader change breaks
no connection. After a change, no group is translated until the lane knows the new leader.
"""

STUCK_AFTER_S: Final = 5.0
"""If writing fails for longer than this (seconds), copies that wait for it are given back to the
driver. An election takes less time.
"""


@dataclass(slots=True)
class Round:
    """One Produce request to one partition of the map topic."""

    version: int
    home: TopicPartition
    rows: list[tuple[PartitionCopy, Run]]
    """For each row in the request, its copy and the last run of the row."""
    epoch: int
    """The newest leader epoch of `home` that was known when the request was sent."""


@dataclass(slots=True)
class _MapPartition:
    """The writer's state of one partition of the map topic."""

    waiting: dict[PartitionCopy, None] = field(default_factory=dict)
    copies: dict[PartitionCopy, int] = field(default_factory=dict)
    """By copy, the leader epoch under which its rows in this map partition certainly exist, or -1
    if unknown.
    """
    again: dict[PartitionCopy, int] = field(default_factory=dict)
    """Copies that write their rows again, by copy: the ordinal of the run up to which rows must be
    written under `epoch`.
    """
    epoch: int = -1
    """The newest known leader epoch of the map partition."""
    is_writing: bool = False
    row_by_row: bool = False
    not_before: float = 0.0
    pause: GrowingPause = field(default_factory=lambda: GrowingPause(first_s=0.05, most_s=5.0))
    failing_since: float | None = None
    problem: str = ""

    def on_failure(self, problem: str, now: float) -> None:
        self.failing_since = self.failing_since or now
        self.problem = problem
        self.not_before = now + self.pause.next_s()

    def write_again(self, copy: PartitionCopy) -> None:
        """Write the newest rows of a copy again, because a new leader of the map partition may not
        have them.
        """
        copy.tail.write_again()
        self.again[copy] = copy.tail.runs[-1].ordinal
        self.waiting[copy] = None

    def on_written(self, copy: PartitionCopy, run: Run, epoch: int) -> None:
        """Process the acknowledgement of a row: it and all earlier rows of the copy were written
        under `epoch`. `run`: the last run of the row.

        Only runs that existed when the leader changed must be written again. In a source with many
        gaps, newer runs are announced all the time, so a wait for the newest run would never end.
        """
        if epoch == self.epoch and run.ordinal >= self.again.get(copy, run.ordinal + 1):
            self.copies[copy] = epoch
            del self.again[copy]

    def on_success(self) -> None:
        self.failing_since, self.not_before = None, 0.0
        self.pause.reset()

    def is_stuck(self, now: float) -> bool:
        since = self.failing_since
        return since is not None and now - since > STUCK_AFTER_S


@dataclass(slots=True, kw_only=True)
class MapWriter:
    """Writes the map rows of all copies of a lane."""

    side: ClusterSide
    clock: Clock
    topic: str
    topic_id: TopicId
    partitions: int
    events: LaneEvents
    _map_partitions: dict[TopicPartition, _MapPartition] = field(default_factory=dict)
    _next_leaders: float = 0.0

    def add(self, copy: PartitionCopy, epoch: int = -1) -> None:
        """Start writing the rows of this copy.

        `epoch`: the leader epoch of the map partition under which the previous lane wrote the
        copy's existing rows, or -1 if unknown.
        """
        home = self._map_partition(copy)
        home.copies[copy] = home.epoch if epoch < 0 else epoch
        if home.copies[copy] < home.epoch:
            home.write_again(copy)
        self.note(copy)

    def epoch_of(self, copy: PartitionCopy) -> int:
        """Return the leader epoch of the map partition under which the copy's rows certainly exist,
        or -1 if unknown.
        """
        return self._map_partition(copy).copies.get(copy, -1)

    def note(self, copy: PartitionCopy) -> None:
        """Queue the copy if it has map rows to write (`MapTail.dirty`)."""
        if copy.tail.dirty:
            self._map_partition(copy).waiting[copy] = None

    def _map_partition(self, copy: PartitionCopy) -> _MapPartition:
        tp = TopicPartition(self.topic, map_home(copy.source, self.partitions))
        return self._map_partitions.setdefault(tp, _MapPartition())

    def forget(self, copy: PartitionCopy) -> None:
        for home in self._map_partitions.values():
            home.copies.pop(copy, None)
            home.again.pop(copy, None)
            home.waiting.pop(copy, None)
            if not home.waiting:
                home.failing_since = None  # no copy waits any more; the next wait begins at 0

    def pump(self, now_ms: int) -> None:
        """Send the waiting rows that can be sent now, in at most one request (`Round`) per map
        partition.
        """
        now = self.clock.monotonic()
        if now >= self._next_leaders:
            self._next_leaders = now + LEADERS_EVERY_S
            self.side.need_topics((self.topic,))
        for tp, home in self._map_partitions.items():
            self._note_leader_epoch(tp, home)
            if not home.waiting or home.is_writing:
                continue
            if now >= home.not_before and self._pump_one(tp, home, now_ms):
                continue
            if home.is_stuck(now):
                self._give_up(tp, home)

    def _note_leader_epoch(self, tp: TopicPartition, home: _MapPartition) -> None:
        leader = self.side.leaders.get(tp)
        if leader is None or leader.epoch <= home.epoch:
            return
        home.epoch = leader.epoch
        for copy, epoch in home.copies.items():
            if epoch < 0:
                home.copies[copy] = leader.epoch
            elif epoch < leader.epoch:
                home.write_again(copy)

    def _pump_one(self, tp: TopicPartition, home: _MapPartition, now_ms: int) -> bool:
        """Send the waiting rows of one map partition in one Produce request (`Round`). Return False
        if that is not possible now: the map topic was deleted, or its partition has no leader or
        one that cannot be reached. Return True if a connection is only busy.
        """
        if self._is_topic_lost():
            home.on_failure("", self.clock.monotonic())
            return False
        leader = self.side.leaders.get(tp)
        if leader is None:
            self.side.need_topics((self.topic,))
            home.on_failure(NO_LEADER, self.clock.monotonic())
            return False
        connection = self.side.connection_to(leader.node)
        if connection is None:
            home.on_failure("is led by a broker that cannot be reached", self.clock.monotonic())
            return False
        if not connection.may_send:
            return True
        records: list[Record] = []
        rows: list[tuple[PartitionCopy, Run]] = []
        size = 0
        for copy in list(home.waiting):
            while size <= ROUND_BYTES and not (home.row_by_row and rows):
                made = copy.tail.next_row()
                if made is None:
                    del home.waiting[copy]
                    break
                row, last = made
                key, value = row.encode()
                rows.append((copy, last))
                records.append(
                    Record(offset=len(records), timestamp=now_ms, key=key, value=value, headers=())
                )
                size += len(key) + len(value)
        if not rows:
            return True
        ids = {self.topic: self.side.topic_ids.get(self.topic, NO_TOPIC_ID)}
        version = produce_version(connection, ids)
        self.side.names[ids[self.topic].raw] = self.topic
        batch = encode_batch(records, codec=Codec.NONE)
        parts = produce_request(version, {tp: batch}, ids, self.side.settings.request_timeout_ms)
        connection.submit(PRODUCE, version, parts, Round(version, tp, rows, home.epoch))
        home.is_writing = True
        self.side.flush(leader.node, connection)
        return True

    def _is_topic_lost(self) -> bool:
        """Return True if the map topic was deleted, even if it was created again, because the new
        topic lacks the earlier rows.
        """
        if self.topic in self.side.missing:
            return True
        now = self.side.topic_ids.get(self.topic, NO_TOPIC_ID)
        return NO_TOPIC_ID not in (now, self.topic_id) and now != self.topic_id

    def _give_up(self, tp: TopicPartition, home: _MapPartition) -> None:
        for copy in list(home.waiting):
            if not copy.waits_for_map:
                continue
            error = PartitionError(
                f"{copy.source}: rows of the offset map cannot be written, because {tp} "
                f"{home.problem}; retrying",
                code="MAP_UNWRITABLE",
                fate=Fate.RETRIABLE,
            )
            if self._is_topic_lost():
                error = PartitionError(
                    f"{copy.source}: the offset map topic {self.topic} was deleted on the target, "
                    "so nothing more is copied; rebuild the map from both logs with twinlog "
                    "offsets rebuild",
                    code="MAP_MISSING",
                    fate=Fate.RETRIABLE,
                )
            self.events.on_map_failed(copy, error)

    def on_answer(self, sent: Round, view: memoryview) -> int:
        """Process the response to a `Round`: its rows become durable, are written again, or their
        copies fail.

        Return the time in ms for which the broker will not read from this connection because of a
        quota.
        """
        throttle_ms, answers = produce_answer(sent.version, view, self.side.names)
        if [answer.tp for answer in answers] != [sent.home]:
            raise CorruptData("the response to an offset map row is for another partition")
        home = self._map_partitions[sent.home]
        home.is_writing = False
        error, message = answers[0].error, answers[0].message
        if error in STALE_LEADER:
            self.side.forget_leader(sent.home)
        if not error:
            home.on_success()
            home.row_by_row = home.row_by_row and bool(home.waiting)
        elif error == MESSAGE_TOO_LARGE and len(sent.rows) > 1:
            home.row_by_row = True
        elif lookup(error).retriable:
            home.on_failure(
                "has fewer in-sync replicas than min.insync.replicas"
                if error in UNDER_MIN_ISR
                else f"returned {lookup(error).name}",
                self.clock.monotonic(),
            )
        else:
            self._on_refused(sent, error, message)
            return throttle_ms
        for copy, run in sent.rows:
            if error:
                copy.tail.on_refused()
            else:
                copy.tail.on_durable(run)
                self.events.on_durable(copy)
                home.on_written(copy, run, sent.epoch)
            self.note(copy)
        return throttle_ms

    def _on_refused(self, sent: Round, error: int, message: str | None) -> None:
        detail = f" ({message})" if message else ""
        advice = (
            f"raise max.message.bytes of topic {self.topic}"
            if error == MESSAGE_TOO_LARGE
            else f"grant WRITE on topic {self.topic} to Twinlog's user"
            if error == TOPIC_AUTHORIZATION_FAILED
            else "see the server log of the broker that leads this partition"
        )
        for copy, _ in sent.rows:
            copy.tail.on_refused()
            self.events.on_map_failed(
                copy,
                PartitionError(
                    f"{copy.source}: the offset map topic {self.topic} refused a row with "
                    f"{lookup(error).name}{detail}: {advice}",
                    code="MAP_REFUSED",
                ),
            )

    def on_disconnected(self, unanswered: list[Round]) -> None:
        """Write the rows of `unanswered`, the requests of a lost connection, again, in chunks with
        new numbers.
        """
        for sent in unanswered:
            self._map_partitions[sent.home].is_writing = False
            for copy, _ in sent.rows:
                copy.tail.on_lost()
                self.note(copy)
