"""Records of other clients in a remote topic to which only the flow that copies should write.

**Border**

`copy_border` finds where the copy ends if other clients have written after its last record, for
example after a promotion. The batches of the flow come first, so the border is bisected by the
producer IDs of batches. This works even if the leader has forgotten the flow's producer ID. It
costs a few small fetches per partition.

**Accepted records**

An operator can accept foreign records among those of the flow. The copy then resumes after them.
The ordinal of a record is the number of records that the flow wrote before, and K is target offset
minus ordinal (`mirror.start_point`).

    downstream   70 71 72  [73 74]  75 76        73 and 74 were written by another client
    ordinal       0  1  2            3  4        K is 70 before them, 72 after them
    runs         (0, 100, 70)       (3, 103, 75)

Why no record is lost, duplicated or misplaced:

1. An acceptance is exact: it lists all foreign ranges of the log, up to the log's end, and K after
   the last one (`Accepted`). This flow's batches before, between and after these ranges must have
   the sequences of one unbroken copy. If a batch is missing or repeated, nothing can be accepted.
2. A start checks the log again. It uses the acceptance only if exactly the same ranges are foreign.
   Otherwise the start ignores the acceptance, and fails with the same code as without it.
3. The next ordinal is the one after this flow's last batch, and the broker's producer state must
   agree. A late request of a dead lane has the same batch under the same sequence, whether it
   arrives before or after the foreign records, so the broker deduplicates it as usual.
4. The upstream offset comes from the map. As in every start, this flow's last records are compared
   with the source's, but only those in the last part of the log in which K is constant
   (`TailStretch`).
5. The first map row of the start (of its term, `offset_map`) is durable before anything is sent.
   For each foreign range, the row has the run that begins after it. So K is in the map from then
   on, and later starts need no acceptance.

If a process dies before that row is written, the next process finds the acceptance in the state
topic and does the same. If it dies later, the map has K. If the log later loses its end, the runs
above the new end are void by the map's own rules, and K has its former value again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from twinlog.mirror.accepted import Accepted
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.map.runs import DOWNSTREAM, Run, following
from twinlog.mirror.ports import LogEnds
from twinlog.model import sequence_of
from twinlog.wire.record_batch import BatchHeader, read_headers


class BorderUnknown(Exception):
    """Raised if the log does not show where the copy ends. The text has the reason."""


def copy_border(
    partition_map: PartitionMap,
    log: tuple[int, int],
    batch_from: Callable[[int, int], BatchHeader | None],
) -> int:
    """Return the offset after the flow's last record in a target log. `log`: the log's start and
    end offset.

    `batch_from(offset, end)` returns the header of the batch that contains an offset, or of the
    next batch that begins before `end`, or None if there is none. Raises BorderUnknown if retention
    or the cleaner deleted the batches around the border, because they may have been the flow's.
    """
    first = partition_map.runs[0]
    low, foreign = max(log[0], first.downstream), log[1]
    if log[0] > first.downstream:
        header = batch_from(low, foreign)
        if header is None or header.producer_id not in partition_map.producers:
            raise BorderUnknown(
                f"retention has deleted the last records of the copy: the log begins at {log[0]}"
            )
    while low < foreign:
        middle = (low + foreign) // 2
        header = batch_from(middle, foreign)
        if (
            header is not None
            and header.magic >= 2
            and header.producer_id in partition_map.producers
        ):
            low = header.next_offset
        else:
            foreign = middle  # another client's batch, or none because the cleaner has deleted it
    after = batch_from(low, log[1])
    hole = log[1] if after is None else after.base_offset
    if hole > low:
        raise BorderUnknown(f"the log cleaner has deleted the batches at offsets [{low}, {hole})")
    return low


MAX_READS: Final = 64
"""Maximum fetches of about 1 MB from the first foreign record to the log's end. If more are needed,
nothing is accepted.
"""


@dataclass(frozen=True, slots=True)
class TailStretch:
    """The last part of a target log in which K (target offset minus ordinal) is the same for all of
    this flow's records.
    """

    k: int
    low: int
    """Target offset of the part's first record, or 0 if the part is the whole log."""


def last_stretch(runs: Sequence[Run], log_end: int) -> TailStretch:
    """Return the last part of the log with constant K, according to the map. It is the whole log
    unless the map has runs after accepted foreign records.
    """
    at = max(0, following(runs, log_end, DOWNSTREAM) - 1)
    k = _k_of(runs[at])
    if _k_of(runs[0]) == k:
        return TailStretch(k, 0)
    while _k_of(runs[at - 1]) == k:
        at -= 1
    return TailStretch(k, runs[at].downstream)


def _k_of(run: Run) -> int:
    return run.downstream - run.ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignWalk:
    """The result of `walk`: the foreign ranges of a target log, and this flow's records between and
    after them.
    """

    ranges: tuple[tuple[int, int], ...]
    foreign: tuple[BatchHeader, ...]
    """The headers of the foreign batches in `ranges`."""
    jumps: tuple[tuple[int, int], ...]
    """(ordinal, target offset) of this flow's first record after each range, if one follows."""
    next_ordinal: int
    end: int

    @property
    def accepted(self) -> Accepted:
        batches = [[header.base_offset, header.producer_id, header.crc] for header in self.foreign]
        return Accepted(
            ranges=self.ranges,
            k=self.end - self.next_ordinal,
            digest=zlib.crc32(json.dumps(batches).encode()),
        )

    def stretch_end(self, ends: LogEnds, low: int) -> LogEnds:
        """Return `ends` limited to the last part of the log in which this flow's records are
        contiguous. `low`: the beginning of that part if no record of this flow follows a foreign
        range.
        """
        begin = max(ends.log_start, self.jumps[-1][1] if self.jumps else low)
        first, last = self.ranges[-1]
        return replace(ends, log_start=begin, log_end=first if last == self.end else ends.log_end)


def walk(
    read: Callable[[int], memoryview], first: int, end: int, *, k: int, producers: frozenset[int]
) -> ForeignWalk | None:
    """Classify the batches in [first, end) of a target log as foreign or this flow's. At `first` a
    foreign batch begins. `k`: target offset minus ordinal, for this flow's records before `first`.

    Return None if a record of this flow is missing or repeated, if the range is too long to read,
    or if no batch is foreign.
    """
    ranges: list[tuple[int, int]] = []
    jumps: list[tuple[int, int]] = []
    foreign: list[BatchHeader] = []
    ordinal, reached = first - k, first
    """All batches below `reached` are classified."""
    for header in _batches(read, first, end):
        if header is None:
            return None
        is_ours = header.magic >= 2 and not header.is_control and header.producer_id in producers
        if not is_ours:
            foreign.append(header)
            continue
        if header.base_sequence != sequence_of(ordinal) or header.base_offset <= first:
            return None
        if header.base_offset > reached:
            ranges.append((reached, header.base_offset))
            jumps.append((ordinal, header.base_offset))
        ordinal += header.next_offset - header.base_offset
        reached = header.next_offset
    if reached < end:
        ranges.append((reached, end))
    if not ranges:
        return None
    return ForeignWalk(
        ranges=tuple(ranges),
        foreign=tuple(foreign),
        jumps=tuple(jumps),
        next_ordinal=ordinal,
        end=end,
    )


def _batches(
    read: Callable[[int], memoryview], first: int, end: int
) -> Iterator[BatchHeader | None]:
    """Yield all batch headers in [first, end), then None if MAX_READS was reached before `end`."""
    position = first
    for _ in range(MAX_READS):
        if position >= end:
            return
        before = position
        for header, _at in read_headers(read(position)):
            if header.base_offset >= end:
                return
            if header.next_offset > position:
                position = header.next_offset
                yield header
        if position == before:
            return  # compaction has removed all batches from here on
    if position < end:
        yield None


def pending(accepted: Sequence[Accepted], stretch: TailStretch, end: int) -> list[Accepted]:
    """Return the acceptances whose foreign ranges end at or before `end`, and that the map does not
    have yet (their K is above that of `stretch`). The one with the highest offsets is first.

    If the log lost its end, some of them may no longer apply. Only a check of the log shows which.
    """
    candidates = [
        acceptance
        for acceptance in accepted
        if acceptance.k > stretch.k and acceptance.ranges[-1][1] <= end
    ]
    return sorted(candidates, key=lambda acceptance: acceptance.first, reverse=True)
