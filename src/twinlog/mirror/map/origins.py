"""Finds the source offset of each record in a target log, from the header of its batch.

A batch of this flow was written under one of its producer IDs, and its base sequence is the ordinal
of its first record (mod 2^31). The map gives the upstream offset of each ordinal.

    downstream    70  71  72 | 73  74 | 75  76        73 and 74 are foreign
    producer       9           4        9
    sequence       0           0        3
    ordinal        0   1   2            3   4
    upstream     100 101 102    -   -  104 105        runs (0, 100, 70) (3, 104, 73)

Why the result is either exact or absent:

A. Rows are durable before the data that they announce. So a map that is read after the log end was
   queried has the runs of all of this flow's records below that end. The upstream offset of a
   written ordinal never changes. Only an unclean election on the target since the query can remove
   a written record. A read then fails with TRUNCATED, or returned records that the log no longer
   has.
B. Neither the planned offset of a run nor records of other writers between its records matter: only
   producer ID, sequence and offset of the broker's batch decide. A record of another client has
   another producer ID, even after the last run.
C. A batch from which compaction has removed records keeps its base offset and base sequence
   (Kafka's `MemoryRecords.buildRetainedRecordsInto`), and no batch of this flow spans the wrap of
   sequences (`mirror.copy.intake`). So offsets within a batch are ordinals plus a constant.
D. A sequence is an ordinal modulo 2^31. Of the possible ordinals, the one nearest to the map's
   position is used. Another ordinal could be right only if other clients wrote a billion records
   between two marks.
E. Records before the first run are not in the map: they were there before this flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.errors import Fate, PartitionError
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.map.runs import (
    DOWNSTREAM,
    ORDINAL,
    PackedChunk,
    PackedRuns,
    Run,
    following,
)
from twinlog.model import TopicPartition, sequence_of, sequences_ahead
from twinlog.wire.record_batch import BatchHeader

NO_ORIGIN: Final = -1
"""Value of `OriginStretch.origin` for records that are not copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The part of a source partition's map that Spark tasks need for a range of a target log."""

    cluster: str
    """Alias of the source cluster."""
    source: TopicPartition
    producers: frozenset[int]
    runs: PackedChunk
    has_earlier_runs: bool
    """Whether the map has runs before `runs`, which were not sent to the tasks."""


class OriginStretch(NamedTuple):
    """Records from target offset `begin` on. Source offset = target offset + `distance`."""

    begin: int
    origin: int
    """Index in `Origins.known`, or NO_ORIGIN if these are no copies of known source records."""
    distance: int


def origin_of(
    partition_map: PartitionMap, cluster: str, first: int, end: int, log_end: int
) -> Origin | None:
    """Return the part of a map that a task needs for target offsets [first, end), or None if no
    record of this flow can be there.

    `log_end`: the end of the log when it was queried, before the map was read.
    """
    runs = partition_map.runs
    # records of other clients can only move this flow's records to higher target offsets than the
    # map has
    until = following(runs, end - 1, DOWNSTREAM)
    if not until or first >= end:
        return None
    if partition_map.mark is None:
        begin = following(runs, first, DOWNSTREAM) - 1
    else:
        # at most `most` of this flow's records are between `first` and the mark or the log's end,
        # because records of other clients may have some of these offsets
        most = max(log_end, partition_map.mark.downstream) - first
        begin = following(runs, partition_map.mark.ordinal - most, ORDINAL) - 1
    begin = max(0, min(begin, until - 1))
    return Origin(
        cluster=cluster,
        source=TopicPartition(partition_map.topic, partition_map.key.partition),
        producers=frozenset(partition_map.producers),
        runs=PackedChunk.of(runs[begin:until]),
        has_earlier_runs=begin > 0,
    )


class Origins:
    """The origins of one range of a target partition: one for each flow that writes to it, and for
    each earlier source topic of the same name.
    """

    def __init__(self, origins: Sequence[Origin]) -> None:
        self.known = sorted(origins, key=lambda origin: origin.runs.first.downstream)
        self._runs = [PackedRuns([origin.runs]) for origin in self.known]

    def stretches(self, header: BatchHeader, first: int) -> list[OriginStretch]:
        """Return the stretches of a data batch from target offset `first` on: each has records at
        the same distance to their source offsets.

        Raises PartitionError (MAP_UNREADABLE) if the part of the map that was sent to the task does
        not cover the batch.
        """
        begin = max(header.base_offset, first)
        number = self._writer(header, begin)
        if number == NO_ORIGIN:
            return [OriginStretch(begin, NO_ORIGIN, 0)]
        runs = self._runs[number]
        k = header.base_offset - _ordinal(runs, header)
        at = following(runs, begin - k, ORDINAL)
        out = [] if at else [self._stretch_before_map(number, begin)]
        for index in range(max(0, at - 1), len(runs)):
            run = runs[index]
            if run.ordinal + k >= header.next_offset:
                break
            out.append(
                OriginStretch(max(begin, run.ordinal + k), number, run.upstream - run.ordinal - k)
            )
        return out

    def _writer(self, header: BatchHeader, begin: int) -> int:
        index = NO_ORIGIN
        for number, origin in enumerate(self.known if header.magic >= 2 else ()):
            if origin.runs.first.downstream <= begin and header.producer_id in origin.producers:
                index = number
        return index

    def _stretch_before_map(self, number: int, begin: int) -> OriginStretch:
        origin = self.known[number]
        if origin.has_earlier_runs:
            raise PartitionError(
                f"the offset map, as it was read for this query, does not have the position of the "
                f"record at target offset {begin}, a copy from {origin.source}. This may happen "
                "in the first seconds of a copy: read again",
                code="MAP_UNREADABLE",
                fate=Fate.RETRIABLE,
            )
        return OriginStretch(begin, NO_ORIGIN, 0)


def _ordinal(runs: Sequence[Run], header: BatchHeader) -> int:
    """Return the ordinal of the batch's first record (the number of records that the flow wrote
    before). The base sequence gives it only modulo 2^31, so the candidate nearest to the map's
    position is used (rule D).
    """
    run = runs[max(0, following(runs, header.base_offset, DOWNSTREAM) - 1)]
    near = run.ordinal + header.base_offset - run.downstream
    return near + sequences_ahead(header.base_sequence, sequence_of(near))
