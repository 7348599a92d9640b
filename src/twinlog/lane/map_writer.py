"""Writes offset map rows ahead of the data they announce, one round at a time per map partition.

Rows of many partitions share a request. While a round is on its way the data of the round before it
is still being sent, so a topic with a gap behind every transaction costs one more round trip, not
one more wait a batch. A row that fails is written again: the batches it announces wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.errors_table import lookup
from twinlog.cluster.produce import PRODUCE, produce_answer, produce_request
from twinlog.errors import CorruptData
from twinlog.lane.cluster_side import ClusterSide
from twinlog.lane.target_side import STALE_LEADER, produce_version
from twinlog.mirror.copy import PartitionCopy
from twinlog.mirror.offset_map import Run, map_partition
from twinlog.model import NO_TOPIC_ID, TopicPartition
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

ROUND_BYTES: Final = 512 * 1024


@dataclass(slots=True)
class Round:
    """One write to one partition of the map topic."""

    version: int
    home: TopicPartition
    rows: list[tuple[PartitionCopy, Run]]
    """The copies written for, with the last run that the row holds."""


@dataclass(slots=True, kw_only=True)
class MapWriter:
    """All map writing of a lane."""

    side: ClusterSide
    topic: str
    partitions: int
    on_durable: Callable[[PartitionCopy], None]
    on_refused: Callable[[PartitionCopy, int, str | None], None]
    _dirty: dict[TopicPartition, dict[PartitionCopy, None]] = field(default_factory=dict)
    _writing: set[TopicPartition] = field(default_factory=set)

    def note(self, copy: PartitionCopy) -> None:
        """The copy's tail may have something to write."""
        if copy.tail.dirty:
            home = TopicPartition(self.topic, map_partition(copy.source, self.partitions))
            self._dirty.setdefault(home, {})[copy] = None

    def forget(self, copy: PartitionCopy) -> None:
        for waiting in self._dirty.values():
            waiting.pop(copy, None)

    def is_writing(self, copy: PartitionCopy) -> bool:
        """True while a row of this copy is due or on its way."""
        return copy.tail.dirty or copy.tail.writing > 0

    def pump(self, now_ms: int) -> None:
        """Start the rounds that can start now."""
        for home, waiting in self._dirty.items():
            if not waiting or home in self._writing:
                continue
            leader = self.side.leaders.get(home)
            if leader is None:
                self.side.need_topics((self.topic,))
                continue
            connection = self.side.connection_to(leader.node)
            if connection is None:
                continue
            records: list[Record] = []
            rows: list[tuple[PartitionCopy, Run]] = []
            size = 0
            for copy in list(waiting):
                if size > ROUND_BYTES:
                    break
                del waiting[copy]
                key, value = copy.tail.row().encode()
                copy.tail.dirty = False
                copy.tail.writing += 1
                rows.append((copy, copy.tail.runs[-1]))
                records.append(
                    Record(offset=len(records), timestamp=now_ms, key=key, value=value, headers=())
                )
                size += len(key) + len(value)
            ids = {self.topic: self.side.topic_ids.get(self.topic, NO_TOPIC_ID)}
            version = produce_version(connection, ids)
            self.side.names[ids[self.topic].raw] = self.topic
            batch = encode_batch(records, codec=Codec.NONE)
            parts = produce_request(
                version, {home: batch}, ids, self.side.settings.request_timeout_ms
            )
            connection.submit(PRODUCE, version, parts, Round(version, home, rows))
            self._writing.add(home)
            self.side.flush(leader.node, connection)

    def on_answer(self, sent: Round, view: memoryview) -> None:
        """A round was answered: its runs are durable, or it is written again."""
        _, answers = produce_answer(sent.version, view, self.side.names)
        if [answer.tp for answer in answers] != [sent.home]:
            raise CorruptData("a row of the offset map was answered for another partition")
        self._writing.discard(sent.home)
        error, message = answers[0].error, answers[0].message
        if error in STALE_LEADER:
            self.side.forget_leader(sent.home)
        for copy, run in sent.rows:
            copy.tail.writing -= 1
            if not error:
                copy.tail.on_durable(run)
                self.on_durable(copy)
            elif error in STALE_LEADER or error in (7, 13, 19, 20):
                copy.tail.dirty = True
            else:
                self.on_refused(copy, error, message or lookup(error).name)
            self.note(copy)

    def on_disconnected(self, unanswered: list[Round]) -> None:
        """Rounds of a lost connection are written again, under new keys."""
        for sent in unanswered:
            self._writing.discard(sent.home)
            for copy, _ in sent.rows:
                copy.tail.writing -= 1
                copy.tail.on_lost()
                self.note(copy)
