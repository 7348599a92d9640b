"""`spark.readStream.format("twinlog")`: micro-batches over offsets in Spark's checkpoint.

Spark writes the end of a micro-batch to its checkpoint before it plans tasks, and plans the same
range again after a restart. So the rows of a micro-batch depend only on its two offsets, and the
reader keeps no state that a restart would need.

- If the process dies after `latestOffset`, the end may be in the checkpoint. If not, a new end is
  requested.
- If it dies while tasks run, the same range is read again. Sinks handle repeated rows.
- If it dies before `commit`, the group lags until the next commit. Group offsets are for people and
  tools; only `startingOffsets=group:NAME` of a new query reads them. Spark commits a micro-batch
  when it plans the next one, so Spark never commits the last micro-batch of `AvailableNow`. But
  Spark requests the end of a micro-batch only after the previous one is in the sink. So the start
  in that request is committed, too.
- If two queries commit to one group, the last commit wins. If the group has members, the commit is
  refused (GROUP_ACTIVE).

A partition that is not in the checkpoint is new. It is read from offset 0, as by Spark's own
source, so none of its records are skipped. Records that retention has already deleted are reported.
A partition that was deleted stays in the checkpoint with its offset. With `failOnDataLoss=false`
the query continues without the partition, even if its topic was named.

A topic that is re-created while the query runs is recognised by its ID. With `failOnDataLoss=false`
the next micro-batch ends at offset 0 of the topic's partitions and has no rows of them. The
micro-batch after it reads the new topic from its first offset, also after a restart. The checkpoint
has no IDs, so a topic that was re-created while no query ran looks like a truncated log. The
position then moves to the log's end, and a warning names the skipped offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed, commit_offsets, is_refused_as_active
from twinlog.cluster.logs.offsets import LATEST
from twinlog.cluster.logs.raw_log import fetch_records
from twinlog.errors import ClusterError, Fate, RecordsLost, TwinlogError
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.records.bounds import from_json, to_json
from twinlog.records.gaps import OffsetRange, find_losses, log_bounds, report, warn_of_gone
from twinlog.records.options import ReadOptions
from twinlog.records.planning import (
    Offsets,
    existing_parts,
    find_partitions,
    grouped_ranges,
    limited_ends,
    listed_offsets,
    resolve,
    split,
)
from twinlog.records.spark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from twinlog.records.tasks import PlanningReader
from twinlog.records.upstreams import UpstreamMaps
from twinlog.wire.record_batch import read_headers

log = logging.getLogger(__name__)

FEW_OFFSETS: Final = 1000
"""Maximum total offsets of ranges that share a task, because a task costs as much as about a
thousand rows.
"""
PROBE_BYTES: Final = 256 << 10
"""Bytes to read from each partition to estimate bytes per offset, for `maxBytesPerTrigger`."""


class StreamReader(PlanningReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream: plans in a separate process on the driver's host, and reads in tasks."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._client: ClusterClient | None = None
        self._upstreams: UpstreamMaps | None = None
        """The offset maps as read for the last micro-batch."""
        self._target: Offsets | None = None
        """The offsets at which an `AvailableNow` query ends, or None for a query without an end."""
        self._may_miss = not options.fails_on_data_loss
        self._ids: dict[TopicPartition, TopicId] = {}
        """Topic ID of each partition when partitions were last listed."""
        self._missing_topics: frozenset[str] = frozenset()
        """Topics that were missing when the last micro-batch was planned."""
        self._recreated_ends: Offsets = {}
        """Partitions of re-created topics, for which the last micro-batch ends at offset 0."""
        self._latest: Offsets = {}
        self._reached: Offsets = {}
        """End of the last micro-batch, for PySpark before 4.2, which does not pass it."""
        self._committed: dict[str, Any] | None = None
        """Offsets committed to the group, or the query's first offsets."""

    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which a query without a checkpoint begins."""
        client = self._connected()
        tps = self._ids = find_partitions(client, self._options)
        begin = to_json(resolve(client, self._options.starting, tps, self._options.isolation))
        self._committed, self._reached = begin, from_json(begin)
        return begin

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the query end at the current ends of the logs."""
        client = self._connected()
        self._ids |= (partitions := find_partitions(client, self._options, may_miss=self._may_miss))
        self._target = self._ends(client, partitions)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch, or `start` if there are no new records.

        Before Spark 4.2, `start` is None, and with AvailableNow there is a call before the first
        micro-batch. So in these versions a call does not show that all rows before the last
        returned end are in the sink.
        """
        client = self._connected()
        begin = self._reached if start is None else from_json(start)
        if start is not None:
            self.commit(start)
        partitions = find_partitions(client, self._options, may_miss=self._may_miss)
        self._warn_of_missing(partitions, begin)
        again = self._created_again(partitions, begin)
        self._ids |= partitions
        if self._target is None:
            self._latest = self._ends(client, partitions)
        else:
            self._target |= self._ends(client, again)
            self._latest = dict(self._target)
        # the micro-batch after this one reads re-created topics from offset 0
        self._recreated_ends = {tp: 0 for tp in again if begin.get(tp)}
        wanted = [
            OffsetRange(tp=tp, first=begin.get(tp, 0), end=end)
            for tp, end in self._latest.items()
            if tp not in self._recreated_ends
        ]
        truncated = [span for span in wanted if span.end < span.first]
        ends = self._recreated_ends | {span.tp: span.end for span in wanted}
        if truncated:
            ends |= self._ends_after_truncation(client, truncated)
        ready = [span for span in wanted if span.size]
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            ends |= self._limited(client, ready)
        # partitions that are missing now keep their offsets
        self._reached = {**begin, **ends}
        return to_json(self._reached)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self._latest) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return tasks for ranges between two checkpointed offsets. Small ranges share a task."""
        begin = from_json(start)
        wanted = [
            OffsetRange(tp=tp, first=begin.get(tp, 0), end=last)
            for tp, last in from_json(end).items()
        ]
        # checked again, because before Spark 4.2 `latestOffset` does not get the checkpoint's start
        truncated = [
            span for span in wanted if span.end < span.first and span.tp not in self._recreated_ends
        ]
        if truncated:
            self._ends_after_truncation(self._connected(), truncated)
        ranges = [span for span in wanted if span.size]
        if not ranges:
            return []
        if self._may_miss:
            ranges = self._unchanged(ranges)
        tps = [span.tp for span in ranges]
        bounds = log_bounds(self._connected(), tps, may_miss=self._may_miss)
        existing = existing_parts(ranges, bounds, fails=not self._may_miss)
        least = self._options.min_partitions
        ranges = split(existing, least)
        groups = (
            grouped_ranges(ranges, FEW_OFFSETS) if least is None else [[span] for span in ranges]
        )
        return self._tasks(groups, self._upstream_maps)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit these offsets to the group, because all rows before them are in the sink."""
        group = self._options.commit_group
        if not group or end == self._committed:
            return
        offsets = {tp: Committed(offset) for tp, offset in from_json(end).items()}
        answer = commit_offsets(Coordinators(self._connected()), {group: offsets})[group]
        answers = [answer] if isinstance(answer, TwinlogError) else list(answer.values())
        for error in answers:
            if error is not None:
                _raise_final(group, error)
        if not any(answers):
            self._committed = end

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = self._upstreams = None

    def _connected(self) -> ClusterClient:
        if self._client is None:
            self._client = ClusterClient(self._options.cluster())
            self._client.keep_leaders()
        return self._client

    def _upstream_maps(self) -> UpstreamMaps:
        if self._upstreams is None:
            self._upstreams = UpstreamMaps(self._connected(), self._options.upstreams)
        return self._upstreams

    def _ends(self, client: ClusterClient, tps: Iterable[TopicPartition]) -> Offsets:
        isolation = self._options.isolation
        return listed_offsets(client, tps, LATEST, isolation, may_miss=self._may_miss)

    def _warn_of_missing(self, partitions: Iterable[TopicPartition], begin: Offsets) -> None:
        """Warn once about each missing topic that is named or in the checkpoint."""
        named = {*self._options.topics, *(tp.topic for tp in (*self._options.assigned, *begin))}
        missing = named - {tp.topic for tp in partitions}
        for name in sorted(missing - self._missing_topics):
            log.warning(
                "topic %s is not read: it does not exist, the user may not see it, or the query no "
                "longer subscribes to it; its offsets stay in the checkpoint",
                name,
            )
        self._missing_topics = frozenset(missing)

    def _created_again(
        self, topic_ids: Mapping[TopicPartition, TopicId], begin: Offsets
    ) -> list[TopicPartition]:
        """Return the partitions whose topics were re-created since they were last listed.

        Raises RecordsLost with `failOnDataLoss`, else warns of the lost offsets.
        """
        again = [tp for tp, topic_id in topic_ids.items() if self._is_another(tp, topic_id)]
        todo = "compare the rows with another copy of the topic, then begin with a new checkpoint"
        if self._may_miss:
            todo = "the new topic is read from offset 0"
        losses = []
        for tp in again:
            first = begin.get(tp, 0)
            end = max(first, self._latest.get(tp, 0))
            what = f"the topic was re-created, so offsets [{first}, {end}) and later ones are lost"
            if end:
                lost = RecordsLost(f"{tp}: {what}; {todo}", code="TRUNCATED", lost=(first, end))
                losses.append(lost)
        report(losses, fails=not self._may_miss)
        return again

    def _is_another(self, tp: TopicPartition, topic_id: TopicId) -> bool:
        """Return True if the topic's ID differs from the ID that was listed last. Returns False
        without topic IDs.
        """
        known = self._ids.get(tp, NO_TOPIC_ID)
        return NO_TOPIC_ID not in (known, topic_id) and known != topic_id

    def _ends_after_truncation(
        self, client: ClusterClient, truncated: Sequence[OffsetRange]
    ) -> Offsets:
        """Return the offsets at which the next micro-batch must end in these partitions, whose logs
        end before the offset up to which they were read.

        If `isolation` was changed to read_committed while a transaction is open, the log only seems
        to be shorter until the transaction ends. Otherwise the log was truncated, and reading
        continues at its end.
        """
        bounds = log_bounds(client, [span.tp for span in truncated], may_miss=self._may_miss)
        out: Offsets = {span.tp: span.first for span in truncated}
        for span in truncated:
            whole = bounds.get(span.tp)
            if whole is None:
                continue  # the partition was deleted; its offset stays in the checkpoint
            reached = OffsetRange(tp=span.tp, first=span.first, end=span.first)
            losses = find_losses(reached, whole)
            report(losses, fails=not self._may_miss)
            out[span.tp] = min(span.first, whole.end)
            if losses and whole.start < span.end:
                log.warning(
                    "%s: if the topic was re-created, offsets [%d, %d) of the new topic are "
                    "skipped: read them with another query",
                    *(span.tp, whole.start, span.end),
                )
        return out

    def _unchanged(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges whose topics were not deleted or re-created since the micro-batch was
        planned. Warns of all other ranges.
        """
        topics = self._connected().metadata(sorted({span.tp.topic for span in ranges})).topics
        existing = {tp: topic.topic_id for topic in topics.values() for tp in topic.tps}
        lost_ranges = [
            span
            for span in ranges
            if span.tp not in existing or self._is_another(span.tp, existing[span.tp])
        ]
        for gone_span in lost_ranges:
            warn_of_gone(gone_span)
        return [span for span in ranges if span not in lost_ranges]

    def _limited(self, client: ClusterClient, ready: Sequence[OffsetRange]) -> Offsets:
        ends = {span.tp: span.end for span in ready}
        if self._options.max_offsets is not None:
            ends = limited_ends(ready, self._options.max_offsets)
        if self._options.max_bytes is not None:
            cut = [OffsetRange(tp=span.tp, first=span.first, end=ends[span.tp]) for span in ready]
            ends = limited_ends(cut, self._options.max_bytes, _bytes_per_offset(client, cut))
        return ends


def _bytes_per_offset(
    client: ClusterClient, ranges: Sequence[OffsetRange]
) -> Mapping[TopicPartition, float]:
    """Estimate the bytes per offset of each partition from its first batches in the range.

    Brokers cannot find an offset by size. Partitions that cannot be read now are left out.
    """
    wanted = {span.tp: (span.first, PROBE_BYTES) for span in ranges}
    out: dict[TopicPartition, float] = {}
    for tp, answer in fetch_records(client, wanted).items():
        if isinstance(answer, TwinlogError):
            continue  # the task that reads this partition will report the error
        headers = [header for header, _ in read_headers(answer.records)]
        offsets = headers[-1].next_offset - wanted[tp][0] if headers else 0
        if offsets > 0:
            out[tp] = sum(header.length for header in headers) / offsets
    return out


def _raise_final(group: str, error: TwinlogError) -> None:
    """Raise the error of a commit unless it is retriable. Retriable errors are only logged, because
    the micro-batch is done in any case.
    """
    if is_refused_as_active(error):
        raise ClusterError(
            f"group {group} has active members, so the query does not overwrite its offsets: stop "
            "the members, or write another commitGroup",
            code="GROUP_ACTIVE",
        )
    if error.fate is not Fate.RETRIABLE:
        raise error
    log.warning("commitGroup: %s; the next commit tries again", error)
