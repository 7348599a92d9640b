"""Which record of the source each record of a target log is, by the batch that it lies in.

A batch of ours was written under a producer id of the flow, and its base sequence is the ordinal of
its first record (modulo 2^31). The map says which upstream record each ordinal is.

    downstream    70  71  72 | 73  74 | 75  76        73 and 74 are somebody else's
    producer       9           4        9
    sequence       0           0        3
    ordinal        0   1   2            3   4
    upstream     100 101 102    -   -  104 105        runs (0, 100, 70) (3, 104, 73)

Why the answer is exact, or none:

A. Rows are durable before the data that they announce. So a map that was read after a log end was
   asked has the runs of all of ours below that end, and what it says of a written ordinal never
   changes. Only an unclean election on the target in between unwrites one; such a read is
   TRUNCATED, or was of records that the log does not have any more.
B. Where a run was to lie does not matter, nor who wrote between: only producer, sequence and offset
   of the batch as the broker has it decide. A record of anybody else has another producer id, also
   behind the last run.
C. What is left of a batch after compaction keeps its base offset and base sequence (Kafka's
   `MemoryRecords.buildRetainedRecordsInto`), and no batch of ours passes the wrap of sequences
   (`mirror.copy.intake`). So offsets within a batch are ordinals plus a constant.
D. A sequence is an ordinal modulo 2^31. The nearest to where the map has the place is taken: others
   would have to write a billion records between two marks for it to be another.
E. What lies before the first run is not known to the map: it was there before us.
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

NOBODY: Final = -1
"""Records that are no copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a map says of one source partition's records in a range of a target log; travels to
    tasks.
    """

    cluster: str
    """Its alias."""
    source: TopicPartition
    producers: frozenset[int]
    runs: PackedChunk
    is_cut: bool
    """The map has runs before these."""


class OriginStretch(NamedTuple):
    """Records of a batch from a target offset on: `upstream = downstream + distance`."""

    begin: int
    origin: int
    """Which of the origins; NOBODY."""
    distance: int


def origin_of(
    known: PartitionMap, cluster: str, first: int, end: int, log_end: int
) -> Origin | None:
    """What a task needs to know of target offsets [first, end), a part of a log that ended at
    `log_end`, or further; None: nothing of ours can lie there.
    """
    runs = known.runs
    # runs lie where the map has them, or behind
    until = following(runs, end - 1, DOWNSTREAM)
    if not until or first >= end:
        return None
    if known.mark is None:
        begin = following(runs, first, DOWNSTREAM) - 1
    else:
        # others write, too: below the mark lie so many of ours, and not all of them before `first`
        behind = max(log_end, known.mark.downstream) - first
        begin = following(runs, known.mark.ordinal - behind, ORDINAL) - 1
    begin = max(0, min(begin, until - 1))
    return Origin(
        cluster=cluster,
        source=TopicPartition(known.topic, known.key.partition),
        producers=frozenset(known.producers),
        runs=PackedChunk.of(runs[begin:until]),
        is_cut=begin > 0,
    )


class Origins:
    """Of one range of a partition: of each flow into it, and of each life of a source topic."""

    def __init__(self, origins: Sequence[Origin]) -> None:
        self.known = sorted(origins, key=lambda one: one.runs.first.downstream)
        self._runs = [PackedRuns([one.runs]) for one in self.known]

    def stretches(self, header: BatchHeader, first: int) -> list[OriginStretch]:
        """Of the records of a data batch at or behind a target offset, which is in the range; the
        first one begins with them. Raises PartitionError where what travelled does not tell.
        """
        begin = max(header.base_offset, first)
        number = self._writer(header, begin)
        if number == NOBODY:
            return [OriginStretch(begin, NOBODY, 0)]
        runs = self._runs[number]
        k = header.base_offset - _ordinal(runs, header)
        at = following(runs, begin - k, ORDINAL)
        out = [] if at else [self._before_map(number, begin)]
        for index in range(max(0, at - 1), len(runs)):
            run = runs[index]
            if run.ordinal + k >= header.next_offset:
                break
            out.append(
                OriginStretch(max(begin, run.ordinal + k), number, run.upstream - run.ordinal - k)
            )
        return out

    def _writer(self, header: BatchHeader, begin: int) -> int:
        found = NOBODY
        for number, one in enumerate(self.known if header.magic >= 2 else ()):
            if one.runs.first.downstream <= begin and header.producer_id in one.producers:
                found = number
        return found

    def _before_map(self, number: int, begin: int) -> OriginStretch:
        one = self.known[number]
        if one.is_cut:
            raise PartitionError(
                f"target offset {begin} has a record of {one.source} that the offset map had "
                "elsewhere when the read was planned, as in the first seconds of a copy: read "
                "again",
                code="MAP_UNREADABLE",
                fate=Fate.RETRIABLE,
            )
        return OriginStretch(begin, NOBODY, 0)


def _ordinal(runs: Sequence[Run], header: BatchHeader) -> int:
    """Of the batch's first record."""
    run = runs[max(0, following(runs, header.base_offset, DOWNSTREAM) - 1)]
    near = run.ordinal + header.base_offset - run.downstream
    return near + sequences_ahead(header.base_sequence, sequence_of(near))
