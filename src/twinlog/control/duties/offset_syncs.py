"""Duty: writes offset syncs, with which MirrorMaker 2's clients translate offsets of groups.

A sync is a pair (u, d): the record at u on the source is at d on the target. Readers use the newest
sync with u at or below a committed offset c, and return d if c = u, else d + 1. So a sync must
refer to a copied record. If u were in a gap, the first record after the gap would be at d, and
readers would skip that record.

MirrorMaker 2 writes a sync for the first record, for each record after a gap, and for the next
record after `offset.lag.max` records without a sync. Once a minute it writes a sync for the newest
record. Twinlog writes the same syncs, and a sync for the newest record as soon as no other record
follows. If many syncs become due at the same time, only evenly spaced ones are written (in
MirrorMaker 2, newer syncs replace the others as well).

A reader keeps at most 64 syncs; newer ones are closer together. If a sync is below the newest one,
the reader drops all others. So syncs are written in ascending order. If the topic has no syncs of
the flow, or different ones, the flow first writes its history.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.topic_admin import ensure_mm2_topic
from twinlog.config.flow.schema import OffsetSyncsConfig
from twinlog.control.duties.led_log import LedLog
from twinlog.control.duties.rounds import (
    Duty,
    LedFlow,
    NotPermitted,
    PartitionView,
    with_same_topics,
)
from twinlog.errors import CorruptData, TwinlogError, Unauthorized
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap
from twinlog.mirror.map.runs import ORDINAL, Run, following, run_at, run_at_upstream
from twinlog.mirror.map.translation import Reach
from twinlog.mirror.names.filters import offset_syncs_topic
from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import OffsetSync
from twinlog.wire.records import Record

MOST_AT_ONCE: Final = 64


class SyncPoint(NamedTuple):
    """One copied record, to which a sync may refer."""

    ordinal: int
    upstream: int
    downstream: int


def newest_point(runs: Sequence[Run], next_upstream: int, next_downstream: int) -> SyncPoint | None:
    """Return the last record that is certainly copied, or None if there is none.

    Runs (ranges of the offset map) are written before their records are sent, so runs from
    `next_downstream` on are ignored.
    """
    for run in reversed(runs):
        count = min(next_upstream - run.upstream, next_downstream - run.downstream)
        if count > 0:
            return _point(run, run.ordinal + count - 1)
    return None


def point_at(runs: Sequence[Run], upstream: int, downstream: int) -> SyncPoint | None:
    """Return the record to which a sync refers. Return None if the map has no such record, because
    then the sync belongs to another copy.
    """
    run = run_at_upstream(runs, upstream)
    if run is None:
        return None
    point = _point(run, run.ordinal + upstream - run.upstream)
    return point if point.downstream == downstream and is_still_there(runs, point) else None


def is_still_there(runs: Sequence[Run], point: SyncPoint) -> bool:
    """Return True if the map still has this record at these offsets. A copy that resumed at or
    before the record may have replaced it.
    """
    run = run_at(runs, point.ordinal)
    return run is not None and _point(run, point.ordinal) == point


def history(runs: Sequence[Run], newest: SyncPoint, lag_max: int) -> list[SyncPoint]:
    """Return points for the whole copy, as few as a reader would keep: each point is twice as far
    from the end as the next one.
    """
    first = runs[0].ordinal
    ordinals = {first, newest.ordinal}
    distance = _step(lag_max)
    while newest.ordinal - distance > first:
        ordinals.add(newest.ordinal - distance)
        distance *= 2
    return _points(runs, ordinals)


def points_after(
    runs: Sequence[Run], before: SyncPoint, newest: SyncPoint, lag_max: int
) -> list[SyncPoint]:
    """Return the points whose syncs became due since `before`, in ascending order."""
    begin = following(runs, before.ordinal, ORDINAL)
    end = following(runs, newest.ordinal, ORDINAL)
    gaps = [run.ordinal for run in runs[begin:end]]
    ordinals = set(gaps[:: max(1, -(-len(gaps) // MOST_AT_ONCE))])
    copied = newest.ordinal - before.ordinal
    step = max(_step(lag_max), -(-copied // MOST_AT_ONCE))
    ordinals.update(range(before.ordinal + step, newest.ordinal + 1, step))
    return _points(runs, ordinals)


def _step(lag_max: int) -> int:
    # a sync is due when d - (last + 1) >= offset.lag.max; with 0, every record gets a sync
    return max(lag_max, 0) + 1


def _points(runs: Sequence[Run], ordinals: set[int]) -> list[SyncPoint]:
    found = ((run_at(runs, ordinal), ordinal) for ordinal in sorted(ordinals))
    return [_point(run, ordinal) for run, ordinal in found if run is not None]


def _point(run: Run, ordinal: int) -> SyncPoint:
    return SyncPoint(ordinal, run.upstream_of(ordinal), run.downstream_of(ordinal))


INTERVAL_S: Final = 1.0
DELAYED_AT_MOST_S: Final = 10.0
"""Maximum delay of a busy partition's newest offset sync in seconds. In MirrorMaker 2 it is a
minute (offset.flush.interval.ms).
"""
RECORDS_PER_BATCH: Final = 2_000


def offset_syncs(flow: LedFlow) -> Duty | None:
    """Return the duty, or None if emit.offset-syncs.enabled=false."""
    config = flow.config.offset_syncs
    return None if config is None else OffsetSyncs(flow, config)


@dataclass(slots=True)
class _Written:
    """The last sync of one partition (`point`), and when it was written (`at`)."""

    reach: Reach | None = None
    """The end of the copy at the last check."""
    point: SyncPoint | None = None
    at: float = -math.inf
    is_delayed: bool = False
    """True if records newer than `point` are copied, but no sync was due."""


class OffsetSyncs(Duty):
    """Writes a flow's offset syncs to the configured cluster."""

    name = "offset syncs"
    interval_s = INTERVAL_S

    def __init__(self, flow: LedFlow, config: OffsetSyncsConfig) -> None:
        self._flow = flow
        self._config = config
        self._source, self._target = ClusterClient(flow.source), ClusterClient(flow.target)
        self._clients = self._source, self._target
        self._client = self._target if config.on_target else self._source
        self._topic = offset_syncs_topic(flow.config, config)
        self._log = LedLog(flow, self._client, self._topic)
        self._written: dict[PartitionKey, _Written] = {}
        self._found: dict[TopicPartition, OffsetSync] | None = None
        """The newest sync of each partition when the topic was read, or None before that."""
        self._may_read = True

    def round(self) -> None:
        try:
            self._round()
        except Unauthorized as error:
            self._forget()
            line = f"no offset syncs are written: {error}{self._hint}"
            raise NotPermitted(line, flow=self._flow.name) from error
        except TwinlogError:
            self._forget()
            raise

    def _forget(self) -> None:
        """Discard what is known of the topic, so that the next round reads it. The topic may have
        been deleted, or the last write may be lost.
        """
        self._found = None
        self._written.clear()

    @property
    def _hint(self) -> str:
        if self._config.on_target:
            return "; or set emit.offset-syncs.enabled=false"
        return "; or write them to the target: offset-syncs.topic.location=target"

    def _round(self) -> None:
        if self._found is not None and self._log.has_foreign_records():
            self._forget()
        if self._found is None:
            ensure_mm2_topic(self._client, self._topic, self._config.replication_factor)
            self._found = self._read()
        # read the copies' positions before the map, because an older map might lack the run after a
        # gap before such a position
        views = self._flow.partitions()
        if all(map(self._is_quiet, views)):
            return
        maps = self._flow.read_map()
        if len(self._written) > len(views):
            current = {view.map_key for view in views}
            self._written = {
                key: written for key, written in self._written.items() if key in current
            }
        now = time.monotonic()
        due: dict[PartitionView, list[SyncPoint]] = {}
        undone: dict[PartitionView, _Written] = {}
        for view in views:
            is_known = view.map_key in maps and maps.problem(view.source) is None
            if is_known and maps.has_rows_of(view.source, view.map_epoch):
                written = self._written.setdefault(view.map_key, _Written())
                before = written.point, written.at
                if points := self._due_syncs(view, maps[view.map_key], written, now):
                    due[view] = points
                    undone[view] = _Written(point=before[0], at=before[1], is_delayed=True)
        syncs: list[OffsetSync] = []
        for view in with_same_topics(due, self._source, self._target):
            del undone[view]
            syncs += (
                OffsetSync(
                    topic_partition=view.source,
                    upstream_offset=point.upstream,
                    downstream_offset=point.downstream,
                )
                for point in due[view]
            )
        self._written.update((view.map_key, before) for view, before in undone.items())
        self._write(syncs)

    def _is_quiet(self, view: PartitionView) -> bool:
        """Return True if nothing was copied since the last check, so that no sync is needed."""
        written = self._written.get(view.map_key)
        return written is not None and written.reach == view.reach and not written.is_delayed

    def _due_syncs(
        self, view: PartitionView, partition_map: PartitionMap, written: _Written, now: float
    ) -> list[SyncPoint]:
        """Return the syncs to write for one partition, and update `written` accordingly."""
        is_quiet, written.reach = written.reach == view.reach, view.reach
        if is_quiet and not written.is_delayed:
            return []  # return early in the usual case, also for thousands of partitions
        newest = None if view.reach is None else newest_point(partition_map.runs, *view.reach)
        if newest is None:
            return []
        points = self._new_points(view, partition_map, written, newest)
        if points:
            written.point = points[-1]
        is_late = is_quiet or now - written.at >= DELAYED_AT_MOST_S
        if is_late and written.point != newest:
            points.append(newest)
            written.point = newest
        if points:
            written.at = now
        written.is_delayed = written.point != newest
        return points

    def _new_points(
        self, view: PartitionView, partition_map: PartitionMap, written: _Written, newest: SyncPoint
    ) -> list[SyncPoint]:
        if written.point is None:
            written.point = self._start_point(view, partition_map)
        before = written.point
        continues = before is not None and before.ordinal <= newest.ordinal
        if before is not None and continues and is_still_there(partition_map.runs, before):
            return points_after(partition_map.runs, before, newest, self._config.lag_max)
        if not self._may_read:
            return [newest]  # a history might make MM2's clients drop unread syncs of the topic
        return history(partition_map.runs, newest, self._config.lag_max)

    def _start_point(self, view: PartitionView, partition_map: PartitionMap) -> SyncPoint | None:
        newest = None if self._found is None else self._found.get(view.source)
        if newest is None:
            return None
        return point_at(partition_map.runs, newest.upstream_offset, newest.downstream_offset)

    def _read(self) -> dict[TopicPartition, OffsetSync]:
        out: dict[TopicPartition, OffsetSync] = {}
        try:
            for record in self._log.read():
                try:
                    sync = OffsetSync.decode(record.key, record.value)
                except CorruptData:
                    continue
                out[sync.topic_partition] = sync
        except Unauthorized as error:
            # no error, because MirrorMaker 2 needs no READ permission here either
            self._may_read = False
            self._flow.log_once(
                f"{self._flow.name}: offset syncs of earlier runs are unknown, so the first new "
                f"sync of each partition has its newest copied offset: {error}{self._hint}"
            )
        return out

    def _write(self, syncs: Iterable[OffsetSync]) -> None:
        now_ms = int(time.time() * 1000)
        records = [Record(0, now_ms, sync.key(), sync.value()) for sync in syncs]
        for index in range(0, len(records), RECORDS_PER_BATCH):
            self._log.append(records[index : index + RECORDS_PER_BATCH])
