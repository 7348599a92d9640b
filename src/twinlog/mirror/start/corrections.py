"""Corrects the offset map if it has lost its newest rows, by finding the lost runs (`LostRuns`).

**Problem.** An unclean election of the map's topic can lose rows. The tail check then finds the
target's last 100 records in the source by content, so the copy resumes at the right position. But
if the map is wrong for the oldest of these records, it also lacks runs before that record, and
groups with offsets there would be translated wrongly (ordinals count this flow's records on the
target, `mirror.start_point`):

    ordinal    0 ... 49 | 50 .......... 299 | 300 ... 399
               the map  |  it lacks runs    |  the tail, found by content

**Search**

1. The newest remaining run of the map announced its own first record, so that record is trusted.
2. From the tail backwards, each source record must equal the next target record. If the source has
   offsets without a record between two records, as many target records may be passed over. So each
   pair is found from a known pair. As soon as the map agrees with a pair, the search is complete,
   because offsets rise on both sides, and the map has no gap before that pair.
3. If no pair is found for a record, all target records between it and the record of (1) get the
   highest possible upstream offsets (rule E of `mirror.map.rebuilt_map`). A group is then
   translated to an earlier record than the true one, never to a later one. If the source has
   records there, the start reports this (`StartPoint.undecided`).

**Cost.** Logs are read only if the map is wrong for the oldest tail record. Each portion of 10,000
records takes at most 20 fetches of about 1 MB per log, and as many after the portion for markers.
There are at most 32 portions.

**What may fail**

- *The process dies before the rows are written*: the map is unchanged, and the next start repeats
  the correction. Rows of several chunks are written in order. If only the first of these rows are
  written, the target's last records still differ from the map. So the next start continues the
  correction where these rows end.
- *The response to a row is lost*: the lane writes all rows again under higher chunks (`map_tail`).
  The late row has the same content.
- *A lane that was thought dead writes late rows of an older term*: the corrected runs are of a
  newer term. They begin before everything that such a lane announced after the lost rows, so they
  void its rows. If that lane starts as well, its generation is rejected, or its term is the older
  one.
- *The source has deleted or compacted records*: target records between two pairs are passed over,
  as far as the source has offsets for them, and get the highest possible offsets. The same applies
  before the source's first record. None of them has a source record that could be skipped.
- *The target has deleted records*: only existing records are compared. Records that its cleaner
  removed between two others end the search (step 3), because their source records are undecided.
- *Foreign records*: in a topic to which only this flow writes, the start has stopped at them, or
  they were accepted, and nothing before them is compared. In shared topics only one record is
  compared, and nothing is corrected.
- *Aborted records* are left out if their marker is within 2,000 offsets after the tail. Records of
  an older open transaction are not on the target and end the search (step 3).
- *A damaged batch* ends the search (step 3), but does not prevent any record from being copied.

**Rejected:** to take differing records for a gap of the source if nothing else can be compared.
Early releases did, and copied these records twice. So a correction needs records that are found
equal on both sides (ADR 13).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from twinlog.errors import CorruptData
from twinlog.mirror.map.offset_map import Run, run_at
from twinlog.mirror.start.both_logs import BothLogs
from twinlog.mirror.start.tail_check import Known, TargetTail, same_record
from twinlog.wire.records import Record

PORTION: Final = 10_000
"""Number of records that are searched at a time, with both logs in memory."""
MOST_PORTIONS: Final = 32

Pair = tuple[int, int]
"""(ordinal, upstream offset) of one target record and its source record."""


class ResumePoint(NamedTuple):
    """The result of a tail check: where the copy resumes."""

    upstream: int
    leader_epoch: int
    """Source leader epoch of offset `upstream` - 1, or -1 if unknown."""
    corrected: tuple[Run, ...] = ()
    """Runs before the resume point that replace the map's runs from the first of them on."""
    compared: int = 0
    """Number of records at the target's log end that were found equal at the source."""
    undecided: tuple[int, int] | None = None
    """Target offsets [first, next) before this point whose source records are unknown, or None."""


def next_upstream(runs: Sequence[Run], ordinal: int, log_start: int) -> int:
    """Return the source offset to read next if the flow has written `ordinal` records to the target
    partition.

    This is the offset right after the last copied record, even if the map announced a later offset
    for the next record. The offsets between these two are skipped a second time, but only a
    position right after a known record can be checked by its leader epoch. If the source no longer
    has that offset, the announced offset is returned.
    """
    run, before = run_at(runs, ordinal), run_at(runs, ordinal - 1)
    assert run is not None  # noqa: S101 (checked by the caller)
    announced = run.upstream_of(ordinal)
    if before is None:
        return announced
    next_offset = before.upstream_of(ordinal - 1) + 1
    return next_offset if next_offset >= log_start else announced


def runs_by_content(
    tail: TargetTail, source: Mapping[int, tuple[Record, int]], newest: int, k: int
) -> tuple[Run, ...]:
    """Return the runs of the target's last records. `newest`: upstream offset of the last one.
    `source`: source records near it; the records before `newest` are paired with the target's in
    order.
    """
    records = [record for record in tail.records if record.offset >= tail.whole_from]
    upstream = [offset for offset in sorted(source) if offset <= newest][-len(records) :]
    return runs_of([*zip(records[-len(upstream) :], upstream, strict=True)], k)


def pairs_in_order(
    records: Sequence[Record],
    source: Mapping[int, tuple[Record, int]],
    after: int,
    *,
    compare_timestamp: bool,
) -> list[tuple[Record, int]] | None:
    """Pair the target's last records with source records after upstream offset `after`. Return
    (target record, upstream offset) of each pair, or None if they cannot be paired in order up to
    the last target record.

    A lane copies records in order and leaves none out. So each source record that follows `after`,
    up to the target's last record, must be one of these target records. Target records whose source
    records are gone are passed over.
    """
    pairs: list[tuple[Record, int]] = []
    left = iter(records)
    for offset in sorted(at for at in source if at > after):
        known = source[offset][0]
        same = (r for r in left if same_record(known, r, compare_timestamp=compare_timestamp))
        if (record := next(same, None)) is None:
            return None
        pairs.append((record, offset))
        if record is records[-1]:
            return pairs
    return None


def runs_of(pairs: Sequence[tuple[Record, int]], k: int) -> tuple[Run, ...]:
    """Return the runs of the offset map for these pairs of a target record and its upstream
    offset.
    """
    runs: list[Run] = []
    for record, offset in pairs:
        run = Run(record.offset - k, offset, record.offset)
        if not runs or not run.continues(runs[-1]):
            runs.append(run)
    return tuple(runs)


class ReplacementRuns(NamedTuple):
    """Runs that replace those of the map."""

    runs: tuple[Run, ...]
    undecided: tuple[int, int] | None = None
    """Target offsets [first, next) of records whose source records could not be found, or None."""


class LostRuns:
    """Finds the offset map's missing runs between its last run and the run of the target's last
    records, by comparing both logs backwards. It assumes that only this flow writes to the topic,
    so that K (target offset minus ordinal) is the same for all compared records.
    """

    def __init__(self, logs: BothLogs, k: int, *, compare_timestamp: bool) -> None:
        self._logs = logs
        self._runs = logs.request.runs
        self._k = k
        self._own_time = compare_timestamp

    def before(self, tail_runs: tuple[Run, ...]) -> ReplacementRuns:
        """Return the runs that the map lacks before `tail_runs`, and then these. `tail_runs`: the
        runs of the target's last records, as found by content. If the map lacks none, return only
        these.
        """
        begin, upstream = tail_runs[0].ordinal, tail_runs[0].upstream
        if begin <= self._runs[0].ordinal or self._mapped_upstream(begin) == upstream:
            return ReplacementRuns(tail_runs)
        last = run_at(self._runs, begin - 1) or self._runs[0]
        low = max(last.ordinal + 1, self._logs.target_ends.log_start - self._k)
        if low >= begin:
            return ReplacementRuns(tail_runs)
        least = self._mapped_upstream(low - 1) + 1
        pairs = self._followed_back(low, least, (begin, upstream))
        oldest, oldest_upstream = pairs[-1]
        if self._mapped_upstream(oldest) == oldest_upstream:
            low, least = oldest, oldest_upstream  # the map is correct below this pair
        runs = self._runs_of(low, pairs[::-1])
        gaps = (oldest_upstream - least) - (oldest - low)
        if gaps < 0:
            # Before the oldest pair, fewer source offsets than target records are left. So a pair
            # has the wrong one of several equal source records, and all records before the tail
            # stay undecided.
            return ReplacementRuns(tail_runs, (self._k + low, self._k + begin))
        if oldest > low and gaps and self._has_before(oldest_upstream):
            return ReplacementRuns((*runs, *tail_runs[1:]), (self._k + low, self._k + oldest))
        return ReplacementRuns((*runs, *tail_runs[1:]))

    def _has_before(self, upstream: int) -> bool:
        try:
            return self._logs.source_before(upstream) is not None
        except CorruptData:
            return True

    def _mapped_upstream(self, ordinal: int) -> int:
        run = run_at(self._runs, ordinal)
        return -1 if run is None else run.upstream_of(ordinal)

    def _followed_back(self, low: int, least: int, known_pair: Pair) -> list[Pair]:
        """Return pairs of equal records in falling order, from `known_pair` back to ordinal `low`,
        or as far as records are equal.

        `least`: the lowest upstream offset that the record with ordinal `low` can have.
        """
        pairs = [known_pair]
        for _ in range(MOST_PORTIONS):
            ordinal, upstream = pairs[-1]
            gaps = (upstream - least) - (ordinal - low)
            if ordinal <= low or gaps <= 0 or self._mapped_upstream(ordinal) == upstream:
                break
            begin = max(low, ordinal - PORTION)
            lowest = max(least, upstream - (ordinal - begin) - gaps)
            try:
                target_records = self._logs.target_records(self._k + begin, self._k + ordinal)
                source_records = self._logs.around(upstream, lowest).records
            except CorruptData:
                break
            known_pair = self._k + ordinal, upstream
            matched = paired_back(
                target_records, source_records, known_pair, compare_timestamp=self._own_time
            )
            if not matched:
                break
            pairs += [(offset - self._k, at) for offset, at in matched]
        return pairs

    def _runs_of(self, low: int, pairs: Sequence[Pair]) -> list[Run]:
        """Return the runs from ordinal `low` on. Records between two pairs get the upstream offsets
        right before the next pair.
        """
        runs: list[Run] = []
        for ordinal, upstream in pairs:
            run = Run(low, upstream - (ordinal - low), self._k + low)
            if not runs or not run.continues(runs[-1]):
                runs.append(run)
            low = ordinal + 1
        return runs


def paired_back(
    target_records: Sequence[Record],
    source_records: Mapping[int, Known],
    known_pair: tuple[int, int],
    *,
    compare_timestamp: bool,
) -> list[tuple[int, int]]:
    """Return (target offset, upstream offset) of each pair of equal records before `known_pair`, in
    falling order.

    Each source record must equal the next target record. If the source has offsets without a record
    between two records, as many target records may be passed over. The search ends at the first
    source record without an equal target record.
    """
    pairs: list[tuple[int, int]] = []
    offset, upstream = known_pair
    left = len(target_records)
    for at in sorted((at for at in source_records if at < upstream), reverse=True):
        while left and target_records[left - 1].offset >= offset:
            left -= 1
        match = next(
            (
                index
                for index in range(left - 1, max(-1, left - 1 - (upstream - at)), -1)
                if offset - target_records[index].offset <= upstream - at
                and same_record(
                    source_records[at][0],
                    target_records[index],
                    compare_timestamp=compare_timestamp,
                )
            ),
            None,
        )
        if match is None:
            break
        left = match
        offset, upstream = target_records[match].offset, at
        pairs.append((offset, upstream))
    return pairs
