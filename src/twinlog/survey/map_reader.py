"""Keeps a flow's offset map in memory: reads the map topic once, and then only new rows.

Callers without a reader of their own share one for each user, cluster and topic ID (`map_reader`).
A shared reader that was not used for an hour is dropped. The log cleaner keeps tombstones for a day
(`delete.retention.ms`), so a reader never misses one.

If a partition of the map topic cannot be read now, only maps whose rows may be in this partition
are unavailable. If a row cannot be decoded, every `read` fails, because later rows may depend on
the row.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import LATEST, OffsetResult, leader_epoch_ends, list_offsets
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.errors import CorruptData, Fate, FlowError, TwinlogError
from twinlog.mirror.map.offset_map import (
    PartitionKey,
    PartitionMap,
    StoredRow,
    row_key,
)
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.generations import FlowHistory
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.survey.replica import Maps
from twinlog.survey.state_reader import UNUSED_S
from twinlog.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from twinlog.wire.records import Record

log = logging.getLogger(__name__)

LEADER_WAIT_S: Final = 5.0
"""Seconds to wait for a leader of the map topic. A partition whose leader did not respond in the
last `read` is queried only once.
"""


class MapReader:
    """Reads the rows of all partitions of one map topic. Only one thread reads at a time."""

    def __init__(self, client: ClusterClient, topic: str, partitions: int) -> None:
        self._client = client
        self.topic = topic
        self.partitions = partitions
        self._next = dict.fromkeys(range(partitions), 0)
        self._epochs: dict[int, int] = {}
        """The leader epoch under which each partition was last read."""
        self._maps: dict[PartitionKey, PartitionMap] = {}
        self._unread: dict[int, TwinlogError] = {}
        self.topic_id = NO_TOPIC_ID
        """ID of the topic whose rows were read."""
        self._lock = threading.Lock()
        self.began_at = time.monotonic()
        """Monotonic time at which the last `read` began."""

    def read(self, client: ClusterClient | None = None) -> Maps:
        """Read new rows, and return the current maps. `client`: the client to use from now on, or
        None for the current one.

        Raises TwinlogError if no partition can be read, and FlowError for a row that is invalid or
        was written by a newer release.
        """
        with self._lock:
            self._client = client or self._client
            self.began_at = time.monotonic()
            self._check_topic()
            ends = self._ends()
            if self._has_lost_rows(ends):
                log.warning("topic %s lost its newest rows; reading all rows again", self.topic)
                self._next, self._maps = dict.fromkeys(self._next, 0), {}
            fresh: set[PartitionKey] = set()
            for partition, end in ends.items():
                try:
                    self._read(partition, end.offset, fresh)
                except FlowError:
                    raise
                except TwinlogError as error:
                    self._unread[partition] = error
                else:
                    self._epochs[partition] = end.leader_epoch
            if len(self._unread) == self.partitions:
                raise next(iter(self._unread.values()))
            unread, epochs = dict(self._unread), dict(self._epochs)
            return Maps(self._maps, unread, self.partitions, epochs)

    def _check_topic(self) -> None:
        """Check the topic's ID, because rows of an earlier topic do not apply to a new one."""
        topic = self._client.metadata([self.topic], timeout_s=LEADER_WAIT_S).topics[self.topic]
        known = self.topic_id
        if topic.error == UNKNOWN_TOPIC_OR_PARTITION and known != NO_TOPIC_ID:
            raise map_missing_error(self.topic)
        if topic.error:
            return  # later requests report the reason
        if NO_TOPIC_ID not in (known, topic.topic_id) and known != topic.topic_id:
            raise map_missing_error(self.topic)
        self.topic_id = TopicId(topic.topic_id)
        for added in range(self.partitions, len(topic.partitions)):
            self._next[added] = 0
        self.partitions = max(self.partitions, len(topic.partitions))

    def _has_lost_rows(self, ends: dict[int, OffsetResult]) -> bool:
        """Return True if rows that were read may be lost. Removes unreadable partitions from
        `ends`.

        This is so if a partition ends before the next position to read, or if the log of its new
        leader diverges before this position. Such a leader has other rows there.
        """
        risen = {
            TopicPartition(self.topic, partition): self._epochs[partition]
            for partition, end in ends.items()
            if self._epochs.get(partition, end.leader_epoch) < end.leader_epoch
        }
        lasts = leader_epoch_ends(self._client, risen, timeout_s=LEADER_WAIT_S) if risen else {}
        for tp, last in lasts.items():
            if isinstance(last, TwinlogError):
                self._unread[tp.partition] = last
                del ends[tp.partition]
            elif last.end_offset < self._next[tp.partition]:
                return True
        return any(end.offset < self._next[partition] for partition, end in ends.items())

    def _ends(self) -> dict[int, OffsetResult]:
        """Return high watermarks, which are above every acknowledged row. Partitions without a high
        watermark are marked as unread.
        """
        before, self._unread = self._unread, {}
        out: dict[int, OffsetResult] = {}
        for partitions, timeout_s in ((self._next.keys() - before, LEADER_WAIT_S), (before, 0.0)):
            tps = [TopicPartition(self.topic, partition) for partition in sorted(partitions)]
            offsets = list_offsets(self._client, tps, LATEST, timeout_s=timeout_s) if tps else {}
            for tp, end in offsets.items():
                if isinstance(end, TwinlogError):
                    self._unread[tp.partition] = end
                else:
                    out[tp.partition] = end
        return out

    def _read(self, partition: int, end: int, fresh_keys: set[PartitionKey]) -> None:
        position = self._next[partition]
        for record in read_to_end(
            self._client, self.topic, partition, position, end=end, timeout_s=LEADER_WAIT_S
        ):
            if record.key is not None:
                self._apply(record, partition, fresh_keys)
            self._next[partition] = record.offset + 1

    def _apply(self, record: Record, partition: int, fresh_keys: set[PartitionKey]) -> None:
        assert record.key is not None  # noqa: S101 (for the type checker)
        try:
            if record.value is None:
                key, term, chunk = row_key(record.key)
                if key in self._maps:
                    self._to_change(key, "", fresh_keys).remove(term, chunk)
                return
            row = StoredRow.decode(record.key, record.value)
        except (CorruptData, ValueError, TypeError) as error:
            raise _unreadable(error, self.topic, partition, record.offset) from error
        self._to_change(row.key, row.topic, fresh_keys).apply(row)

    def _to_change(
        self, key: PartitionKey, topic: str, fresh_keys: set[PartitionKey]
    ) -> PartitionMap:
        known = self._maps.get(key)
        if known is None:
            known = self._maps[key] = PartitionMap(key=key, topic=topic)
        elif key not in fresh_keys:
            known = self._maps[key] = known.copy()
        fresh_keys.add(key)
        return known


_readers: Final[dict[tuple[ClusterSettings, str, TopicId], MapReader]] = {}
_readers_turn: Final = threading.Lock()


def map_reader(client: ClusterClient, topic: TopicMetadata) -> MapReader:
    """Return this process's reader of a map topic, shared by all clients of the same user. Without
    topic IDs, rows of a re-created topic are not recognised, so each call returns a new reader.
    """
    new = MapReader(client, topic.name, len(topic.partitions))
    if topic.topic_id == NO_TOPIC_ID:
        return new
    who = replace(client.settings, client_id="")
    with _readers_turn:
        for key, reader in list(_readers.items()):
            if reader.began_at < new.began_at - UNUSED_S:
                del _readers[key]
        return _readers.setdefault((who, topic.name, TopicId(topic.topic_id)), new)


def map_missing_error(topic: str) -> FlowError:
    """Return the error for a map topic that was deleted with all its rows."""
    return FlowError(
        f"the offset map topic {topic} was deleted on the target. The positions of records are "
        "unknown, so nothing is copied; rebuild the map from both logs with twinlog offsets "
        "rebuild",
        code="MAP_MISSING",
    )


def _unreadable(error: Exception, topic: str, partition: int, offset: int) -> FlowError:
    code = error.code if isinstance(error, CorruptData) else "STATE_CORRUPT"
    reason = (
        error.message if isinstance(error, CorruptData) else f"its key cannot be read: {error!r}"
    )
    return FlowError(
        f"{TopicPartition(topic, partition)}: the row at offset {offset} cannot be used: {reason}; "
        "without this row, no offset is translated and no copy is started",
        code=code,
        fate=Fate.FATAL,
    )


def lacks_map(target: ClusterClient, map_topic: str, history: FlowHistory | None) -> bool:
    """Return True if the flow has had a leader, but its map topic does not exist."""
    if history is None or history.latest is None:
        return False
    return target.metadata([map_topic]).topics[map_topic].error == UNKNOWN_TOPIC_OR_PARTITION


def require_nothing_copied(
    target: ClusterClient, map_topic: str, plans: Iterable[PartitionPlan]
) -> None:
    """Raise MAP_MISSING if a remote topic has ever had a record, or if that is unknown."""
    topics = target.metadata(sorted({plan.target.topic for plan in plans})).topics.values()
    tps = [tp for topic in topics for tp in topic.tps]
    ends = list_offsets(target, tps, LATEST)
    for end in (ends[tp] for tp in tps):
        # a topic that retention has emptied counts too, because only the map had the offset at
        # which its copy must resume
        if isinstance(end, TwinlogError) or end.offset > 0:
            raise map_missing_error(map_topic)
